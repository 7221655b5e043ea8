"""The machine that looks for addresses of a container, without moving a message.

Theory of operation. Each address is attached to and detached again. No link is given credit, and
none of ours sends. A few are looked for at a time, because links of some protocols are channels, of
which a peer permits few. Protocols before AMQP 1.0 whose peers make queues and exchanges
(``Capabilities.declares``) ask for the node passively when a *sender* attaches, and make, bind or
subscribe nothing; a receiver may bind a queue of its own. So at such peers all addresses are looked
for as a sender's.

AMQP 1.0 has no passive attach: a peer may make a node that is attached to. RabbitMQ does for names
without a slash, but not for ``/amq/queue/NAME``, so there the same queue is looked for by that name
(``passive_name``; of a target it does not say whether it is there). Artemis makes what its
address-settings let it make, and deletes that again.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import attrs

from router.model.commands import AttachLink, Command, DetachLink
from router.model.condition import CONNECTION_REDIRECT, Condition
from router.model.events import (
    ConnectionClosed,
    ConnectionOpened,
    Event,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import ContainerId, LinkId, LinkName
from router.model.terminus import (
    ALL_OUTCOMES,
    Role,
    SenderSettleMode,
    Source,
    Target,
)
from router.net.client.report import Report

RABBITMQ: Final = "RabbitMQ"
"""The property ``product`` of its open."""

MOST: Final = 16
"""Addresses that are looked for at a time."""


@attrs.frozen
class Sought:
    """An address to look for.

    Attributes:
        role: our end's role on the links that lead there.
        capabilities: what the route asks of the terminus there. Its filters and properties are not
            asked for: they may lock a session, or take a partition from its reader.
    """

    address: str
    role: Role
    capabilities: tuple[str, ...] = ()


def passive_name(address: str, opened: ConnectionOpened) -> str | None:
    """Returns the name under which a peer looks for a queue that it would make under its own.

    Returns:
        None: it makes nothing that it finds missing, as far as is known.
    """
    is_basic = opened.capabilities.declares
    if is_basic or opened.properties.get("product") != RABBITMQ or "/" in address:
        return None
    return f"/amq/queue/{address}"


@attrs.define(eq=False)
class Probe:
    """Looks for addresses over one connection; a ``LinkMachine``.

    Attributes:
        sought: what to look for.
        link_ids: gives ids that no other link of the connection has.
        name: begins the names of the links, so that they are nobody else's.
        opened: the peer's open; None: it has not come.
        found: what was looked for, each with the reason why it is not there; None: it is.
    """

    sought: Sequence[Sought]
    link_ids: Iterator[LinkId]
    name: str
    report: Report = attrs.field(factory=Report)
    frame_octets: int = 0
    peer: ContainerId | None = None
    moved: Condition | None = None
    failure: Condition | None = None
    interruption: str | None = None
    opened: ConnectionOpened | None = attrs.field(default=None, init=False)
    found: dict[Sought, Condition | None] = attrs.field(factory=dict, init=False)
    _left: list[Sought] = attrs.field(init=False)
    _asked: dict[LinkId, Sought] = attrs.field(factory=dict, init=False)
    _attached: list[LinkId] = attrs.field(factory=list, init=False)

    def __attrs_post_init__(self) -> None:
        self._left = [*self.sought]

    @property
    def is_done(self) -> bool:
        """Whether everything was looked for, or the peer refuses the connection."""
        if self.failure is not None:
            return True
        return self.opened is not None and not (self._left or self._asked or self._attached)

    def attach(self, link_ids: Iterator[LinkId]) -> list[Command]:
        """Begins to look, on a connection that has just opened."""
        return []

    def handle(self, events: Sequence[Event]) -> list[Command]:
        """Handles answers."""
        for event in events:
            match event:
                case ConnectionOpened():
                    self.opened = event
                case ConnectionClosed(condition=condition, by_peer=True) if (
                    condition is not None and condition.name == CONNECTION_REDIRECT
                ):
                    self.failure = condition
                case LinkAttached(link=link, is_answer=True):
                    terminus = event.target if event.role is Role.SENDER else event.source
                    if terminus is not None and link in self._asked:
                        self.found[self._asked.pop(link)] = None
                        self._attached.append(link)
                case LinkDetached(link=link, condition=condition) if link in self._asked:
                    said = condition or Condition("amqp:not-found", "detached without a reason")
                    self.found[self._asked.pop(link)] = said
                case LinkDetached(link=link) if link in self._attached:
                    self._attached.remove(link)
                case _:
                    pass
        return []

    def pull(self) -> list[Command]:
        """Detaches what was found, and looks for more."""
        commands: list[Command] = [DetachLink(link, closed=True) for link in self._attached]
        self._attached.clear()
        while self._left and len(self._asked) < MOST:
            commands.append(self._look_for(self._left.pop(0)))
        return commands

    def finish(self) -> list[Command]:
        """Detaches whatever is attached."""
        commands: list[Command] = [DetachLink(link, closed=True) for link in self._attached]
        self._attached.clear()
        return commands

    def _look_for(self, sought: Sought) -> AttachLink:
        assert self.opened is not None, "it was opened before it is asked for more"
        link = next(self.link_ids)
        self._asked[link] = sought
        is_sender = sought.role is Role.SENDER or self.opened.capabilities.declares
        name = f"{self.name}:{link}"
        address = passive_name(sought.address, self.opened) or sought.address
        return AttachLink(
            link=link,
            name=LinkName(name),
            role=Role.SENDER if is_sender else Role.RECEIVER,
            source=Source(
                address=name if is_sender else address,
                outcomes=ALL_OUTCOMES,
                capabilities=() if is_sender else sought.capabilities,
            ),
            target=Target(
                address=address if is_sender else name,
                capabilities=sought.capabilities if is_sender else (),
            ),
            sender_settle_mode=SenderSettleMode.MIXED if is_sender else SenderSettleMode.UNSETTLED,
        )
