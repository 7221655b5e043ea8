"""What a supervisor asks its workers, and what they report: the words of the channel."""

from typing import Final

import attrs

from router.core.listing import DeliveryPage, DeliveryPosition, Filter, LinkPage, LinkPosition
from router.core.resolve import Decision
from router.core.trace import TraceLine
from router.service.channel import Question
from router.service.control import ConnectionEntries, WorkerSnapshot
from router.service.transfer import Draft

LOAD_SECONDS: Final = 0.05
"""How often a worker compares its ``WorkerReport`` with the last; it sends only changes."""


@attrs.frozen(kw_only=True)
class Duty:
    """What a new worker is told first.

    Attributes:
        number: its own, from 1.
        workers: how many there are to be.
        draft: what it is to serve.
        containers: those that are its own to dial.
        paused: routes that people have paused.
        is_json: how its log looks.
        log_level: least severity that it logs.
    """

    number: int
    workers: int
    draft: Draft
    containers: tuple[str, ...]
    paused: tuple[str, ...]
    is_json: bool
    log_level: str


@attrs.frozen(kw_only=True)
class WorkerReport:
    """What a worker reports to the supervisor whenever it changes.

    Attributes:
        taken: sockets that it has been handed so far and has taken.
        connections: that came in by listeners and stand, handshakes included.
        containers: those of its own whose connection is open.
        sources: how many of these come from each IP address, if that is limited.
        siblings: numbers of the workers that it knows what to expect of.
    """

    taken: int = 0
    connections: int = 0
    containers: tuple[str, ...] = ()
    siblings: tuple[int, ...] = ()
    sources: dict[str, int] = attrs.field(factory=dict)


REPORT: Final = "fare"
"""The report whose body is a ``WorkerReport``; the name on the channel is an older one."""

BEGIN: Final = Question[str]("begin", (Duty,), str)
"""Work; gives the kind of its express lane. Refused: the configuration cannot be served."""

PREPARE: Final = Question[None]("prepare", (Draft,), type(None))
"""Put a configuration together and change nothing. Refused: it cannot be served."""

APPLY: Final = Question[dict[str, int]]("apply", (), dict[str, int])
"""Serve what was prepared last; gives what is kept of routes that are gone (``Crew.apply``)."""

OWN: Final = Question[None]("own", (tuple[str, ...],), type(None))
"""Dial these containers, and no others."""

DRAIN: Final = Question[bool]("drain", (), bool)
"""Come to an end; gives whether everything was finished in time."""

SET_LOG_LEVEL: Final = Question[None]("set_log_level", (str,), type(None))

SNAPSHOT: Final = Question[WorkerSnapshot]("snapshot", (), WorkerSnapshot)
CONNECTIONS: Final = Question[ConnectionEntries](
    "connections", (Filter, int, int), ConnectionEntries
)
LINKS: Final = Question[LinkPage]("links", (Filter, int, LinkPosition), LinkPage)
DELIVERIES: Final = Question[DeliveryPage](
    "deliveries", (Filter, int, DeliveryPosition | None), DeliveryPage
)
PAUSE: Final = Question[None]("pause", (str,), type(None))
RESUME: Final = Question[None]("resume", (str,), type(None))
RESOLVE: Final = Question[int]("resolve", (bytes, str | None, Decision), int)

BEGIN_TRACE: Final = Question[int]("begin_trace", (str, int), int)
"""Follow deliveries; gives the number of the trace."""

TAKE_TRACE: Final = Question[list[TraceLine]]("take_trace", (int,), list[TraceLine])
"""Wait for lines of a trace; none: it has come to its end."""

END_TRACE: Final = Question[None]("end_trace", (int,), type(None))
