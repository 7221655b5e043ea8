"""The endpoints of one connection, and the indexes by name, number and id."""

from types import ModuleType
from typing import Final

import attrs

from router.model.condition import Condition
from router.model.events import AttachConfirmed, LinkDetached
from router.model.identity import LinkId
from router.model.terminus import Role
from router.wire.engine import EngineSettings
from router.wire.runs import Runs
from router.wire.v1_0.connection import Connection
from router.wire.v1_0.express import Express
from router.wire.v1_0.link import Link, OutgoingLink
from router.wire.v1_0.session import Session

SUSPENDED_LINKS: Final = 1024
"""Most detached links whose deliveries can still be settled; beyond it the oldest is dropped."""

MISSED_REQUESTS: Final = 1024
"""Most requests that ended before the core answered; the core answers soon, so few are open."""


@attrs.define(eq=False)
class Endpoints:
    """The state that the parts of an engine share.

    Attributes:
        settings: the engine's settings.
        connection: the one connection endpoint.
        runs: collects the events.
        states: the module with the classes of shared state; the express lane may have its own.
        express: the express lane; None: there is none.
        initial_id: the first transfer-id and delivery-id of each session, and the first
            delivery-count of each link.
        links: links that the core knows.
        suspended: links that are detached and have deliveries that can still be settled (§2.7.6).
        missed: requests from the peer that ended before the core has answered them.
        names: name and role → link, until its name is free again (§2.6.1).
        outgoing: our channel → session; the peer's channels are in the connection's state.
        due: sessions with dispositions or flows to send.
        credit_changes: sending links whose credit a command has changed.
        waiting_octets: payload in the links' queues.
        awaits_core: the core has not been told yet of a flow for a link on the lane. The lane reads
            nothing until then: a later flow that it took would be older to the core.
    """

    settings: EngineSettings
    connection: Connection
    runs: Runs
    states: ModuleType
    express: Express | None
    initial_id: int
    links: dict[LinkId, Link] = attrs.field(init=False, factory=dict)
    suspended: dict[LinkId, Link] = attrs.field(init=False, factory=dict)
    missed: dict[LinkId, None] = attrs.field(init=False, factory=dict)
    names: dict[tuple[str, Role], Link] = attrs.field(init=False, factory=dict)
    outgoing: dict[int, Session] = attrs.field(init=False, factory=dict)
    due: dict[Session, None] = attrs.field(init=False, factory=dict)
    credit_changes: dict[OutgoingLink, None] = attrs.field(init=False, factory=dict)
    waiting_octets: int = attrs.field(init=False, default=0)
    awaits_core: bool = attrs.field(init=False, default=False)

    def free_channel(self) -> int | None:
        """Returns the lowest unused channel that the peer allows; None: no channel is free."""
        remote = self.connection.remote
        channel = 0
        while channel in self.outgoing:
            channel += 1
        return channel if remote is not None and channel <= remote.channel_max else None

    def find(self, link: LinkId) -> Link | None:
        """Returns a link that commands about deliveries may refer to; None: unknown."""
        return self.links.get(link) or self.suspended.get(link)

    def live(self, link: LinkId) -> Link | None:
        """Returns a link that the core still considers attached; None: there is none."""
        found = self.links.get(link)
        return found if found is not None and found.is_live else None

    def confirm_attach(self, link: Link) -> None:
        """Emits ``AttachConfirmed``: the peer has read our attach."""
        link.is_asking = False
        self.runs.add(AttachConfirmed(link.link))

    def lose(
        self, link: Link, closed: bool, condition: Condition | None, *, is_numbered: bool = False
    ) -> None:
        """Reports to the core that a link that it knows is gone."""
        link.is_live = link.is_asking = False
        if self.links.pop(link.link, None) is not None:
            self.runs.add(LinkDetached(link.link, closed, condition, is_numbered))

    def report_credit(self) -> None:
        """Reports the credit that commands have changed to the core."""
        for link in self.credit_changes:
            if link.is_live:
                self.runs.add(link.granted())
        self.credit_changes.clear()

    def suspend(self, link: Link) -> Link | None:
        """Keeps a detached link for its unsettled deliveries; returns one to be dropped."""
        self.suspended[link.link] = link
        if len(self.suspended) <= SUSPENDED_LINKS:
            return None
        return self.suspended.pop(next(iter(self.suspended)))

    def miss(self, link: LinkId) -> None:
        """Records that a request has ended before the core answered it."""
        self.missed[link] = None
        if len(self.missed) > MISSED_REQUESTS:
            del self.missed[next(iter(self.missed))]

    def free_name(self, link: Link) -> None:
        """Frees a link's name, unless another link has taken it."""
        if self.names.get(link.key) is link:
            del self.names[link.key]
