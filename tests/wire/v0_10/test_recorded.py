"""Conversations of qpid-python with the router, recorded, and held again with its own octets.

Python 2.7 is not to be had everywhere, so what its client says is kept in ``recorded``, octet by
octet; the head of each file tells how it was made. Here the engine and the core hear it again, and
must answer every command as they did: a client that waits for an answer would go on.
"""

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from router.core.core import Core
from router.core.settings import CoreSettings
from router.model.events import ConnectionClosed, Event
from router.model.identity import ConnectionId, LinkId
from router.routes.route import Distribution, Guarantee, Route
from router.routes.table import RoutingTable
from router.wire.engine import EngineSettings
from router.wire.v0_10 import records as r
from router.wire.v0_10.ranges import RangeSet
from router.wire.v0_10.server import ServerEngine
from tests.support.peer_0_10 import Transfer, read_stream

RECORDED = Path(__file__).parent / "recorded"
CLIENT = ConnectionId(1)
LOSSY = Route(
    address="news.#", distribution=Distribution.MULTICAST, guarantee=Guarantee.AT_MOST_ONCE
)
"""Its client transfers with accept-mode none, and releases a message: when that was recorded it was
lost, and by any other promise it comes again now."""


def read_turns(path: Path) -> list[tuple[str, bytes]]:
    """Reads who said what, in order."""
    turns: list[tuple[str, str]] = []
    for line in path.read_text().splitlines():
        if line.startswith("#"):
            continue
        who, octets = line[0], line[2:]
        if who == " ":
            turns[-1] = (turns[-1][0], turns[-1][1] + octets)
        else:
            turns.append((who, octets))
    return [(who, bytes.fromhex(octets)) for who, octets in turns]


class Replay:
    """A worker without sockets, and one connection to it.

    Attributes:
        events: all that the engine has told.
        octets: all that it has sent.
    """

    def __init__(self, *routes: Route) -> None:
        links = map(LinkId, itertools.count(1))
        self.core = Core(CoreSettings(router_id="dc1"), RoutingTable(routes), links)
        self.engine = ServerEngine(EngineSettings(is_server=True, container="dc1", link_ids=links))
        self.now = 100.0
        self.events: list[Event] = []
        self.octets = b""

    def hear(self, octets: bytes) -> None:
        """Lets the router hear octets, and do all that follows."""
        self.now += 0.0001  # less than what counts against a ttl
        events: Sequence[Event] = self.engine.receive_data(octets, self.now)
        while True:
            self.events += events
            for _, command in self.core.handle(CLIENT, events, self.now):
                self.engine.execute(command)
            due = self.engine.deadline
            events = []
            if due is not None and due <= self.now:
                events = self.engine.handle_deadline(self.now)
            if not events:
                break
        shown = self.engine.data_to_send()
        self.octets += bytes(shown)
        self.engine.bytes_sent(len(shown))


def told(octets: bytes) -> tuple[list[Any], dict[int, list[tuple[int, int]]]]:
    """Gives what a router has said, in order, and which commands it completed, by channel.

    How completions are gathered into controls is a matter of time, so only their sum counts.
    """
    found, rest = read_stream(octets)
    assert not rest
    said: list[Any] = []
    completed: dict[int, RangeSet] = {}
    for channel, each in found:
        match each:
            case r.SessionCompleted(commands=commands):
                for first, last in commands or ():
                    completed.setdefault(channel, RangeSet()).add(first, last)
            case r.SessionKnownCompleted():
                pass
            case r.ConnectionStart():
                said.append((channel, each.mechanisms))
            case r.ConnectionTune():
                pass  # what is offered is the router's to say, and has changed since
            case Transfer():
                said.append((channel, each.command, each.header, each.body))
            case _:
                said.append((channel, each))
    return said, {channel: each.ranges for channel, each in completed.items()}


@pytest.mark.parametrize(
    ("name", "routes"),
    [
        ("qpid_messaging", [Route(address="q.#")]),
        ("qpid_session", [LOSSY, Route(address="q.#")]),
        ("qpid_topic", [Route(address="news.#", distribution=Distribution.MULTICAST)]),
    ],
)
def test_qpid_for_python_is_answered_as_it_was(name: str, routes: list[Route]) -> None:
    turns = read_turns(RECORDED / f"{name}.txt")
    replay = Replay(*routes)
    for who, octets in turns:
        if who == "C":
            replay.hear(octets)
    was = told(b"".join(octets for who, octets in turns if who == "S"))
    now = told(replay.octets)
    for channel in {each[0] for each in was[0]}:
        assert [each for each in now[0] if each[0] == channel] == [
            each for each in was[0] if each[0] == channel
        ]
    assert now[1] == was[1]
    closed = [each for each in replay.events if isinstance(each, ConnectionClosed)]
    assert [(each.condition, each.by_peer) for each in closed] == [(None, True)]
    assert replay.engine.finished
