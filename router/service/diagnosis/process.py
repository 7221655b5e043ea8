"""What is wrong with the router and its workers: listeners, certificates, logins, the log."""

from collections.abc import Iterator
from typing import Final

from router.service.certificates import RENEW, WRONG_CLOCK
from router.service.control import SOURCES_MOST
from router.service.diagnosis.problem import Problem, Severity
from router.service.durations import show_seconds
from router.service.fleet import RouterSnapshot

LAG_SECONDS: Final = 0.1
"""Event loop lag from which on traffic is noticeably delayed."""

FAILED_LOGINS: Final = 3
"""Failed logins of one peer that are more than a typing error."""

WAITING_SECONDS: Final = 3.0
"""The process of a worker is started, and knows what its siblings do, within a second or two."""

NOBODY_SECONDS: Final = 60.0
"""A router without connections that started more recently is probably just being set up."""

RESTARTED_SECONDS: Final = 300.0
"""How long the death of a worker is reported as a problem."""


def draining(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """A router that is about to end."""
    if snapshot.is_draining:
        yield Problem(
            severity=Severity.WARNING,
            subject="router",
            name=snapshot.id,
            text="is draining: it takes nothing new, and ends when it has finished",
            advice="deliveries that are not finished within router.drain_seconds stay unsettled",
        )


def silent_workers(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """Workers that do not answer."""
    for number in snapshot.silent:
        yield Problem(
            severity=Severity.ERROR,
            subject="worker",
            name=str(number),
            text="does not answer",
            advice="see the log for worker lines; what follows leaves it out",
        )


def absent_workers(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """Workers whose process has died, and has no successor yet."""
    for lives in snapshot.lives:
        if lives.is_up or lives.ended_at is None or snapshot.is_draining:
            continue
        yield Problem(
            severity=Severity.ERROR,
            subject="worker",
            name=str(lives.worker),
            text=f"died {_ago(snapshot, lives.ended_at)}: {lives.reason}; it is started again",
            advice="see the log for worker lines; its connections are closed, and its peers dial"
            " again; what it has counted is lost",
        )


def waiting_clients(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """Connections that no worker can be given yet, for longer than a start usually takes."""
    waiting = snapshot.waiting
    if waiting.connections and waiting.seconds >= WAITING_SECONDS:
        yield Problem(
            severity=Severity.ERROR,
            subject="router",
            name=snapshot.id,
            text=f"has no worker for its clients: {waiting}, the first for"
            f" {show_seconds(waiting.seconds)}",
            advice="a worker takes them when it serves and knows the others' addresses; see the log"
            " for worker and journal lines",
        )


def restarted_workers(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """Workers whose process died lately: totals that include them do not go back further."""
    for lives in snapshot.lives:
        if not lives.is_up or lives.ended_at is None:
            continue
        if snapshot.at - lives.ended_at > RESTARTED_SECONDS:
            continue
        times = "once" if lives.ends == 1 else f"{lives.ends} times"
        ago = _ago(snapshot, lives.ended_at)
        yield Problem(
            severity=Severity.WARNING,
            subject="worker",
            name=str(lives.worker),
            text=f"has died {times}, last {ago}: {lives.reason}; a new process has taken its place",
            advice="see the log for worker lines; its totals count from then on, so totals of"
            " senders and receivers at different workers may differ",
        )


def _ago(snapshot: RouterSnapshot, at: float) -> str:
    return f"{show_seconds(max(0.0, snapshot.at - at))} ago"


def listeners(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """Listeners that are not open."""
    for listener in snapshot.listeners:
        if not listener.addresses and not snapshot.is_draining:
            yield Problem(
                severity=Severity.ERROR,
                subject="listener",
                name=listener.name,
                text="is not open",
                advice="see the log for listener lines",
            )


def refused_files(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """TLS files that were changed and cannot be used."""
    for trouble in snapshot.tls.refused:
        yield Problem(
            severity=Severity.ERROR,
            subject="router",
            name=snapshot.id,
            text=f"keeps an older certificate, and does not use what is there now: {trouble}",
            advice="put good files there: the router takes them over by itself; do not start it"
            " anew before",
        )


def certificates(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """Certificates that are not valid, or will not be before long."""
    for each in snapshot.tls.in_use:
        if each.is_early(snapshot.at):
            distance = show_seconds(each.starts - snapshot.at)
            yield Problem(
                severity=Severity.ERROR,
                subject="router",
                name=snapshot.id,
                text=f"uses a certificate too early: {each.describe(snapshot.at)}, in {distance}",
                advice=WRONG_CLOCK,
            )
        if not each.is_due(snapshot.at):
            continue
        has_expired = each.has_expired(snapshot.at)
        distance = show_seconds(abs(each.ends - snapshot.at))
        when = f"{distance} ago" if has_expired else f"in {distance}"
        yield Problem(
            severity=Severity.ERROR if has_expired else Severity.WARNING,
            subject="router",
            name=snapshot.id,
            text=f"uses a certificate that has to be renewed: {each.describe(snapshot.at)}, {when}",
            advice=RENEW,
        )


def log(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """A log that cannot be written."""
    for worker in snapshot.workers:
        if worker.vitals.log_trouble is not None:
            lost = worker.vitals.lost_lines
            count = "1 line is" if lost == 1 else f"{lost} lines are"
            yield Problem(
                severity=Severity.ERROR,
                subject="log",
                name=f"of worker {worker.worker}" if worker.worker else "of the router",
                text=f"cannot be written: {worker.vitals.log_trouble}; {count} lost so far",
                advice="look at what takes its standard output: a disk, or the reader of a pipe",
            )


def awaiting_restart(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """Options that a reload has not changed."""
    if snapshot.awaits_restart:
        yield Problem(
            severity=Severity.NOTE,
            subject="router",
            name=snapshot.id,
            text="does not follow its file, until it is started again, in"
            f" {', '.join(snapshot.awaits_restart)}",
            advice="router run on the same state directory takes over without a gap",
        )


def logins(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """Peers whose logins fail again and again."""
    for source, count in failing_sources(snapshot):
        if count >= FAILED_LOGINS:
            yield Problem(
                severity=Severity.WARNING,
                subject="peer",
                name=source,
                text=f"has failed to log in {count} times lately; it is answered late",
                advice="check the user and password that it uses, and listeners.sasl;"
                " if nobody knows it, somebody is guessing",
            )


def failing_sources(snapshot: RouterSnapshot) -> list[tuple[str, int]]:
    """Returns the IP addresses with recent failed logins, summed over all workers."""
    counts: dict[str, int] = {}
    for worker in snapshot.workers:
        for source, count in worker.logins.sources:
            counts[source] = counts.get(source, 0) + count
    return sorted(counts.items(), key=lambda each: -each[1])[:SOURCES_MOST]


def nobody(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """A router that nobody dials."""
    addresses = [address for each in snapshot.listeners for address in each.addresses]
    is_new = snapshot.uptime_seconds < NOBODY_SECONDS
    if addresses and not (snapshot.core.connections or is_new or snapshot.is_draining):
        yield Problem(
            severity=Severity.NOTE,
            subject="router",
            name=snapshot.id,
            text="has no connections: nobody dials it",
            advice=f"clients dial {', '.join(addresses)}; router send URL ADDRESS tries it",
        )


def lag(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """Workers that are late."""
    for worker in snapshot.workers:
        if worker.vitals.lag_seconds >= LAG_SECONDS:
            yield Problem(
                severity=Severity.WARNING,
                subject="worker",
                name=str(worker.worker),
                text=f"its event loop was {worker.vitals.lag_seconds:.2f} s late",
                advice="the machine, or this worker's core, is overloaded",
            )
