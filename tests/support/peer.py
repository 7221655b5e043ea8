"""A scripted peer of AMQP 1.0, at the level of frames: sends what it is told, legal or not.

The engine under test stands on the other side of the table; there is no socket and no clock. The
script reads like a play::

    peer = Peer(engine)
    peer.greet()
    peer.send(Begin(...), channel=3)
    begin = peer.expect(Begin)
    ...
    assert peer.events == [...]
"""

from collections.abc import Callable
from itertools import count
from typing import Any, Final, TypeVar

import attrs

from router.model.commands import GrantCredit
from router.model.events import Event, LinkAttached
from router.model.identity import LinkId
from router.model.terminus import Role, Source, Target
from router.wire.engine import EngineSettings
from router.wire.v1_0.engine import Engine10
from router.wire.v1_0.frames import (
    AMQP,
    AMQP_HEADER,
    frame,
    read_frame_header,
)
from router.wire.v1_0.performatives import (
    Attach,
    Begin,
    Flow,
    Open,
    Performative,
    SaslPerformative,
    Transfer,
    decode,
    encode,
)
from tests.support.accepting import accepting

Record = TypeVar("Record")
Kind = TypeVar("Kind", bound=Event)


@attrs.frozen
class Seen:
    """A frame that the engine has sent.

    Attributes:
        performative: None for an empty frame.
    """

    channel: int
    performative: Performative | SaslPerformative | None
    payload: bytes = b""
    kind: int = AMQP


def settings(**changes: Any) -> EngineSettings:
    """Makes settings of a server, with link ids from 1."""
    base = EngineSettings(is_server=True, container="router", link_ids=map(LinkId, count(1)))
    return attrs.evolve(base, **changes)


class Peer:
    """The other side of an engine.

    Attributes:
        engine: the engine under test.
        events: what it has told so far, and the test has not taken.
        now: the clock.
    """

    def __init__(self, engine: Engine10 | None = None, **changes: Any) -> None:
        self.engine = Engine10(settings(**changes)) if engine is None else engine
        self.events: list[Event] = []
        self.now = 0.0
        self._octets = b""

    # --- speaking ---------------------------------------------------------------------------------

    def send_octets(self, octets: bytes) -> None:
        """Sends octets as they are."""
        self.events += self.engine.receive_data(octets, self.now)

    def send(
        self,
        *performatives: Performative | SaslPerformative,
        channel: int = 0,
        payload: bytes = b"",
        kind: int = AMQP,
    ) -> None:
        """Sends frames in one write; the payload goes with each."""
        self.send_octets(
            b"".join(frame(channel, encode(each), payload, kind) for each in performatives)
        )

    def send_eof(self) -> None:
        """Ends the stream."""
        self.events += self.engine.receive_eof(self.now)

    def wait(self, seconds: float) -> None:
        """Lets time pass, calling the engine whenever it wants to be called."""
        end = self.now + seconds
        while True:
            deadline = self.engine.deadline
            if deadline is None or deadline > end:
                break
            self.now = max(self.now, deadline)
            self.events += self.engine.handle_deadline(self.now)
        self.now = end

    # --- hearing ----------------------------------------------------------------------------------

    def take_octets(self) -> bytes:
        """Takes all octets that the engine has to send."""
        octets = self._octets
        self._octets = b""
        while len(shown := self.engine.data_to_send()):
            octets += shown
            self.engine.bytes_sent(len(shown))
        return octets

    def expect_octets(self, octets: bytes) -> None:
        """Checks which octets come next."""
        seen = self.take_octets()
        assert seen[: len(octets)] == octets, seen
        self._octets = seen[len(octets) :]

    def take_frames(self) -> list[Seen]:
        """Takes all frames that the engine has to send."""
        octets = self.take_octets()
        frames = []
        at = 0
        while at < len(octets):
            header = read_frame_header(octets, at, len(octets))
            assert header is not None, octets[at:]
            assert header.end <= len(octets), octets[at:]
            performative = None
            payload_at = header.end
            if header.body < header.end:
                performative, payload_at = decode(octets, header.body, header.end)
            payload = octets[payload_at : header.end]
            frames.append(Seen(header.channel, performative, payload, header.kind))
            at = header.end
        return frames

    def expect(self, *kinds: type[Record]) -> list[Any]:
        """Takes all frames, which must be of these kinds in this order; returns what they say."""
        seen = [each.performative for each in self.take_frames()]
        assert [type(each) for each in seen] == list(kinds), seen
        return seen

    def expect_one(self, kind: type[Record]) -> Record:
        """Takes all frames, which must be one of this kind."""
        (seen,) = self.expect(kind)
        assert isinstance(seen, kind)
        return seen

    def expect_nothing(self) -> None:
        """Checks that the engine has nothing to send."""
        octets = self.take_octets()
        assert octets == b"", octets

    def take_events(self) -> list[Event]:
        """Takes what the engine has told."""
        events, self.events = self.events, []
        return events

    def take_event(self, kind: type[Kind]) -> Kind:
        """Takes what the engine has told, which must be one event of this kind."""
        (event,) = self.take_events()
        assert isinstance(event, kind), event
        return event

    def collect(self) -> None:
        """Takes events that wait in the engine, as the owner of the socket would at once."""
        deadline = self.engine.deadline
        if deadline is not None and deadline <= self.now:
            self.events += self.engine.handle_deadline(self.now)

    # --- scenes that many plays begin with --------------------------------------------------------

    def greet(self, **changes: Any) -> Open:
        """Opens the connection, without SASL; returns the engine's open."""
        own = attrs.evolve(Open(container_id="peer"), **changes)
        if self.engine.data_to_send():
            self.expect_octets(AMQP_HEADER)
            seen = self.expect_one(Open)
            self.send_octets(AMQP_HEADER)
            self.send(own)
        else:
            self.send_octets(AMQP_HEADER)
            self.send(own)
            self.expect_octets(AMQP_HEADER)
            seen = self.expect_one(Open)
        self.take_events()
        return seen

    def begin(self, channel: int = 0, **changes: Any) -> Begin:
        """Begins a session; returns the engine's begin."""
        base = Begin(next_outgoing_id=0, incoming_window=1000, outgoing_window=1000)
        self.send(attrs.evolve(base, **changes), channel=channel)
        return self.expect_one(Begin)

    def attach(
        self,
        role: Role = Role.SENDER,
        name: str = "link",
        handle: int = 0,
        channel: int = 0,
        **changes: Any,
    ) -> None:
        """Sends an attach of the peer's; ``role`` is the peer's."""
        base = Attach(
            name=name,
            handle=handle,
            role=role,
            source=Source(address="from"),
            target=Target(address="to"),
            initial_delivery_count=0 if role is Role.SENDER else None,
        )
        self.send(attrs.evolve(base, **changes), channel=channel)

    def answer(self, credit: int = 0, **changes: Any) -> LinkId:
        """Has the core attach as the peer asked in the one event so far; returns the link."""
        event = self.take_event(LinkAttached)
        own = accepting(event)
        self.engine.execute(attrs.evolve(own, **changes))
        if credit:
            self.engine.execute(GrantCredit(event.link, credit))
        self.take_frames()
        return event.link

    def transfer(
        self,
        delivery_id: int | None,
        payload: bytes = b"",
        *,
        handle: int = 0,
        channel: int = 0,
        **changes: Any,
    ) -> None:
        """Sends a transfer; a delivery-id of None makes it a later one of its delivery."""
        fields: dict[str, Any] = {"handle": handle, "delivery_id": delivery_id}
        if delivery_id is not None:
            fields |= {"delivery_tag": b"%d" % delivery_id, "message_format": 0}
        self.send(Transfer(**fields | changes), channel=channel, payload=payload)

    def flow(self, *, channel: int = 0, **changes: Any) -> None:
        """Sends a flow, wide open where nothing else is said."""
        base = Flow(
            next_incoming_id=0, incoming_window=1000, next_outgoing_id=0, outgoing_window=1000
        )
        self.send(attrs.evolve(base, **changes), channel=channel)


def opened(**changes: Any) -> Peer:
    """A peer whose connection is open; changes are the engine's settings."""
    peer = Peer(**changes)
    peer.greet()
    return peer


def begun(**changes: Any) -> Peer:
    """A peer with a session on channel 0."""
    peer = opened(**changes)
    peer.begin()
    return peer


def attached(role: Role = Role.SENDER, credit: int = 100, **changes: Any) -> Peer:
    """A peer with a link on handle 0, answered by the core, with credit if the peer sends.

    Args:
        role: the peer's.
        credit: granted to it if it sends.
        changes: of our attach (``_OURS``), of the peer's (``_THEIRS``), or else of the settings.
    """
    ours = {key: changes.pop(key) for key in list(changes) if key in _OURS}
    theirs = {key: changes.pop(key) for key in list(changes) if key in _THEIRS}
    peer = begun(**changes)
    peer.attach(role, **theirs)
    peer.answer(credit if role is Role.SENDER else 0, **ours)
    return peer


_OURS: Final = {"receiver_settle_mode", "max_message_octets", "incomplete_unsettled", "unsettled"}
_THEIRS: Final = {"snd_settle_mode"}


def converse(
    first: Engine10,
    second: Engine10,
    now: float = 0.0,
    chunk: Callable[[int], int] = lambda most: most,
) -> tuple[list[Event], list[Event]]:
    """Carries octets between two engines until both are silent; returns what each has told.

    Args:
        first, second: the engines.
        now: the clock.
        chunk: how many octets of those shown are carried at once, at least 1.
    """
    to_first: list[Event] = []
    to_second: list[Event] = []
    ends = ((first, second, to_second), (second, first, to_first))
    is_moving = True
    while is_moving:
        is_moving = False
        for source, sink, told in ends:
            shown = source.data_to_send()
            if len(shown):
                is_moving = True
                size = chunk(len(shown))
                told.extend(sink.receive_data(shown[:size], now))
                source.bytes_sent(size)
            deadline = sink.deadline
            if deadline is not None and deadline <= now:
                is_moving = True
                told.extend(sink.handle_deadline(now))
    return to_first, to_second
