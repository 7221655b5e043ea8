"""Totals that outlive links, so that counters never go back.

A link's tally counts for its route as long as the link is there, attached or suspended; when it
is gone its tally is added to the route's, and the link is given that one, for what may still be
counted on it. For a configured container it counts attachment by attachment: a link that resumes
on another connection must not count twice. Links to other workers count for no route: what crosses
them comes to the router, and leaves it, elsewhere.
"""

import attrs

from router.core.node import Feed, Node
from router.core.reach import is_sibling_name
from router.core.snapshot import ANONYMOUS, DYNAMIC, Totals
from router.links.link import IncomingLink, Link, OutgoingLink, Tally


@attrs.define(eq=False)
class Passed:
    """Totals of both directions, as we see them."""

    received: Tally = attrs.field(factory=Tally)
    sent: Tally = attrs.field(factory=Tally)

    def of(self, link: Link) -> Tally:
        """Returns the totals of a link's direction."""
        return self.received if isinstance(link, IncomingLink) else self.sent


@attrs.frozen
class Addition:
    """What one link has added to which totals."""

    totals: Passed
    link: Link
    tally: Tally


ADDITIONS_MOST = 10_000
"""Additions that are remembered between surveys; without surveys they would pile up."""


class Retired:
    """What links that are gone have done.

    Attributes:
        routes: by the route's name.
        containers: by the configured name.
        additions: what was added since a survey began, to which totals.
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
        """Records that a link, which may come back, has lost its connection."""
        connection = link.connection
        if connection is None or connection.configured is None:
            return
        since = attrs.evolve(self.since_counted(link))
        self._add(self.containers, connection.configured, link, since)
        self._counted[link] = attrs.evolve(link.tally)
        if is_sibling_name(connection.configured):
            self._far.add(link)

    def is_far(self, link: Link) -> bool:
        """Returns whether a link that is away, and may come back, led to another worker."""
        return link in self._far

    def gone(self, link: Link) -> None:
        """Records that a link will not come back."""
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
        """Returns what a link has done that is not yet among its container's totals."""
        counted = self._counted.get(link)
        if counted is None:
            return link.tally
        since = attrs.evolve(link.tally)
        subtract(since, counted)
        return since


def node_of(link: Link) -> Node | None:
    """Returns the node of a link; None for the anonymous terminus, and for a link that is gone."""
    if isinstance(link, OutgoingLink):
        return link.group if isinstance(link.group, Node) else None
    if link.address is None or not isinstance(link.queue, Feed):
        return None
    return link.queue.node


def route_name(link: Link) -> str:
    """Returns the name of a link's route, or what stands for it."""
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
    )
