"""What is wrong with the store, and with the routes that store messages."""

from collections.abc import Iterator
from typing import Final

from router.routes.route import WhenFull
from router.service.diagnosis import disks
from router.service.diagnosis.links import CONNECTING_SECONDS
from router.service.diagnosis.problem import Problem, Severity
from router.service.durations import show_seconds
from router.service.fleet import RouterSnapshot
from router.service.stores import (
    StoredSummary,
    fill_seconds,
    has_store,
    is_answering,
    store_trouble,
    store_unreadable,
    stored_routes,
)

FILLING_SECONDS: Final = 6 * 3600.0
"""A stored route that will be full sooner is reported."""


def away(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """A store whose process does not answer."""
    is_starting = snapshot.uptime_seconds < CONNECTING_SECONDS
    if has_store(snapshot) and not is_answering(snapshot) and not is_starting:
        yield Problem(
            severity=Severity.ERROR,
            subject="store",
            name=snapshot.id,
            text="does not answer: routes that store messages get no credit",
            advice="see the log for messages and store lines; its process is started again",
        )


def stuck(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """A store that cannot be written."""
    trouble = store_trouble(snapshot)
    if trouble is not None and is_answering(snapshot):
        yield Problem(
            severity=Severity.ERROR,
            subject="store",
            name=snapshot.id,
            text=f"cannot write: {trouble}; routes that store messages get no credit until it can",
            advice=disks.journal_advice(snapshot, trouble),
        )


def unreadable(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """A store that cannot be read."""
    found = store_unreadable(snapshot)
    if found is not None:
        yield Problem(
            severity=Severity.ERROR,
            subject="store",
            name=snapshot.id,
            text=f"cannot read {found}, and so does what stands behind them",
            advice="look at the disk, or put the file back: it is tried again by itself;"
            " moved away it is given up",
        )


def bounds(snapshot: RouterSnapshot) -> Iterator[Problem]:
    """Stored routes that are full, or will be, or whose messages may become too old."""
    for each in stored_routes(snapshot):
        name = each.name
        if name is None or each.storing is None or not each.record.messages:
            continue
        text = _full(each) or _ageing(each) or _filling(each)
        if text is None:
            continue
        is_refusing = each.record.is_full and each.storing.full is WhenFull.REFUSE
        waits = f"it waits for {'; '.join(each.waits_for)}; " if each.waits_for else ""
        yield Problem(
            severity=Severity.ERROR if is_refusing else Severity.WARNING,
            subject="route",
            name=name,
            text=text,
            advice=f"{waits}router store {name!r} shows more, router store drop makes room",
        )


def _full(each: StoredSummary) -> str | None:
    if not each.record.is_full or each.storing is None:
        return None
    if each.storing.full is WhenFull.REFUSE:
        return "has stored as much as it may: its senders wait"
    return "has stored as much as it may, and its dead letters wait, too: its senders wait"


def _ageing(each: StoredSummary) -> str | None:
    age = None if each.storing is None else each.storing.age_seconds
    oldest = each.record.oldest_seconds
    if age is None or oldest <= age / 2:
        return None
    return (
        f"has stored a message for {show_seconds(oldest)}:"
        f" after {show_seconds(age)} it goes to the dead letters"
    )


def _filling(each: StoredSummary) -> str | None:
    seconds = fill_seconds(each)
    if seconds is None or seconds > FILLING_SECONDS:
        return None
    return f"stores more than it forwards: it is full in {show_seconds(seconds)}"
