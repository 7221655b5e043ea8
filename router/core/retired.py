"""Totals that outlive links, so that counters never go back.

A link's tally counts for its route as long as the link exists, attached or suspended. When the link
ends, its tally is added to the route's, and the link uses the route's tally for whatever is still
counted on it. For a configured container it counts attachment by attachment: a link that resumes
on another connection must not count twice. Links to other workers count for no route: their
deliveries enter and leave the router on other links.
"""

import attrs

from router.core.node import Feed, Node
from router.core.reach import is_sibling_name
from router.core.snapshot import ANONYMOUS, DYNAMIC, Totals
from router.links.link import IncomingLink, Link, OutgoingLink, Tally


@attrs.define(eq=False)
class Passed:
    """Totals of both directions: incoming and outgoing."""

    received: Tally = attrs.field(factory=Tally)
    sent: Tally = attrs.field(factory=Tally)

    def of(self, link: Link) -> Tally:
        """Returns the totals of a link's direction."""
        return self.received if isinstance(link, IncomingLink) else self.sent


@attrs.frozen
class Addition:
    """A tally that one link has added to a total."""

    totals: Passed
    link: Link
    tally: Tally


ADDITIONS_MOST = 10_000
"""The most additions kept between surveys; without surveys they would pile up."""


class Retired:
    """Totals of ended links.

    Attributes:
        routes: by the route's name.
        containers: by the configured name.
        additions: made since a survey began.
    """

    def __init__(self) -> None:
        self.routes: dict[str, Passed] = {}
        self.containers: dict[str, Passed] = {}
        self.additions: list[Addition] = []
        self._counted: dict[Link, Tally] = {}
        self._far: set[Link] = set()

    def survey_begins(self) -> None:
        """Begins a new list of additions."""
        self.additions.clear()

    def detached(self, link: Link) -> None:
        """Records that a link, which may be resumed, has lost its connection."""
        connection = link.connection
        if connection is None or connection.configured is None:
            return
        since = attrs.evolve(self.since_counted(link))
        self._add(self.containers, connection.configured, link, since)
        self._counted[link] = attrs.evolve(link.tally)
        if is_sibling_name(connection.configured):
            self._far.add(link)

    def is_far(self, link: Link) -> bool:
        """Returns whether a suspended link led to another worker."""
        return link in self._far

    def gone(self, link: Link) -> None:
        """Records that a link has ended."""
        self._counted.pop(link, None)
        if link in self._far:
            self._far.remove(link)
        else:
            link.tally = self._add(self.routes, route_name(link), link, link.tally)

    def _add(self, totals: dict[str, Passed], name: str, link: Link, tally: Tally) -> Tally:
        passed = totals.setdefault(name, Passed())
        add(passed.of(link), tally)
        if len(self.additions) < ADDITIONS_MOST:
            self.additions.append(Addition(passed, link, tally))
        return passed.of(link)

    def since_counted(self, link: Link) -> Tally:
        """Returns the part of a link's tally that its container's totals lack."""
        counted = self._counted.get(link)
        if counted is None:
            return link.tally
        since = attrs.evolve(link.tally)
        subtract(since, counted)
        return since


def node_of(link: Link) -> Node | None:
    """Returns the node of a link; None for the anonymous terminus, and for an ended link."""
    if isinstance(link, OutgoingLink):
        return link.group if isinstance(link.group, Node) else None
    if link.address is None or not isinstance(link.queue, Feed):
        return None
    return link.queue.node


def route_name(link: Link) -> str:
    """Returns the name of a link's route, or the name used for links without one."""
    node = node_of(link)
    if node is None:
        return ANONYMOUS
    return DYNAMIC if node.is_dynamic else node.route.name


def add(total: Tally, tally: Tally) -> None:
    """Adds a tally to another; written out, since it runs for every link of a snapshot."""
    total.deliveries += tally.deliveries
    total.octets += tally.octets
    total.settled += tally.settled
    total.accepted += tally.accepted
    total.rejected += tally.rejected
    total.released += tally.released
    total.modified += tally.modified
    total.expired += tally.expired
    total.redelivered += tally.redelivered
    total.dropped += tally.dropped
    total.unroutable += tally.unroutable
    total.fallback += tally.fallback


def subtract(total: Tally, tally: Tally) -> None:
    """Subtracts a tally from another."""
    for field in attrs.fields(Tally):
        setattr(total, field.name, getattr(total, field.name) - getattr(tally, field.name))


def as_totals(tally: Tally) -> Totals:
    """Returns a tally's record."""
    return Totals(
        deliveries=tally.deliveries,
        octets=tally.octets,
        settled=tally.settled,
        accepted=tally.accepted,
        rejected=tally.rejected,
        released=tally.released,
        modified=tally.modified,
        expired=tally.expired,
        redelivered=tally.redelivered,
        dropped=tally.dropped,
        unroutable=tally.unroutable,
        fallback=tally.fallback,
    )
