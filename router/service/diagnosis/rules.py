"""The rules in their order, and what they find."""

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from router.service.diagnosis import deliveries, disks, links, process, stored
from router.service.diagnosis.problem import Problem, Severity
from router.service.fleet import RouterSnapshot

BROKEN_MOST: Final = 50
"""Lines that say what is broken."""


def diagnose(snapshot: RouterSnapshot) -> tuple[Problem, ...]:
    """Lists the problems, worst first."""
    found = [problem for rule in _RULES for problem in rule(snapshot)]
    return tuple(sorted(found, key=lambda problem: list(Severity).index(problem.severity)))


def broken(problems: Iterable[Problem]) -> tuple[str, ...]:
    """Describes what does not work, a line for each; readiness does not depend on it."""
    errors = (each for each in problems if each.severity is Severity.ERROR)
    lines = (f"{each.subject} {each.name} {each.text}" for each in errors)
    return tuple(islice(lines, BROKEN_MOST))


_RULES: Final[tuple[Callable[[RouterSnapshot], Iterator[Problem]], ...]] = (
    process.draining,
    process.silent_workers,
    process.absent_workers,
    process.waiting_clients,
    process.restarted_workers,
    process.listeners,
    process.refused_files,
    process.certificates,
    disks.lease,
    disks.journal,
    disks.journal_gaps,
    links.mesh,
    disks.ledger,
    disks.tracing,
    process.log,
    links.containers,
    stored.away,
    stored.stuck,
    stored.unreadable,
    stored.bounds,
    links.uplinks,
    deliveries.stalled,
    deliveries.rejections,
    deliveries.in_doubt,
    links.budget,
    links.peers,
    process.logins,
    process.lag,
    deliveries.paused,
    process.nobody,
    process.awaiting_restart,
)
