"""Clients of 0-10 and their engines at the workers of a fleet, so that they can change places."""

import random
from collections import Counter
from typing import Any, cast

from router.core.passage import Passages
from router.model.commands import Command
from router.model.events import ConnectionClosed, Event
from router.model.identity import ConnectionId
from router.wire.engine import EngineSettings
from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import encode_command
from router.wire.v0_10.framing import COMMAND, PROTOCOL_HEADER, assembly
from router.wire.v0_10.message import write_header
from router.wire.v0_10.server import ServerEngine
from tests.support import peer_0_10, play
from tests.support.fleet import Fleet
from tests.support.peer_0_10 import Transfer


class Town:
    """A fleet with engines of 0-10 at its workers.

    Attributes:
        fleet: the workers.
        roamers: everybody who has come.
        chance: decides who goes on and who is slow, while there is one.
    """

    def __init__(self, fleet: Fleet, chance: random.Random | None = None) -> None:
        self.fleet = fleet
        self.roamers: list[Roamer] = []
        self.chance = chance

    def come(self, worker: int, user: str | None = None) -> "Roamer":
        """A client dials, and comes to a worker."""
        roamer = Roamer(self, worker, user)
        self.roamers.append(roamer)
        roamer.open()
        return roamer

    def settle(self) -> None:
        """Has everybody say what there is to say; or some, if chance decides."""
        if self.chance is not None:
            self._go_on_a_little(self.chance)
            return
        busy = True
        while busy:
            self.fleet.settle()
            busy = False
            for roamer in self.roamers:
                busy |= self._wake(roamer)

    def _go_on_a_little(self, chance: random.Random) -> None:
        ways = [way for pair in self.fleet.joints for way in (pair, pair[::-1])]
        for way in chance.sample(ways, chance.randint(0, len(ways))):
            self.fleet.carry(*way)
            for roamer in self.roamers:  # a worker goes on with its own before it hears more
                while self._wake(roamer):
                    pass

    @staticmethod
    def _wake(roamer: "Roamer") -> bool:
        due = None if roamer.is_gone else roamer.engine.deadline
        if due is None or due > roamer.play.now:
            return False
        roamer.hand_over(roamer.engine.handle_deadline(roamer.play.now))
        return True


class Roamer(peer_0_10.Peer):
    """A client by script; its engine's events go to the core of the worker that it has come to."""

    engine: ServerEngine

    def __init__(self, town: Town, worker: int, user: str | None) -> None:
        self.town = town
        self.play = town.fleet[worker]
        settings = EngineSettings(
            is_server=True,
            container="dc1",
            link_ids=self.play.link_ids,
            memory=self.play.kept,
            expiry_seconds=600,
            idle_seconds=0,
        )
        super().__init__(ServerEngine(settings))
        self.now = self.play.now
        self.user = user
        self.id = ConnectionId(len(self.play.peers) + 1)
        self.play.peers[self.id] = cast("play.Peer", self)
        self.is_gone = False
        self.taken: list[object] = []

    def execute(self, command: Command) -> None:
        """Carries out what the core orders."""
        if not self.is_gone:
            self.engine.execute(command)

    def take(self, events: list[Event]) -> list[Event]:
        """Hands events to the core, and lets everybody go on."""
        self.hand_over(events)
        self.town.settle()
        return events

    def hand_over(self, events: list[Event]) -> None:
        """Hands events to the core."""
        self.events += events
        self.play.carry_out(self.play.core.handle(self.id, events, self.play.now))
        self.play.core.take_awakened()

    def open(self, properties: dict[str, Any] | None = None) -> None:
        """Goes through the handshake, as its user."""
        assert properties is None, "they are a server's"
        self.feed(PROTOCOL_HEADER)
        self.control(r.ConnectionStartOk(mechanism="ANONYMOUS"), 0)
        self.engine.user = self.user
        self.control(r.ConnectionTuneOk(10), 0)
        self.control(r.ConnectionOpen("/"), 0)
        self.read()

    def lose(self) -> None:
        """The connection is cut."""
        self.hand_over(self.engine.receive_eof(self.play.now))
        assert self.of(ConnectionClosed)
        self.is_gone = True
        self.town.settle()

    def enter(self, name: bytes = b"s", *, force: bool = False, timeout: int = 60) -> list[object]:
        """Attaches a session with a timeout; gives what is said of it."""
        return self.attach(name, timeout=timeout, point=None, force=force)

    def expected(self) -> r.SessionExpected:
        """Asks what the router expects; says that nothing is expected here."""
        self.control(r.SessionFlush(expected=True))
        (found,) = self.heard(r.SessionExpected)
        return found

    def heard(self, kind: type[peer_0_10.Kind]) -> list[peer_0_10.Kind]:
        """Takes what the router has said of a kind; the rest stays."""
        while self.engine.output_octets:
            self.taken += [each for _, each in self.read()]
        found = [each for each in self.taken if isinstance(each, kind)]
        self.taken = [each for each in self.taken if not isinstance(each, kind)]
        return found

    def bodies(self) -> Counter[bytes]:
        """Takes the messages that have come."""
        return Counter(each.body for each in self.heard(Transfer))


def led_through(fleet: Fleet, worker: int) -> int:
    """How many links of a worker's peers lead through to others."""
    passages = fleet[worker].core._parts.passages
    assert isinstance(passages, Passages)
    return passages.count


class Wanderer:
    """A client with one session, that it takes from worker to worker, as the specification asks.

    Attributes:
        client: its connection; None: it has none.
        bodies: of messages that have come, in order.
        accepted: numbers of commands of ours that were accepted.
        given_back: how many were released, because nobody was there; they are sent again.
    """

    def __init__(self, town: Town, name: bytes) -> None:
        self.town = town
        self.name = name
        self.client: Roamer | None = None
        self.bodies: list[bytes] = []
        self.accepted: list[int] = []
        self.given_back = 0
        self.next_in: int | None = None
        self._next = 0
        self._acknowledged = 0
        self._sent: list[bytes] = []
        self._speaks = False

    def come(self, worker: int) -> None:
        """Dials, and goes on with the session."""
        self.client = self.town.come(worker)
        self._enter()

    def _enter(self) -> None:
        client = self.client
        assert client is not None
        client.control(r.SessionAttach(self.name, True))
        client.control(r.SessionRequestTimeout(120))
        client.control(r.SessionFlush(expected=True))
        self.read()

    def _go_on(self, told: r.SessionExpected) -> None:
        assert self.client is not None
        at = told.commands[0][0] if told.commands else 0
        self.client.control(r.SessionCommandPoint(at, 0))
        for octets in self._sent[at:]:
            self.client.feed(octets)
        self._speaks = True

    def lose(self) -> None:
        """The connection is cut, with all that is under way on it."""
        assert self.client is not None
        self.client.lose()
        self.client, self._speaks = None, False

    def command(self, *commands: r.Command) -> None:
        """Sends commands, or will."""
        for each in commands:
            self._say(assembly(COMMAND, 1, encode_command(each), 65535))

    def transfer(self, key: str, body: bytes) -> None:
        """Transfers a message, or will."""
        header = write_header(r.DeliveryProperties(routing_key=key), None)
        head = encode_command(r.MessageTransfer("", 0, 0))
        self._say(assembly(COMMAND, 1, head, 65535, (header, body)))

    def _say(self, octets: bytes) -> None:
        self._sent.append(octets)
        if self.client is not None and self._speaks:
            self.client.feed(octets)

    def read(self) -> None:
        """Takes what has come."""
        client, is_refused = self.client, False
        while client is not None and client.engine.output_octets:
            for _, each in client.read():
                if isinstance(each, r.SessionFlush):
                    at = self.next_in
                    client.control(r.SessionExpected(() if at is None else ((at, at),)))
                elif isinstance(each, r.SessionExpected):
                    self._go_on(each)
                elif isinstance(each, r.SessionDetached):
                    is_refused = True
                elif isinstance(each, r.SessionCommandPoint):
                    assert each.command_id is not None
                    self._next = each.command_id
                elif isinstance(each, Transfer | r.MessageAccept | r.MessageRelease):
                    assert self.next_in is None or self._next == self.next_in
                    self._next += 1
                    self.next_in = self._next
                    self._take(each)
        if is_refused:  # somebody else is at it: once more
            self._enter()

    def _take(self, found: object) -> None:
        if isinstance(found, Transfer):
            self.bodies.append(found.body)
        elif isinstance(found, r.MessageAccept):
            for first, last in found.transfers or ():
                self.accepted += range(first, last + 1)
        elif isinstance(found, r.MessageRelease):
            assert not found.set_redelivered, "it may have come already"
            for first, last in found.transfers or ():
                for number in range(first, last + 1):
                    self.given_back += 1
                    self._say(self._sent[number])

    def acknowledge(self) -> None:
        """Accepts and completes all that has come."""
        if self.client is None or not self._speaks:
            return
        if self.next_in is None or self._acknowledged == self.next_in:
            return
        last = self.next_in - 1
        self.command(r.MessageAccept(((self._acknowledged, last),)))
        self.client.control(r.SessionCompleted(((0, last),)))
        self._acknowledged = self.next_in
