"""Two workers of one router, and guests that speak to them in octets, by any protocol.

A guest is a connection that somebody dialed, or that we did: an engine of the router's and whoever
is opposite, by script. Nothing is caught: what an engine or the core raises ends the test.
"""

import itertools
from collections.abc import Iterable
from typing import Any, cast

import attrs

from router.core.listing import Filter, LinkPosition
from router.model.capabilities import Protocol
from router.model.commands import AttachLink, Command
from router.model.events import Event
from router.model.identity import ConnectionId, LinkName
from router.model.terminus import Role, Source, Target
from router.model.text import is_text
from router.routes.route import Route
from router.wire.engine import Engine, EngineSettings
from router.wire.protocols import PROTOCOLS
from tests.support.fleet import Fleet
from tests.support.play import Peer, Play, ReceiverEnd, SenderEnd


@attrs.define(eq=False)
class Guest:
    """One connection with somebody outside.

    Attributes:
        heard: all that its engine has told the core.
        said: octets that the engine has sent.
    """

    play: Play
    id: ConnectionId
    engine: Engine
    heard: list[Event] = attrs.field(factory=list)
    said: bytearray = attrs.field(factory=bytearray)
    is_gone: bool = False

    def say(self, *parts: bytes) -> None:
        """Sends octets to the engine, as long as it reads any."""
        for octets in parts:
            if not self.is_gone:
                self._happens(self.engine.receive_data(octets, self.play.now))

    def execute(self, command: Command) -> None:
        """Carries out what the core orders."""
        if not self.is_gone:
            self.engine.execute(command)

    def wake(self) -> bool:
        """Lets the engine tell what is due, and takes its output; tells whether there was any."""
        if self.is_gone:
            return False
        due = self.engine.deadline
        is_due = due is not None and due <= self.play.now
        if is_due:
            self._happens(self.engine.handle_deadline(self.play.now))
        shown = bytes(self.engine.data_to_send())
        self.said += shown
        self.engine.bytes_sent(len(shown))
        if self.engine.finished:
            self.leave()
        return is_due or bool(shown)

    def leave(self) -> None:
        """Ends the connection."""
        if not self.is_gone:
            self.is_gone = True
            self.play.carry_out(self.play.core.connection_lost(self.id, self.play.now))

    def _happens(self, events: list[Event]) -> None:
        for event in events:
            check_text(event)
        self.heard += events
        self.play.carry_out(self.play.core.handle(self.id, events, self.play.now))


class Town(Fleet):
    """Two workers with guests."""

    def __init__(self, *routes: Route | str, owned: Iterable[Iterable[str]] = ()) -> None:
        self.guests: list[Guest] = []
        super().__init__(2, *(routes or ("#",)), owned=owned)

    def settle(self) -> None:
        """Carries octets until nobody has anything more to say."""
        is_busy = True
        while is_busy:
            super().settle()
            is_busy = False
            for guest in self.guests:
                is_busy |= guest.wake()

    def guest(self, protocol: Protocol, worker: int = 1, *, dialed: str | None = None) -> Guest:
        """A connection; ``dialed`` names the configured container that it leads to."""
        play = self[worker]
        settings = EngineSettings(
            is_server=dialed is None,
            container="dc1",
            link_ids=play.link_ids,
            memory=play.kept,
            idle_seconds=0,
        )
        engine = PROTOCOLS[protocol].make(settings, None)
        guest = Guest(play, ConnectionId(len(play.peers) + 1), engine)
        play.peers[guest.id] = cast("Peer", guest)
        self.guests.append(guest)
        if dialed is not None:
            play.core.dialed(guest.id, dialed)
        return guest

    def pair(self, address: str) -> tuple[SenderEnd, ReceiverEnd]:
        """A good sender at the first worker, and a receiver at the second."""
        receiver = (
            self[2].connect(f"good receiver of {address}").attach_receiver(address, credit=1000)
        )
        self.settle()
        sender = self[1].connect(f"good sender to {address}").attach_sender(address)
        self.settle()
        return sender, receiver

    def check(self, pairs: Iterable[tuple[SenderEnd, ReceiverEnd]]) -> None:
        """Whether the workers are joined, others are served, and all can be shown."""
        self.settle()
        for joint in itertools.chain.from_iterable(self.joints.values()):
            assert not joint.engine.finished, "the joint is broken"
        for number, (sender, receiver) in enumerate(pairs):
            before = len(receiver.payloads)
            assert sender.credit > 0, "a good sender has no credit"
            sender.send(b"%d" % number)
            self.settle()
            assert receiver.payloads[before:] == [b"%d" % number], "a good pair is stopped"
            receiver.accept()
            self.settle()
        for play in self.plays.values():
            check_text(play.core.surveyor.survey(play.now))
            lister = play.core.lister
            check_text(lister.links(Filter(), 1000, LinkPosition(), play.now))
            check_text(lister.deliveries(Filter(), 1000, None, play.now))
            check_text(play.noticed)


def check_text(record: Any) -> None:
    """Holds everything that a record holds to being text."""
    if isinstance(record, str):
        assert is_text(record), f"{record!r} leaves an engine"
    elif attrs.has(type(record)):
        for field in attrs.fields(type(record)):
            check_text(getattr(record, field.name))
    elif isinstance(record, dict):
        for key, value in record.items():
            check_text(key)
            check_text(value)
    elif isinstance(record, list | tuple | set | frozenset):
        for item in record:
            check_text(item)


def wish(link: int, role: Role, address: str) -> AttachLink:
    """The core's wish for a link with a broker."""
    return AttachLink(
        link=cast("Any", link),
        name=LinkName(f"link-{link}"),
        role=role,
        source=Source(address=address if role is Role.RECEIVER else "here"),
        target=Target(address=address if role is Role.SENDER else "here"),
    )
