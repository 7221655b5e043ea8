"""Two engines of AMQP 1.0 with a link between them, for tests of what happens on links."""

from itertools import count
from typing import Any, TypeVar

import attrs

from router.model.commands import AttachLink, Command, GrantCredit, SendDeliveries
from router.model.delivery import OutgoingDelivery
from router.model.events import Event, LinkAttached
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId, LinkName
from router.model.terminus import Role, Source, Target
from router.wire.engine import EngineSettings
from router.wire.v1_0.engine import Engine10
from tests.support.accepting import accepting
from tests.support.peer import converse

Kind = TypeVar("Kind", bound=Event)

BODY = b"\x00\x53\x75\xa0\x04body"
"""A message of one data section."""


def deliveries(*numbers: int, payload: bytes = BODY, **changes: Any) -> list[OutgoingDelivery]:
    """Makes deliveries whose tags are their numbers."""
    return [
        OutgoingDelivery(DeliveryNumber(number), DeliveryTag(b"%d" % number), payload, **changes)
        for number in numbers
    ]


class Linked:
    """An engine that sends and one that receives, and the link between them.

    Attributes:
        sender, receiver: the engines; the sender has dialed.
        outgoing, incoming: the link's ids at either.
        heard: what the receiver's core was told and the test has not taken; ``told`` for the
            sender's.
    """

    def __init__(
        self,
        *,
        credit: int = 1000,
        initial_id: int = 0,
        sender: dict[str, Any] | None = None,
        receiver: dict[str, Any] | None = None,
        request: dict[str, Any] | None = None,
        answer: dict[str, Any] | None = None,
    ) -> None:
        self.ids = map(LinkId, count(1))
        base = EngineSettings(is_server=False, container="sender", link_ids=self.ids)
        self.sender = Engine10(attrs.evolve(base, **(sender or {})), initial_id=initial_id)
        base = EngineSettings(is_server=True, container="receiver", link_ids=self.ids)
        self.receiver = Engine10(attrs.evolve(base, **(receiver or {})), initial_id=initial_id)
        self.told: list[Event] = []
        self.heard: list[Event] = []
        self.run()
        self.outgoing, self.incoming = self.attach("link", request or {}, answer or {})
        if credit:
            self.receiver.execute(GrantCredit(self.incoming, credit))
        self.run()
        self.told.clear()
        self.heard.clear()

    def attach(
        self, name: str, request: dict[str, Any], answer: dict[str, Any]
    ) -> tuple[LinkId, LinkId]:
        """Attaches one more link; returns its ids at the sender and at the receiver."""
        own = AttachLink(
            link=next(self.ids),
            name=LinkName(name),
            role=Role.SENDER,
            source=Source(address="from"),
            target=Target(address="to"),
        )
        self.sender.execute(attrs.evolve(own, **request))
        self.run()
        event = self.heard[-1]
        assert isinstance(event, LinkAttached), event
        other = accepting(
            event,
            sender_settle_mode=event.sender_settle_mode,
            receiver_settle_mode=event.receiver_settle_mode,
        )
        self.receiver.execute(attrs.evolve(other, **answer))
        self.run()
        return own.link, event.link

    def run(self, now: float = 0.0) -> None:
        """Carries octets until both are silent."""
        told, heard = converse(self.sender, self.receiver, now)
        self.told += told
        self.heard += heard

    def send(self, *numbers: int, **changes: Any) -> None:
        """Has the sender send deliveries, and lets the engines talk."""
        self.order(SendDeliveries(self.outgoing, deliveries(*numbers, **changes)))

    def order(self, *commands: Command) -> None:
        """Has the sender carry out commands, and lets the engines talk."""
        for command in commands:
            self.sender.execute(command)
        self.run()

    def answer(self, *commands: Command) -> None:
        """Has the receiver carry out commands, and lets the engines talk."""
        for command in commands:
            self.receiver.execute(command)
        self.run()

    def take_heard(self) -> list[Event]:
        """Takes what the receiver's core was told."""
        heard, self.heard = self.heard, []
        return heard

    def take_told(self) -> list[Event]:
        """Takes what the sender's core was told."""
        told, self.told = self.told, []
        return told
