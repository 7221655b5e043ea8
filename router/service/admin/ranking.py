"""What an overview shows first: routes and peers in trouble, then the busiest, idle ones last."""

import heapq
from collections.abc import Collection, Mapping
from itertools import chain
from typing import Final

import attrs
import trio

from router.core.snapshot import PeerRecord, RouteRecord
from router.core.survey import idle_record
from router.routes.route import Route
from router.service.admin.history import Moment, Rates
from router.service.admin.showing import route_state
from router.service.admin.views import RouteState
from router.service.route_list import RouteList

STEP_ROUTES: Final = 100
"""Routes that are looked at without a pause: less than a millisecond."""

BUSY_SHARE: Final = 1 / 3
"""Share of the places that routes in trouble leave to those with traffic."""

_TROUBLE: Final = (
    RouteState.STALLED,
    RouteState.BROKEN,
    RouteState.REJECTING,
    RouteState.WAITING,
    RouteState.PAUSED,
    RouteState.AWAY,
)
_BROKEN: Final = (RouteState.STALLED, RouteState.BROKEN, RouteState.REJECTING)


@attrs.frozen(kw_only=True)
class RouteWish:
    """Which routes somebody wants to see.

    Attributes:
        most: number of routes.
        idle_most: if there are more idle routes, none of them is wanted; None: all are.
        match: text in the name, address, from or to of a route; None: any.
    """

    most: int
    idle_most: int | None = None
    match: str | None = None

    def matches(self, route: RouteRecord | Route) -> bool:
        """Returns whether a route has the text."""
        if self.match is None:
            return True
        names = (route.name, route.address, str(route.from_ or ""), *map(str, route.to))
        wanted = self.match.lower()
        return any(wanted in name.lower() for name in names)


_Urgency = tuple[bool, int, float, int, bool]
_Ranked = tuple[_Urgency, RouteRecord]


async def survey_routes(
    routes: RouteList, moment: Moment, away: Collection[str], wish: RouteWish
) -> tuple[Mapping[RouteState, int], list[RouteRecord]]:
    """Counts all routes by state, and chooses those that are shown, the most urgent first.

    However many are in trouble, a third of the places is for the busiest of the others. What it
    costs depends on the routes that were used, or lead to a container that is away.

    Args:
        routes: all routes.
        moment: their rates.
        away: names of the containers that are not connected.
        wish: which of them are shown.
    """
    counts = dict.fromkeys(RouteState, 0)
    troubled: list[_Ranked] = []
    busy: list[_Ranked] = []
    quiet: list[_Ranked] = []
    unused = (routes.table.by_name[name] for name in routes.leading_to(away))
    leading_away = (idle_record(route) for route in unused if route.name not in routes.used)
    for number, route in enumerate(chain(routes.used.values(), leading_away), 1):
        rates = moment.routes.get(route.name)
        state = route_state(route, rates, away)
        counts[state] += 1
        if wish.matches(route):
            ranked = (urgency(route, state, rates), route)
            if state in _TROUBLE or route.in_doubt:
                troubled.append(ranked)
            else:
                (quiet if state is RouteState.IDLE else busy).append(ranked)
        if number % STEP_ROUTES == 0:
            await trio.lowlevel.checkpoint()
    counts[RouteState.IDLE] += len(routes) - sum(counts.values())
    has_idle = wish.idle_most is None or counts[RouteState.IDLE] <= wish.idle_most
    most_troubled = max(wish.most - len(busy), wish.most - int(BUSY_SHARE * wish.most))
    shown = _first(most_troubled, troubled)
    shown += _first(wish.most - len(shown), busy + quiet if has_idle else busy)
    if has_idle and len(shown) < wish.most:
        names = routes.leading_to(away)  # are no idle ones
        shown += routes.unused(
            wish.most - len(shown), lambda each: each.name not in names and wish.matches(each)
        )
    return {state: count for state, count in counts.items() if count}, shown


def _first(most: int, ranked: list[_Ranked]) -> list[RouteRecord]:
    return [route for _, route in heapq.nsmallest(most, ranked, key=lambda each: each[0])]


def urgency(route: RouteRecord, state: RouteState, rates: Rates | None) -> _Urgency:
    """Sort key of routes: what is broken or in doubt, other trouble, traffic, unsettled."""
    is_well = state not in _BROKEN and not route.in_doubt
    rank = _TROUBLE.index(state) if state in _TROUBLE else len(_TROUBLE)
    moved = 0.0 if rates is None else rates.received + rates.sent
    return is_well, rank, -moved, -route.incoming_unsettled, not (route.senders or route.receivers)


def weight(peer: PeerRecord) -> tuple[bool, int, int]:
    """Sort key of peers: those in trouble first, then those that hold most."""
    unsettled = peer.incoming_unsettled + peer.outgoing_unsettled
    return not (peer.congested or peer.held), -unsettled, -(peer.senders + peer.receivers)
