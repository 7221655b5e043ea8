"""The channel's vocabulary: what a supervisor asks its workers, and what workers report."""

from typing import Final

import attrs

from router.core.listing import DeliveryPage, DeliveryPosition, Filter, LinkPage, LinkPosition
from router.core.resolve import Decision
from router.core.trace import TraceLine
from router.service.channel import Question
from router.service.control import ConnectionEntries, MeshRecord, Replayed, WorkerSnapshot
from router.service.transfer import Draft

LOAD_SECONDS: Final = 0.05
"""How often a busy worker looks whether its ``WorkerReport`` has changed; only changes are sent."""

QUIET_SECONDS: Final = 0.5
"""How often one does so whose data plane does nothing."""


@attrs.frozen(kw_only=True)
class Duty:
    """The first instructions to a new worker.

    Attributes:
        number: the worker's, from 1.
        workers: how many workers the router has.
        draft: the configuration.
        containers: the containers that this worker dials.
        paused: routes that operators have paused.
        is_json: whether it logs JSON lines.
        log_level: least severity that it logs.
        tickets: the secret with which TLS sessions are resumed at any worker.
    """

    number: int
    workers: int
    draft: Draft
    containers: tuple[str, ...]
    paused: tuple[str, ...]
    is_json: bool
    log_level: str
    tickets: bytes = attrs.field(repr=False)


@attrs.frozen(kw_only=True)
class WorkerReport:
    """What a worker reports to the supervisor whenever it changes.

    Attributes:
        taken: how many sockets it has accepted from the supervisor so far.
        connections: open connections that listeners accepted, handshakes included.
        containers: its own containers whose connection is open.
        sources: how many of the connections come from each IP address, if that is limited.
        siblings: numbers of the workers that have announced their addresses to it.
    """

    taken: int = 0
    connections: int = 0
    containers: tuple[str, ...] = ()
    siblings: tuple[int, ...] = ()
    sources: dict[str, int] = attrs.field(factory=dict)


REPORT: Final = "fare"
"""The report whose body is a ``WorkerReport``; its name on the channel is historical."""

GET_READY: Final = Question[None]("get_ready", (Duty,), type(None))
"""Prepare what ``BEGIN`` with the same duty needs. Refused if the configuration is unusable."""

BEGIN: Final = Question[str]("begin", (Duty,), str)
"""Start to work; returns the kind of express lane. Refused if the configuration is unusable."""

PREPARE: Final = Question[None]("prepare", (Draft,), type(None))
"""Prepare a configuration without applying it. Refused if the configuration is unusable."""

APPLY: Final = Question[dict[str, int]]("apply", (), dict[str, int])
"""Apply the last prepared configuration; returns what removed routes keep (``Crew.apply``)."""

OWN: Final = Question[None]("own", (tuple[str, ...],), type(None))
"""Dial these containers, and no others."""

DRAIN: Final = Question[bool]("drain", (), bool)
"""Drain and end; returns whether everything was settled in time."""

SET_LOG_LEVEL: Final = Question[None]("set_log_level", (str,), type(None))

SNAPSHOT: Final = Question[WorkerSnapshot]("snapshot", (float,), WorkerSnapshot)
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
REPLAY: Final = Question[Replayed]("replay", (str | None, str | None), Replayed)

MESH: Final = Question[MeshRecord | None]("mesh", (str | None,), MeshRecord | None)

BEGIN_TRACE: Final = Question[int]("begin_trace", (str, int), int)
"""Trace deliveries; returns the number of the trace."""

TAKE_TRACE: Final = Question[list[TraceLine]]("take_trace", (int,), list[TraceLine])
"""Wait for lines of a trace; none: the trace has ended."""

END_TRACE: Final = Question[None]("end_trace", (int,), type(None))
