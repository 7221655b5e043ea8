"""What is wrong with what is kept: the journal, the lease, the ledger, spans."""

from collections.abc import Iterator
from itertools import islice
from typing import Final

from router.service.advice import (
    first_fitting,
)
from router.service.diagnosis.problem import Problem, Severity
from router.service.fleet import RouterSnapshot

UNLED_SECONDS: Final = 15.0
"""A lease that was not renewed for so long should have been taken: something keeps the standby."""

GAPS_MOST: Final = 5
"""Missing parts of the journal that are named."""


def lease(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """A standby that could not take over: it does not see the database, or waits for too long."""
    lease = snapshot.lease
    if not snapshot.is_standby or lease is None:
        return
    age = lease.age_seconds
    if lease.trouble is None and (age is None or age < UNLED_SECONDS):
        return
    yield Problem(
        severity=Severity.ERROR,
        subject="journal",
        name="of the router",
        text=f"cannot be taken over: {lease.trouble or 'none leads at present'}",
        advice=journal_advice(snapshot, lease.trouble or ""),
    )


def journal(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """A journal that cannot be written."""
    for trouble, workers in journal_troubles(snapshot).items():
        is_all = len(workers) == len(snapshot.workers)
        numbers = ", ".join(map(str, workers))
        yield Problem(
            severity=Severity.ERROR,
            subject="journal",
            name="of the router" if is_all else f"of worker {numbers}",
            text=f"cannot write: {trouble}; exactly-once routes get no credit until it can",
            advice=journal_advice(snapshot, trouble),
        )


def journal_gaps(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """What the journal lacked when it was read: it stays so until the router is started anew."""
    journals = (worker.journal for worker in snapshot.workers)
    found = dict.fromkeys(gap for each in journals if each is not None for gap in each.gaps)
    if found:
        shown = "; ".join(islice(found, GAPS_MOST))
        left = f"; and {len(found) - GAPS_MOST} more" if len(found) > GAPS_MOST else ""
        yield Problem(
            severity=Severity.WARNING,
            subject="journal",
            name="of the router",
            text=f"was incomplete when it was read: {shown}{left}",
            advice="exactly-once deliveries that may have been sent are in doubt (router deliveries"
            " --in-doubt), those recorded only in the missing part are no longer known: router"
            " journal inspect shows what is there, router audit compares the ledgers of both sides",
        )


def journal_advice(snapshot: RouterSnapshot, trouble: str) -> str:
    """Returns what to do about a disk, or a database, that cannot be written."""
    advices = _JOURNAL_ADVICE if snapshot.lease is None else _DATABASE_ADVICE
    return first_fitting(advices, trouble, "see the log for journal lines")


def journal_troubles(snapshot: RouterSnapshot) -> dict[str, list[int]]:
    """Returns why the journal cannot write, each reason once, with the workers concerned."""
    troubles: dict[str, list[int]] = {}
    for worker in snapshot.workers:
        trouble = None if worker.journal is None else worker.journal.trouble
        if trouble is not None:
            trouble = snapshot.journal_trouble or trouble  # its own process knows better
            troubles.setdefault(trouble, []).append(worker.worker)
    return troubles


def ledger(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """A ledger that is not kept up to date."""
    if snapshot.ledger_trouble is not None:
        yield Problem(
            severity=Severity.ERROR,
            subject="ledger",
            name="of the router",
            text=f"is not kept up to date: {snapshot.ledger_trouble}; segments pile up",
            advice=first_fitting(
                _LEDGER_ADVICE, snapshot.ledger_trouble, "see the log for ledger lines"
            ),
        )


def tracing(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """Spans that are not exported, or were dropped."""
    if snapshot.tracing_trouble is not None:
        yield Problem(
            severity=Severity.ERROR,
            subject="tracing",
            name="of the router",
            text=f"spans are not exported: {snapshot.tracing_trouble}",
            advice=first_fitting(
                _TRACING_ADVICE, snapshot.tracing_trouble, "see the log for spans lines"
            ),
        )
    if snapshot.tracing_dropped:
        count = (
            "1 segment" if snapshot.tracing_dropped == 1 else f"{snapshot.tracing_dropped} segments"
        )
        yield Problem(
            severity=Severity.WARNING,
            subject="tracing",
            name="of the router",
            text=f"{count} of the journal were dropped before their spans were exported",
            advice="give router.tracing a collector that is there, or more buffer_octets",
        )
    if snapshot.tracing_refused:
        count = (
            "1 span was"
            if snapshot.tracing_refused == 1
            else f"{snapshot.tracing_refused} spans were"
        )
        yield Problem(
            severity=Severity.WARNING,
            subject="tracing",
            name="of the router",
            text=f"{count} dropped: {snapshot.tracing_refusal}",
            advice="look at the collector's log, and at the endpoint of router.tracing",
        )


_LEDGER_ADVICE: Final = (
    ("pyarrow", "pip install '.[spark]' in the folder of the source, and start the router again"),
    ("no space", "make room on the disk of router.compaction; the next run goes on"),
)


_TRACING_ADVICE: Final = (
    (
        "not installed",
        "pip install '.[otel]' in the folder of the source, and start the router again",
    ),
    ("does not take spans", "start the collector at router.tracing, or correct its endpoint"),
)


_JOURNAL_ADVICE: Final = (
    (
        "cannot be read",
        "let the file be read, and it goes on by itself; to give up what it held, move the file out"
        " of the directory (docs/before-running.md)",
    ),
    ("no space", "make room on the disk of router.state; it goes on by itself then"),
    ("quota", "make room in the quota of router.state's owner; it goes on by itself then"),
    ("read-only", "let router.state be written to; it goes on by itself then"),
    ("it is locked by", "end that process: it is an earlier life of this router, or another one"),
    ("input/output", "the disk of router.state fails: look at the kernel's log"),
)


_DATABASE_ADVICE: Final = (
    (
        "no space",
        "make room on the disk of the database that router.journal.store names; it goes on by"
        " itself then",
    ),
    ("input/output", "see the log for journal lines, and the database's own log"),
    (
        "permission denied",
        "router check --connect names each right that is missing; router journal init --role"
        " grants them",
    ),
    (
        "authentication failed",
        "correct the user or the password in router.journal.store, and start the router anew",
    ),
    (
        "does not exist",
        "correct router.journal.store and start the router anew, or make what is missing",
    ),
    *_JOURNAL_ADVICE,
)
