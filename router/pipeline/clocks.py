"""Clocks of routers, compared by the deliveries that they handed to each other.

A router records when it sent a delivery, and the next when it received it, each by its own clock.
A transfer takes time, so the difference is at least the *offset* of the second clock from the
first. The outcome goes the other way and gives the other bound::

    east  ---- SENT --------------------------- OUTCOME ----        all deliveries of the pair:
                  \\                           /                     most of (f - o) <= offset
    west  --------- RECEIVED ... OUTCOME -----                      offset <= least of (r - s)
                    r            f

Bounds are merged with minimum and maximum, so it does not matter in which runs deliveries were
read. Bounds that contradict each other mean that a clock was set meanwhile: then the offset is
taken to be anywhere between them.

Times are corrected by the middle of the bounds, but by nothing where the clocks may agree: most are
kept by NTP, closer to each other than an outcome tells.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import attrs

APART_NS: Final = 3600 * 1_000_000_000
"""How far apart two clocks are taken to be of which nothing is known."""


@attrs.frozen(kw_only=True)
class Handovers:
    """What deliveries show about a pair of routers.

    Attributes:
        sender, receiver: their ids.
        has_sent: the first recorded a delivery as sent to the second.
        has_received: the second recorded one as received from the first.
        has_shared: both recorded the same delivery, under the same key.
        is_trusting: the first recorded that it trusts the second as a router.
        is_trusted: the second recorded the same of the first.
        most_ns: upper bound of the offset; None: none.
        least_ns: lower bound.
    """

    sender: str
    receiver: str
    has_sent: bool = False
    has_received: bool = False
    has_shared: bool = False
    is_trusting: bool = False
    is_trusted: bool = False
    most_ns: int | None = None
    least_ns: int | None = None

    @property
    def are_strangers(self) -> bool:
        """Whether the second gives the deliveries keys of its own.

        Ledgers of earlier versions do not say who trusts whom; their deliveries show it.
        """
        shares = self.has_shared or (self.is_trusting and self.is_trusted)
        return self.has_sent and self.has_received and not shares

    @property
    def offset_ns(self) -> tuple[int, int]:
        """The second clock minus the first, at least and at most."""
        if self.most_ns is None:
            return -APART_NS, APART_NS
        least = self.most_ns if self.least_ns is None else self.least_ns
        return min(least, self.most_ns), max(least, self.most_ns)

    def merged(self, other: "Handovers") -> "Handovers":
        """Returns what both show."""
        return attrs.evolve(
            self,
            has_sent=self.has_sent or other.has_sent,
            has_received=self.has_received or other.has_received,
            has_shared=self.has_shared or other.has_shared,
            is_trusting=self.is_trusting or other.is_trusting,
            is_trusted=self.is_trusted or other.is_trusted,
            most_ns=_given(min, self.most_ns, other.most_ns),
            least_ns=_given(max, self.least_ns, other.least_ns),
        )


def _given(choose: Callable[[list[int]], int], one: int | None, other: int | None) -> int | None:
    values = [each for each in (one, other) if each is not None]
    return choose(values) if values else None


@attrs.frozen(kw_only=True)
class Clock:
    """A router's clock.

    Attributes:
        reference: router with which it was compared, over others if need be.
        ahead_ns: how far it is ahead of the reference's.
        within_ns: how far the true value may be from that.
    """

    router: str
    reference: str
    ahead_ns: int
    within_ns: int


def merge_handovers(*sources: Iterable[Handovers]) -> dict[tuple[str, str], Handovers]:
    """Merges what is known of each pair."""
    found: dict[tuple[str, str], Handovers] = {}
    for source in sources:
        for each in source:
            pair = (each.sender, each.receiver)
            found[pair] = found[pair].merged(each) if pair in found else each
    return found


def clocks_of(
    routers: Iterable[str], handovers: Mapping[tuple[str, str], Handovers]
) -> dict[str, Clock]:
    """Compares the clocks of routers that handed deliveries to each other, even over others."""
    next_to: dict[str, list[tuple[str, int, int]]] = {}
    for (one, other), each in handovers.items():
        if each.has_shared and each.most_ns is not None:
            least, most = each.offset_ns
            next_to.setdefault(one, []).append((other, least, most))
            next_to.setdefault(other, []).append((one, -most, -least))
    clocks: dict[str, Clock] = {}
    for root in sorted(routers):
        if root in clocks:
            continue
        clocks[root] = Clock(router=root, reference=root, ahead_ns=0, within_ns=0)
        waiting = [root]
        while waiting:
            here = clocks[waiting.pop(0)]
            for router, least, most in sorted(next_to.get(here.router, ())):
                if router not in clocks:
                    likely = 0 if least <= 0 <= most else (least + most) // 2
                    clocks[router] = Clock(
                        router=router,
                        reference=root,
                        ahead_ns=here.ahead_ns + likely,
                        within_ns=here.within_ns + max(most - likely, likely - least),
                    )
                    waiting.append(router)
    return clocks
