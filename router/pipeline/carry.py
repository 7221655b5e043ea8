"""What one run of the audit leaves for the next, so that runs together come to what one would.

    carried.json        files, coverage, pairs of routers, totals; replaced last, so that a run that
                        died is repeated
    open-*              hops of deliveries that are not closed
    closed-*            hops of deliveries that one run closed, with the verdict it gave
    links-*             names of links

The directory is a path or a URL (``store``): Spark writes the rows, PyArrow the rest.

A run adds the new files' records to the hops of open deliveries, and to those of closed ones of
which a new file speaks: these are judged again, and a verdict that changes is reported as
corrected. All is kept for the *horizon*, in days: a file of a day before it is too late. It is
not read, the numbers of its records stay missing, so nobody is accused of anything because of it.
"""

import datetime
import json
import secrets
from collections.abc import Mapping
from typing import Any, Final

import attrs

from router.pipeline.clocks import Handovers
from router.pipeline.coverage import Beginning, Island, Life
from router.pipeline.store import local_path, open_store
from router.pipeline.stories import Event, Story
from router.pipeline.tree import Tree

HORIZON_DAYS: Final = 7
DAY_NS: Final = 86_400 * 1_000_000_000
_NAME: Final = "carried.json"
_VERSION: Final = 2
_FORMER: Final = "audited.json"
_KINDS: Final = ("open-", "closed-", "links-", "state-")


@attrs.frozen(kw_only=True)
class Generation:
    """Hops of the deliveries that one run closed.

    Attributes:
        path: their directory.
        number: of the run; of two generations with the same delivery the later one counts.
        last_ns: time of their last record.
    """

    path: str
    number: int
    last_ns: int


@attrs.frozen(kw_only=True)
class Carry:
    """State between two runs.

    Attributes:
        runs: how many there were.
        files: files that need not be read again.
        first_day: files of earlier days are too late; empty: none is.
        lives, beginnings: what was read of each life of each worker.
        handovers: what is known of pairs of routers.
        ended: routers of which somebody said that they have ended.
        totals: closed deliveries by verdict, over all runs.
        open, links: directories; empty: none.
        closed: of the runs within the horizon.
        stories: of the offenders that are open.
    """

    runs: int = 0
    files: tuple[str, ...] = ()
    first_day: str = ""
    lives: tuple[Life, ...] = ()
    beginnings: tuple[Beginning, ...] = ()
    handovers: tuple[Handovers, ...] = ()
    ended: tuple[str, ...] = ()
    totals: Mapping[str, int] = attrs.field(factory=dict)
    open: str = ""
    links: str = ""
    closed: tuple[Generation, ...] = ()
    stories: tuple[Story, ...] = ()

    @property
    def paths(self) -> set[str]:
        """The directories that belong to it."""
        return {self.open, self.links, *(each.path for each in self.closed)}

    @classmethod
    def load(cls, place: str | None) -> "Carry":
        """Reads the state that the last run stored; nothing, if an earlier version did."""
        octets = None if place is None else open_store(place).read(_NAME)
        if octets is not None:
            noted = json.loads(octets)
            if noted.pop("version") == _VERSION:
                return _from_json(noted)
        return cls()

    def store(self, place: str) -> None:
        """Replaces the stored state."""
        store, tree = open_store(place), Tree.open(place)
        store.write(_NAME, json.dumps({"version": _VERSION, **attrs.asdict(self)}).encode())
        store.remove(_FORMER)
        needed = {path.rpartition("/")[2] for path in self.paths}
        for old in tree.folders():
            if old.startswith(_KINDS) and old not in needed:
                tree.remove_folder(old)


def _from_json(noted: dict[str, Any]) -> Carry:
    lives = [
        Life(**{**each, "islands": tuple(Island(**island) for island in each["islands"])})
        for each in noted.pop("lives")
    ]
    beginnings = [
        Beginning(
            router=each["router"],
            begun_ns=each["begun_ns"],
            oldest={int(worker): life for worker, life in each["oldest"].items()},
        )
        for each in noted.pop("beginnings")
    ]
    return Carry(
        lives=tuple(lives),
        beginnings=tuple(beginnings),
        handovers=tuple(Handovers(**each) for each in noted.pop("handovers")),
        closed=tuple(Generation(**each) for each in noted.pop("closed")),
        stories=tuple(_story(each) for each in noted.pop("stories")),
        files=tuple(noted.pop("files")),
        ended=tuple(noted.pop("ended")),
        **noted,
    )


def _story(noted: dict[str, Any]) -> Story:
    return Story(**{**noted, "events": tuple(Event(**each) for each in noted["events"])})


def new_path(place: str, kind: str) -> str:
    """Returns a directory that does not exist yet, in one given by its path or URL."""
    path = local_path(place)
    above = place.rstrip("/") if path is None else str(path.resolve())
    return f"{above}/{kind}-{secrets.token_hex(8)}"


def day_of(time_ns: int) -> datetime.date:
    """Returns the day of a time, UTC."""
    return datetime.date(1970, 1, 1) + datetime.timedelta(days=time_ns // DAY_NS)


def date_of(file: str) -> datetime.date:
    """Returns the day of a ledger's file, by its path."""
    return datetime.date.fromisoformat(file.rpartition("/date=")[2][:10])


def start_ns(day: datetime.date) -> int:
    """Returns the time at which a day begins."""
    return (day - datetime.date(1970, 1, 1)).days * DAY_NS


def kept_lives(lives: Mapping[Any, Life], before_ns: int) -> tuple[Life, ...]:
    """Leaves out lives that ended before a time, but the latest of each worker."""
    latest: dict[tuple[str, int], int] = {}
    for each in lives.values():
        place = (each.router, each.worker)
        latest[place] = max(each.incarnation, latest.get(place, 0))
    return tuple(
        each
        for each in lives.values()
        if each.last_ns >= before_ns or each.incarnation == latest[each.router, each.worker]
    )
