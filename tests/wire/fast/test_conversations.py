"""Conversations written from the document, octet by octet (RFC 006, sections as marked)."""

import re

import pytest

from router.model.commands import SendDeliveries, UpdateDeliveries
from router.model.events import (
    ConnectionOpened,
    CreditGranted,
    DeliveriesReceived,
    DeliveriesUpdated,
    Event,
    LinkAttached,
)
from router.model.outcome import ACCEPTED, MODIFIED_FAILED
from router.wire.engine import EngineSettings
from router.wire.mechanisms import MechanismServer
from tests.support.fast_peer import Client, outgoing


def octets(text: str) -> bytes:
    """Reads octets as people write them.

    Hexadecimal; "text"; 'text' with its length of one octet before it; <a command>, which gets
    its size and its end octet; and anything behind # is for people.
    """
    plain = "\n".join(line.split("#")[0] for line in text.splitlines())
    stack = [b""]
    for word in re.findall(r"\"[^\"]*\"|'[^']*'|[0-9a-f]+|[<>]", plain):
        if word == "<":
            stack.append(b"")
        elif word == ">":
            command = stack.pop() + b"\xce"
            stack[-1] += len(command).to_bytes(2, "big") + command
        elif word[0] == '"':
            stack[-1] += word[1:-1].encode()
        elif word[0] == "'":
            stack[-1] += bytes((len(word) - 2,)) + word[1:-1].encode()
        else:
            stack[-1] += bytes.fromhex(word)
    (found,) = stack
    return found


def play(client: Client, script: str) -> list[Event]:
    """Plays a conversation: C: lines go to the engine, S: lines are what it must send.

    A line that begins with neither goes on with the one before.
    """
    turns: list[tuple[str, str]] = []
    for line in script.strip().splitlines():
        side, _, rest = line.strip().partition(" ")
        if side in ("C:", "S:"):
            turns.append((side, rest))
        else:
            turns[-1] = (turns[-1][0], turns[-1][1] + "\n" + line)
    events: list[Event] = []
    for index, (side, text) in enumerate(turns):
        if side == "C:":
            events += client.feed(octets(text))
        else:
            expected = octets(text)
            shown = bytes(client.engine.data_to_send())
            assert shown[: len(expected)].hex(" ") == expected.hex(" "), (index, text)
            client.engine.bytes_sent(len(expected))
    assert client.octets() == b""
    return events


class Knows:
    """A verifier that knows the document's guest."""

    def verify_plain(self, user: str, password: str) -> bool:
        return (user, password) == ("guest", "guest@home")


OPENING = """
C: 80 01                                            # 3.2.2: protocol-id 128, version 1
S: <0a 01 'ANONYMOUS NONE' 0000>           # 3.2.3: CONNECTION CHALLENGE
C: <0b 'ANONYMOUS' 0000>                   # 3.2.4: CONNECTION RESPONSE
S: <0c 00010000 0100 1000 003c 0000>          # 3.2.5: CONNECTION TUNE
C: <0c 00004000 0001 0005 0000 0000>          # frame-max=16384 channel-max=1
C: <0d 0009 '/' 'one' 0000>             # 3.2.6: CONNECTION OPEN
S: <12 0009 00c8 00>                          # 3.2.8: CONNECTION REPLY 200
"""


def server(**options: object) -> Client:
    settings = EngineSettings(is_server=True, container="router", **options)  # type: ignore[arg-type]
    return Client(server=settings)


def opened() -> Client:
    client = server()
    (event,) = play(client, OPENING)
    assert isinstance(event, ConnectionOpened)
    client.take_events()
    return client


def test_preparing_the_connection() -> None:
    """§2.2.8.1, §3.2.10, §3.2.13."""
    client = server()
    (event,) = play(client, OPENING)
    assert isinstance(event, ConnectionOpened)
    assert (event.container, event.hostname) == ("one", "/")


def test_the_example_of_the_document() -> None:
    """§3.2.13: PLAIN with guest and guest@home, and a close by either side."""
    client = server(sasl_server=lambda: MechanismServer(verifier=Knows(), offer=["PLAIN"]))
    events = play(
        client,
        """
        C: 80 01
        S: <0a 01 'PLAIN' 0000>
        C: <0b 'PLAIN' 0024
           'LOGIN' 53 0005 "guest"               # 0.7d0: name, letter S, value
           'PASSWORD' 53 000a "guest@home">
        S: <0c 00010000 0100 1000 003c 0000>
        C: <0c 00004000 0001 0001 0000 0000>
        C: <0d 0000 00 00 0000>               # confirm-tag 0: no reply
        C: <13 021c 'Not implemented'>     # CONNECTION CLOSE 540
        S: <13 00c8 00>                       # CONNECTION CLOSE 200
        """,
    )
    assert isinstance(events[0], ConnectionOpened)
    assert events[0].user == "guest"
    assert client.engine.finished


def test_a_login_that_fails_closes_the_connection() -> None:
    """§3.2.4: "invalid user credentials ... it closes the connection"."""
    client = server(sasl_server=lambda: MechanismServer(verifier=Knows(), offer=["PLAIN"]))
    play(
        client,
        """
        C: 80 01
        S: <0a 01 'PLAIN' 0000>
        C: <0b 'PLAIN' 001d
           'login' 53 0005 "guest"
           'password' 53 0003 "bad">
        S: <13 0193 'login was refused'>   # 403
        """,
    )
    assert client.engine.finished


def test_sending_messages_to_the_server() -> None:
    """§2.2.8.2-3, §3.4.4, §3.5.3, §3.5.15."""
    client = opened()
    play(
        client,
        """
        C: <14 0001 0003 00 0000 00>          # 3.3.2: CHANNEL OPEN 1, confirm 3
        S: <1c 0001 0003 00c8 00>             # 3.3.6: CHANNEL REPLY
        C: <1e 0001 0014 0001 0004 01           # 3.5.2: HANDLE OPEN 20, queue, producer
           'alt.rec.' 00 00 0000>
        S: <30 0014 0004 00c8 00>             # 3.5.15: HANDLE REPLY
        C: <1f 0014 0005 00000014 00            # 3.5.3: HANDLE SEND, 20 octets
           'pets'>
           00000005 01 04 00000000 00 00 00 0000    # 3.4.4: head, persistent, priority 4
           "miaow"
        """,
    )
    (asked,) = client.say_yes()
    assert asked.target is not None
    assert asked.target.address == "alt.rec.pets"  # type: ignore[union-attr]
    (run,) = [event for event in client.events if isinstance(event, DeliveriesReceived)]
    client.do(UpdateDeliveries(asked.link, [run.deliveries[0].number], ACCEPTED, True))
    play(
        client,
        """
        S: <30 0014 0005 00c8 00>             # the receiver has accepted
        C: <31 0014 00c8 00>                  # 3.5.16: HANDLE CLOSE
        S: <31 0014 00c8 00>
        """,
    )


def test_receiving_and_acknowledging_messages() -> None:
    """§2.2.8.4-5, §3.5.4, §3.5.7, §3.5.11: 'unget 3' followed by 'ack 4'."""
    client = opened()
    play(
        client,
        """
        C: <14 0001 0000 00 0000 00>
        C: <1e 0001 0014 0001 0000 02           # HANDLE OPEN 20, queue, consumer
           'orders' 00 00 0000>
        C: <20 0014 0006 0008 00 00 00 0000 00>   # HANDLE CONSUME, prefetch 8
        """,
    )
    (asked,) = client.say_yes()
    play(client, "S: <30 0014 0006 00c8 00>")
    granted = [event for event in client.take_events() if isinstance(event, CreditGranted)]
    assert [event.credit for event in granted] == [8]
    client.do(SendDeliveries(asked.link, [outgoing(each, b"x") for each in (11, 12, 13, 14)]))
    notify = """
        S: <29 0014 0000000{} 00000010 08       # HANDLE NOTIFY, delivered
           'orders'>
           00000001 00 04 00000000 00 00 00 0000 "x"
    """
    for number in (1, 2, 3, 4):
        expected = octets(notify.format(number).replace("S:", ""))
        shown = bytes(client.engine.data_to_send())
        assert shown.startswith(expected)
        client.engine.bytes_sent(len(expected))
    events = play(
        client,
        """
        C: <23 0014 0000 00000003>            # HANDLE UNGET 3
        C: <15 0001 0007 00000004>            # CHANNEL ACK 4, confirm 7
        S: <1c 0001 0007 00c8 00>             # 3.3.6: CHANNEL REPLY
        """,
    )
    told = [
        (number, event.state)
        for event in events
        if isinstance(event, DeliveriesUpdated)
        for number in event.numbers
    ]
    assert told == [(13, MODIFIED_FAILED), (11, ACCEPTED), (12, ACCEPTED), (14, ACCEPTED)]


def test_errors_are_hand_shakes() -> None:
    """§2.2.8.6: both sides close, and then the channel may be opened again."""
    client = opened()
    play(
        client,
        """
        C: <14 0001 0000 00 0000 00>
        C: <16 0001 0000 0000>                # 3.3.4: COMMIT, valid on transacted channels
        S: <1d 0001 01f7 'CHANNEL COMMIT on a channel without transactions'>
        C: <1d 0001 00c8 00>                  # 3.3.7: CHANNEL CLOSE in reply
        C: <14 0001 0005 00 0000 00>
        S: <1c 0001 0005 00c8 00>
        """,
    )


def test_browsing_what_waits() -> None:
    """§2.2.8.7, §3.5.8-12."""
    client = opened()
    play(
        client,
        """
        C: <14 0001 0000 00 0000 00>
        C: <1e 0001 0014 0001 0000 0e 00 00 00 0000>   # consumer, browser, temporary
        """,
    )
    (asked,) = client.say_yes()
    play(client, "S: <28 0014 'made/1'>")  # HANDLE CREATED
    client.do(SendDeliveries(asked.link, [outgoing(1, b"x")]))
    play(
        client,
        """
        C: <24 0014 00000000 00 0000 00>      # HANDLE QUERY, all messages
        S: <2a 0014 00000000 0001 "1">        # HANDLE INDEX "1"
        C: <25 0014 0009 00000002>            # HANDLE BROWSE 2
        S: <30 0014 0009 0136 'message 2 is not here'>
        C: <25 0014 0000 00000001>            # HANDLE BROWSE 1
        S: <29 0014 00000001 00000010 00        # HANDLE NOTIFY, not delivered
           'made/1'>
           00000001 00 04 00000000 00 00 00 0000 "x"
        """,
    )


def test_a_restartable_exchange() -> None:
    """§2.2.7, §3.5.13-14."""
    client = opened()
    play(
        client,
        """
        C: <14 0001 0000 02 0000 00>          # CHANNEL OPEN, restartable
        C: <1e 0001 0014 0001 0000 01 'orders' 00 00 0000>
        C: <2b 0014 00000011                    # HANDLE PREPARE: head and two octets
           '0beec7b5ea3f0fdbc95d0dd47f3c5bc275da8a33'>
           00000003 00 04 00000000 00 00 00 0000 "fo"
        S: <2c 0014 00000002>                 # HANDLE READY: these two
        C: <1f 0014 0000 00000001 04 00> "o"  # HANDLE SEND, recovery
        """,
    )
    client.say_yes()
    (run,) = [event for event in client.events if isinstance(event, DeliveriesReceived)]
    assert run.deliveries[0].payload.endswith(b"foo")
    assert not [event for event in client.events if isinstance(event, LinkAttached)]


@pytest.mark.parametrize("respond", [True, False])
def test_the_heartbeat(respond: bool) -> None:
    """§3.2.7: the response to a PING is never a PING that asks for one."""
    client = opened()
    play(client, "C: <0e 01>\nS: <0e 00>" if respond else "C: <0e 00>")
