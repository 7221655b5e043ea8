"""Rates, and samples of the last hour.

Theory of operation. Totals are sampled every ``SAMPLE_SECONDS``; a rate is the difference of two
samples over their interval. The mean time until an outcome is known follows from Little's law,
``unsettled / outcomes per second``, averaged over the interval: it costs nothing per delivery,
holds for every path of a delivery through the router, and includes the receivers' time.
"""

import contextlib
from collections import deque
from collections.abc import Iterator, Mapping
from operator import add, attrgetter
from typing import Final

import attrs
import trio

from router.core.snapshot import RouteRecord, Totals
from router.service.fleet import RouterControl, RouterSnapshot, SilentError

SAMPLE_SECONDS: Final = 5.0
KEPT_SECONDS: Final = 3600.0

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


@attrs.frozen
class _Counts:
    received: int
    sent: int
    received_octets: int
    sent_octets: int
    outcomes: int
    unsettled: int


_numbers: Final = attrgetter(*(field.name for field in attrs.fields(_Counts)))


@attrs.define(eq=False)
class History:
    """Keeps samples.

    Attributes:
        samples: those of the last hour, oldest first.
        rates: rates of the last interval, by route.
    """

    samples: deque[Sample] = attrs.field(
        factory=lambda: deque(maxlen=round(KEPT_SECONDS / SAMPLE_SECONDS)), init=False
    )
    rates: Mapping[str, Rates] = attrs.field(factory=dict, init=False)
    _before: dict[str, _Counts] = attrs.field(factory=dict, init=False)
    _total_before: _Counts | None = attrs.field(default=None, init=False)
    _at: float = attrs.field(default=0.0, init=False)

    async def run(self, control: RouterControl) -> None:
        """Takes samples until cancelled; traffic goes on while a sample is processed."""
        while True:
            with contextlib.suppress(SilentError):  # shows as a gap in the plot
                for _ in self._steps(await control.snapshot()):
                    await trio.lowlevel.checkpoint()
            await trio.sleep(SAMPLE_SECONDS)

    def add(self, snapshot: RouterSnapshot) -> None:
        """Adds a snapshot without a pause."""
        for _ in self._steps(snapshot):
            pass

    def _steps(self, snapshot: RouterSnapshot) -> Iterator[None]:
        """Handles a snapshot, yielding after each ``STEP_ROUTES``."""
        seconds = snapshot.core.at - self._at
        if self._total_before is not None and seconds <= 0:
            return  # the same snapshot again
        counts: dict[str, _Counts] = {}
        rates: dict[str, Rates] = {}
        total = [0] * len(attrs.fields(_Counts))
        for number, route in enumerate(snapshot.core.routes, 1):
            now = counts[route.name] = _count(route)
            total = list(map(add, total, _numbers(now)))
            before = self._before.get(route.name)
            if before is not None:
                rates[route.name] = _rates(before, now, seconds)
            if number % STEP_ROUTES == 0:
                yield
        summed = _Counts(*total)
        if self._total_before is not None:
            moved = _rates(self._total_before, summed, seconds)
            self.rates = rates
            self.samples.append(_sample(snapshot, moved, summed.unsettled))
        self._before, self._total_before, self._at = counts, summed, snapshot.core.at


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
    return _Counts(
        received=route.received.deliveries,
        sent=route.sent.deliveries,
        received_octets=route.received.octets,
        sent_octets=route.sent.octets,
        outcomes=outcomes(route.received),
        unsettled=route.incoming_unsettled,
    )


def _rates(before: _Counts, now: _Counts, seconds: float) -> Rates:
    def rate(was: int, has_become: int) -> float:
        return max(0, has_become - was) / seconds

    outcome_rate = rate(before.outcomes, now.outcomes)
    unsettled = (before.unsettled + now.unsettled) / 2
    return Rates(
        received=rate(before.received, now.received),
        sent=rate(before.sent, now.sent),
        received_octets=rate(before.received_octets, now.received_octets),
        sent_octets=rate(before.sent_octets, now.sent_octets),
        outcomes=outcome_rate,
        outcome_seconds=unsettled / outcome_rate if outcome_rate else None,
    )
