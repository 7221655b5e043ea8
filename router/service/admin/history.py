"""Rates, and samples of the last hour.

Theory of operation. Totals are remembered every ``SAMPLE_SECONDS`` (a *mark*); rates are the
differences between a snapshot and a mark over their interval. ``History.moment`` compares any
snapshot with a mark that is 2.5 to 7.5 s older, and returns the rates of all routes, of all peers
and of the router: they are of one interval, which ends with the snapshot, and the router's are the
sums of the routes'. Each worker has a clock of its own and is compared with itself; a worker that
the mark does not have, because it was started since or did not answer then, counts for nothing
until the next mark.

The mean time until an outcome is known follows from Little's law, ``unsettled / outcomes per
second``, averaged over the interval: it costs nothing per delivery, holds for every path of a
delivery through the router, and includes the receivers' time.
"""

import contextlib
from collections import deque
from collections.abc import Generator, Iterable, Mapping
from typing import Final

import attrs
import trio

from router.core.snapshot import PeerRecord, RouteRecord, Snapshot, Totals
from router.model.steps import at_once
from router.net.leisure import at_leisure
from router.service.control import WorkerSnapshot
from router.service.fleet import RouterControl, RouterSnapshot, SilentError

SAMPLE_SECONDS: Final = 5.0
KEPT_SECONDS: Final = 3600.0

LEAST_SECONDS: Final = SAMPLE_SECONDS / 2
"""Least interval of rates; over less, they would leap."""

STEP_ROUTES: Final = 100
"""Routes handled without a pause: less than a millisecond."""


@attrs.frozen(kw_only=True)
class Rates:
    """Rates of one route or of all routes, per second.

    Attributes:
        received, sent: deliveries.
        received_octets, sent_octets: octets of payload.
        outcomes: outcomes sent to senders, or that no sender waited for.
        outcome_seconds: mean time until an outcome was known; None: there was no outcome.
    """

    received: float
    sent: float
    received_octets: float
    sent_octets: float
    outcomes: float
    outcome_seconds: float | None


@attrs.frozen(kw_only=True)
class Sample:
    """Totals of all routes at one time.

    Attributes:
        at: seconds since 1970.
        unsettled: deliveries received whose outcome has not been sent to the sender.
        oldest_seconds: age of the oldest of these.
        lag_seconds: the worst lag of an event loop during the last seconds.
    """

    at: float
    rates: Rates
    unsettled: int
    queued: int
    in_doubt: int
    oldest_seconds: float | None
    lag_seconds: float


@attrs.frozen(kw_only=True)
class PeerRates:
    """Deliveries per second received from one container, and sent to it."""

    received: float
    sent: float


@attrs.frozen(kw_only=True)
class Moment:
    """Rates over the interval that ends with a snapshot.

    Attributes:
        total: the sums over the routes; None: not known yet.
        routes: by name.
        peers: by container and whether it is configured.
    """

    total: Rates | None = None
    routes: Mapping[str, Rates] = attrs.field(factory=dict)
    peers: Mapping[tuple[str, bool], PeerRates] = attrs.field(factory=dict)


_Counts = tuple[int, int, int, int, int, int]
"""Of one route: received, sent, received octets, sent octets, outcomes, unsettled."""

_NOTHING: Final[_Counts] = (0, 0, 0, 0, 0, 0)


@attrs.frozen
class _WorkerMark:
    """Totals of one worker at one time on its clock."""

    at: float
    routes: Mapping[str, _Counts]
    peers: Mapping[tuple[str, bool], tuple[int, int]]


@attrs.frozen
class _Mark:
    """Totals of the workers at one time, by number and process."""

    workers: Mapping[tuple[int, int], _WorkerMark]

    def seconds_since(self, before: "_Mark") -> float:
        """Returns the interval between two marks; 0: they have no worker in common."""
        intervals = (
            worker.at - before.workers[key].at
            for key, worker in self.workers.items()
            if key in before.workers
        )
        return max(intervals, default=0.0)


_Steps = Generator[None, None, Moment]


@attrs.define(eq=False)
class History:
    """Keeps samples and the last marks.

    Attributes:
        samples: those of the last hour, oldest first.
    """

    samples: deque[Sample] = attrs.field(
        factory=lambda: deque(maxlen=round(KEPT_SECONDS / SAMPLE_SECONDS)), init=False
    )
    _marks: deque[_Mark] = attrs.field(factory=lambda: deque(maxlen=2), init=False)
    _last: tuple[Snapshot, Moment] | None = attrs.field(default=None, init=False)

    async def run(self, control: RouterControl) -> None:
        """Takes samples until cancelled; traffic goes on while a sample is processed."""
        while True:
            with contextlib.suppress(SilentError):  # shows as a gap in the plot
                await at_leisure(self._sample(await control.snapshot()))
            await trio.sleep(SAMPLE_SECONDS)

    def add(self, snapshot: RouterSnapshot) -> Moment:
        """Adds a sample without a pause, and returns its rates."""
        return at_once(self._sample(snapshot))

    async def moment(self, snapshot: RouterSnapshot) -> Moment:
        """Returns the rates at a snapshot; the same again for the same survey of the workers."""
        if self._last is None or self._last[0] is not snapshot.core:
            self._last = (snapshot.core, await at_leisure(self._moment(snapshot)))
        return self._last[1]

    def _moment(self, snapshot: RouterSnapshot) -> _Steps:
        if not self._marks:
            return Moment()
        mark = yield from _mark(snapshot)
        newest, oldest = self._marks[-1], self._marks[0]
        is_long = mark.seconds_since(newest) >= LEAST_SECONDS
        return (yield from _compare(newest if is_long else oldest, mark))

    def _sample(self, snapshot: RouterSnapshot) -> _Steps:
        mark = yield from _mark(snapshot)
        moment = Moment()
        if self._marks:
            before = self._marks[-1]
            if mark.workers.keys() == before.workers.keys() and not mark.seconds_since(before):
                return moment  # the same snapshot again
            moment = yield from _compare(before, mark)
        if moment.total is not None:
            unsettled = sum(route.incoming_unsettled for route in snapshot.core.routes)
            self.samples.append(_sample(snapshot, moment.total, unsettled))
        self._marks.append(mark)
        return moment


def _mark(snapshot: RouterSnapshot) -> Generator[None, None, _Mark]:
    """Remembers a snapshot's totals, yielding after each ``STEP_ROUTES``."""
    workers = {}
    for worker in snapshot.workers:
        routes: dict[str, _Counts] = {}
        for number, route in enumerate(worker.core.routes, 1):
            routes[route.name] = _count(route)
            if number % STEP_ROUTES == 0:
                yield
        workers[(worker.worker, worker.vitals.process)] = _worker_mark(worker, routes)
    return _Mark(workers)


def _worker_mark(worker: WorkerSnapshot, routes: Mapping[str, _Counts]) -> _WorkerMark:
    peers = {key_of(each): _count_peer(each) for each in worker.core.peers}
    return _WorkerMark(worker.core.at, routes, peers)


def _compare(before: _Mark, now: _Mark) -> _Steps:
    """Computes rates, yielding after each ``STEP_ROUTES``."""
    routes: dict[str, list[float]] = {}
    peers: dict[tuple[str, bool], list[float]] = {}
    is_known = False
    for key, worker in now.workers.items():
        was = before.workers.get(key)
        if was is None or worker.at <= was.at:
            continue
        is_known = True
        seconds = worker.at - was.at
        for number, (name, counts) in enumerate(worker.routes.items(), 1):
            sums = routes.setdefault(name, [0.0] * len(_NOTHING))
            _add_rates(sums, was.routes.get(name, _NOTHING), counts, seconds)
            if number % STEP_ROUTES == 0:
                yield
        for peer, (received, sent) in worker.peers.items():
            before_received, before_sent = was.peers.get(peer, (0, 0))
            moved = peers.setdefault(peer, [0.0, 0.0])
            moved[0] += max(0, received - before_received) / seconds
            moved[1] += max(0, sent - before_sent) / seconds
    if not is_known:
        return Moment()
    total = map(sum, zip(*routes.values(), strict=True)) if routes else _NOTHING
    return Moment(
        total=_rates(total),
        routes={name: _rates(sums) for name, sums in routes.items()},
        peers={key: PeerRates(received=moved[0], sent=moved[1]) for key, moved in peers.items()},
    )


def _add_rates(sums: list[float], before: _Counts, now: _Counts, seconds: float) -> None:
    for place in range(5):
        if now[place] > before[place]:
            sums[place] += (now[place] - before[place]) / seconds
    sums[5] += (before[5] + now[5]) / 2


def _rates(sums: Iterable[float]) -> Rates:
    received, sent, received_octets, sent_octets, outcomes, unsettled = sums
    return Rates(
        received=received,
        sent=sent,
        received_octets=received_octets,
        sent_octets=sent_octets,
        outcomes=outcomes,
        outcome_seconds=unsettled / outcomes if outcomes else None,
    )


def _sample(snapshot: RouterSnapshot, rates: Rates, unsettled: int) -> Sample:
    routes = snapshot.core.routes
    oldest = [route.oldest_seconds for route in routes if route.oldest_seconds is not None]
    return Sample(
        at=snapshot.at,
        rates=rates,
        unsettled=unsettled,
        queued=sum(route.queued for route in routes),
        in_doubt=sum(route.in_doubt for route in routes),
        oldest_seconds=max(oldest, default=None),
        lag_seconds=max((worker.vitals.lag_seconds for worker in snapshot.workers), default=0.0),
    )


def outcomes(totals: Totals) -> int:
    """Counts the deliveries of one direction whose outcome is known."""
    unsettled = totals.accepted + totals.rejected + totals.released + totals.modified
    return unsettled + totals.settled


def _count(route: RouteRecord) -> _Counts:
    return (
        route.received.deliveries,
        route.sent.deliveries,
        route.received.octets,
        route.sent.octets,
        outcomes(route.received),
        route.incoming_unsettled,
    )


def _count_peer(peer: PeerRecord) -> tuple[int, int]:
    return peer.received.deliveries, peer.sent.deliveries


def key_of(peer: PeerRecord) -> tuple[str, bool]:
    """Returns the key of a peer's rates."""
    return peer.container, peer.is_configured
