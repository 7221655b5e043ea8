"""What it costs that an exactly-once delivery crosses between two workers.

::

    python -m tests.bench.crossing [seconds] [runs]

Both ends of an exactly-once address have the same home, the address's (``core.homes``), so a
delivery has one home and never two. What crosses is a link whose client is connected to another
worker than its home: that worker leads it through (``core.passage``), and each of its deliveries,
their outcomes and their settlement pass both. So a delivery crosses once if the sender's connection
or the receiver's is elsewhere, and twice if both are.

Which worker accepts a connection is the system's choice. The router keeps a connection at the home
of its first link; its other links stay where it is. So each client here attaches two links: the
first does nothing, and its address says which worker has the connection; the second one's address
says which is its home. All cases are alike in that: a connection is handed over before its first
link is attached, so what that costs is in none of them. After each load the router is asked
where every link was, and by which connection it came; a link that was elsewhere than its case says
is an error.

Processor time is that of all processes, the journal's included, while messages flow, as in
``tests.bench.workers``, and there are four programs of four pairs. They are at all homes, so each
worker is home and leads through as much as the others.
"""

import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import attrs

from tests.bench.listed import ADMIN, listed
from tests.bench.measure import Conditions, Figures
from tests.bench.workers import GROUP, Cost, Setting, cost_of, loaded, options, serving
from tests.support.running import RunningRouter

PROGRAMS: Final = 4


@attrs.frozen
class Way:
    """Where the connections of a delivery's sender and receiver are: so many workers from its home.

    With two workers every other one is the same.
    """

    sender: int
    receiver: int

    @property
    def crossings(self) -> int:
        """How often each delivery crosses."""
        return bool(self.sender) + bool(self.receiver)

    def worker(self, home: int, workers: int, *, is_receiver: bool) -> int:
        """Returns the worker that has a connection of an address with this home."""
        further = self.receiver if is_receiver else self.sender
        return (home - 1 + further) % workers + 1


HOME = "at home"
BOTH = "both elsewhere"

WAYS: Final[Mapping[int, Mapping[str, Way]]] = {
    2: {
        HOME: Way(0, 0),
        "sender elsewhere": Way(1, 0),
        "receiver elsewhere": Way(0, 1),
        BOTH: Way(1, 1),
    },
    4: {
        HOME: Way(0, 0),
        "sender elsewhere": Way(1, 0),
        "receiver elsewhere": Way(0, 1),
        BOTH: Way(1, 2),
    },
}
"""By the number of workers."""


@attrs.frozen
class Place:
    """What a program's links have in common.

    Attributes:
        addresses: of them.
        home: of all of these.
        sends, takes: the workers that have the connections of senders, and of receivers.
    """

    addresses: frozenset[str]
    home: int
    sends: int
    takes: int


def misplaced(
    place: Place, links: Iterable[Mapping[str, Any]], connections: Iterable[Mapping[str, Any]]
) -> list[str]:
    """Returns what is elsewhere than a case says, or has brought nothing.

    Args:
        place: of one program, whose links are attached.
        links, connections: what the router has listed.
    """
    known = {(each["worker"], each["connection"]): each for each in connections}
    found: list[str] = []
    seen = 0
    for link in links:
        if link["address"] not in place.addresses or link["connection"] is None:
            continue
        seen += 1
        connection = known[link["worker"], link["connection"]]
        sibling = str(connection["configured"] or "")
        at = int(sibling[1:]) if sibling.startswith("/") else connection["worker"]
        is_receiver = link["role"] == "sender"  # the router's end
        due = place.takes if is_receiver else place.sends
        end = f"the {'receiver' if is_receiver else 'sender'} of {link['address']}"
        if link["worker"] != place.home:
            found.append(f"{end} has its home at worker {link['worker']}, not {place.home}")
        if at != due:
            found.append(f"{end} is connected to worker {at}, not {due}")
        if not link["totals"]["deliveries"]:
            found.append(f"{end} has no deliveries")
    if seen != 2 * len(place.addresses):
        found.append(f"{seen} links are attached, not {2 * len(place.addresses)}")
    return found


def measure_way(router: RunningRouter, workers: int, way: Way, seconds: float) -> Cost:
    """Measures exactly-once deliveries whose clients are connected as said.

    Raises:
        RuntimeError: a link was not where it should have been.
    """
    places, commands = [], []
    for number in range(PROGRAMS):
        home = number % workers + 1
        sends = way.worker(home, workers, is_receiver=False)
        takes = way.worker(home, workers, is_receiver=True)
        names = _names_at(home, workers)
        places.append(Place(frozenset(names % at for at in range(GROUP)), home, sends, takes))
        first = {
            "first_send": _names_at(sends, workers) % 0,
            "first_take": _names_at(takes, workers) % 0,
        }
        commands.append(options(router, GROUP, seconds, settle="second", address=names, **first))
    with loaded(*commands) as loads:
        cost = cost_of(loads, router)
        links, connections = list(listed(router, "links")), list(listed(router, "connections"))
        for place in places:
            if wrong := misplaced(place, links, connections):
                raise RuntimeError("; ".join(wrong))
    return cost


def _names_at(home: int, workers: int) -> str:
    return Setting(workers=workers, homes="all", at=home).names(0)


def compare(
    workers: int, ways: Mapping[str, Way], seconds: float, runs: int
) -> dict[str, Sequence[Cost]]:
    """Measures several ways at one router, by turns."""
    found: dict[str, list[Cost]] = {name: [] for name in ways}
    promise = "    guarantee: exactly-once\n"
    with serving(workers, more=", homes: all", route=promise, admin=ADMIN) as router:
        for _ in range(runs):
            for name, way in ways.items():
                found[name].append(measure_way(router, workers, way, seconds))
    return dict(found)


def least_us(costs: Sequence[Cost]) -> float:
    """Returns the least processor time of a delivery: others who use the machine only add to it."""
    return min(cost.all_us for cost in costs)


def crossing_us(found: Mapping[str, Sequence[Cost]]) -> float:
    """Returns what one crossing costs a delivery, by those that cross twice."""
    return (least_us(found[BOTH]) - least_us(found[HOME])) / 2


def measure_crossing(conditions: Conditions) -> Figures:
    """Measures deliveries of two workers that stay at home, and that cross twice.

    Returns:
        ``home_us``, ``both_us``: processor time of each; ``crossing_us``: of one crossing, and
        ``of_home``: as a part of that of a delivery at home.
    """
    ways = {name: WAYS[2][name] for name in (HOME, BOTH)}
    found = compare(2, ways, conditions.seconds, conditions.runs)
    home, crossing = least_us(found[HOME]), crossing_us(found)
    return {
        "home_us": home,
        "both_us": least_us(found[BOTH]),
        "crossing_us": crossing,
        "of_home": crossing / home,
    }


def main(seconds: float, runs: int) -> None:
    """Prints what exactly-once deliveries cost by where their clients are connected."""
    for workers, ways in WAYS.items():
        found = compare(workers, ways, seconds, runs)
        home = least_us(found[HOME])
        for name, costs in found.items():
            least = min(costs, key=lambda cost: cost.all_us)
            median = statistics.median(cost.all_us for cost in costs)
            more = least.all_us - home
            crossings = ways[name].crossings
            print(
                f"{workers} workers, {name:19} {max(cost.rate for cost in costs):>9,.0f} /s "
                f" processor time for each delivery {least.all_us:.2f} us, median {median:.2f}"
                f" (journal {least.journal_us:.2f}); {crossings} crossings, {more:+.2f} us;"
                f" {least.switches:.0f} deliveries a switch",
                flush=True,
            )
        crossing = crossing_us(found)
        print(
            f"{workers} workers: a crossing costs {crossing:.2f} us,"
            f" {crossing / home:.2f} of a delivery at home",
            flush=True,
        )


if __name__ == "__main__":
    length, times = [*sys.argv[1:], *("2", "3")[len(sys.argv) - 1 :]][:2]
    main(float(length), int(times))
