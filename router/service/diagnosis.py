"""Diagnosis of a running router: its problems, worst first, each with advice for the operator."""

import enum
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final
from urllib.parse import urlsplit

import attrs

from router.core.reach import is_sibling_name
from router.core.snapshot import Rejection, RouteRecord, Snapshot, Stall
from router.model.condition import NO_REASON
from router.model.terminus import Role
from router.routes.route import Guarantee, InDoubt, Route, WhenFull
from router.service.advice import (
    connection_advice,
    container_words,
    first_fitting,
    link_advice,
)
from router.service.certificates import RENEW, WRONG_CLOCK
from router.service.control import SOURCES_MOST, ContainerRecord
from router.service.durations import show_seconds
from router.service.fleet import RouterSnapshot
from router.service.lease import LeaseRecord
from router.service.stores import (
    StoredSummary,
    fill_seconds,
    has_store,
    is_answering,
    store_trouble,
    store_unreadable,
    stored_routes,
)

LAG_SECONDS: Final = 0.1
"""Event loop lag from which on traffic is noticeably delayed."""

BUDGET_SHARE: Final = 0.75
"""Share of a worker's octet budget from which on its use is reported; then links that keep much get
no credit (``links.credit``)."""

NAMED_MOST: Final = 3
"""Receivers that are named in one line."""

CONNECTING_SECONDS: Final = 2.0
"""A container that is disconnected for less is probably just being dialed."""


FAILED_LOGINS: Final = 3
"""Failed logins of one peer that are more than a typing error."""

NOBODY_SECONDS: Final = 60.0
"""A router without connections that started more recently is probably just being set up."""


REJECTED_SECONDS: Final = 300.0
"""How long a rejection is reported as a problem."""

RESTARTED_SECONDS: Final = 300.0
"""How long the death of a worker is reported as a problem."""

FILLING_SECONDS: Final = 6 * 3600.0
"""A stored route that will be full sooner is reported."""

UNLED_SECONDS: Final = 15.0
"""A lease that was not renewed for so long should have been taken: something keeps the standby."""

GAPS_MOST: Final = 5
"""Missing parts of the journal that are named."""

BROKEN_MOST: Final = 50
"""Lines that say what is broken."""


class Severity(enum.StrEnum):
    """Severity of a problem."""

    ERROR = "error"
    """Something does not work."""
    WARNING = "warning"
    """Something may soon fail, or waits for an operator."""
    NOTE = "note"
    """An operator asked for this state, and may have forgotten it."""


@attrs.frozen(kw_only=True)
class Problem:
    """A problem of the router.

    Attributes:
        subject: kind of the thing affected: router, listener, container, route, peer, worker,
            journal, ledger, store or site.
        name: its name.
        text: the problem.
        advice: what to do, or where to look.
    """

    severity: Severity
    subject: str
    name: str
    text: str
    advice: str


def diagnose(snapshot: RouterSnapshot) -> tuple[Problem, ...]:
    """Lists the problems, worst first."""
    found = [problem for rule in _RULES for problem in rule(snapshot)]
    return tuple(sorted(found, key=lambda problem: list(Severity).index(problem.severity)))


def reasons_not_ready(snapshot: RouterSnapshot) -> tuple[str, ...]:
    """Returns the reasons why the router is not ready for traffic; none: it is ready."""
    reasons = []
    if snapshot.is_draining:
        reasons.append("it is draining")
    closed = [listener.name for listener in snapshot.listeners if not listener.addresses]
    if not snapshot.is_draining:
        reasons += [f"listener {name} is not open" for name in closed]
    if snapshot.is_standby:
        return (*reasons, f"it is a standby: {who_leads(snapshot.lease)}")
    containers = {container.name: container for container in snapshot.containers}
    for name in dict.fromkeys(snapshot.required_containers):
        container = containers.get(name)
        if container is None or not container.is_connected:
            error = "" if container is None or container.error is None else f": {container.error}"
            reasons.append(f"container {name} is not connected{error}")
    reasons += [f"the journal cannot write: {trouble}" for trouble in _journal_troubles(snapshot)]
    return tuple(reasons)


def who_leads(lease: LeaseRecord | None) -> str:
    """Says who leads, for people."""
    if lease is None or (lease.place is None and lease.trouble is None):
        return "who leads is not known yet"
    if lease.trouble is not None:
        last = f"; the last that was seen: {lease.place}" if lease.place else ""
        return f"who leads cannot be seen{_unseen_since(lease)}: {lease.trouble}{last}"
    if lease.leads:
        return "this router has the lease, and is about to serve"
    if not lease.is_led:
        return "none leads at present"
    return f"the router on {lease.place} leads"


def _unseen_since(lease: LeaseRecord) -> str:
    if lease.seen is None:
        return ""
    return time.strftime(" since %Y-%m-%d %H:%M:%S", time.localtime(lease.seen))


def broken(problems: Iterable[Problem]) -> tuple[str, ...]:
    """Describes what does not work, a line for each; readiness does not depend on it."""
    errors = (each for each in problems if each.severity is Severity.ERROR)
    lines = (f"{each.subject} {each.name} {each.text}" for each in errors)
    return tuple(islice(lines, BROKEN_MOST))


def still_ready(snapshot: RouterSnapshot) -> str:
    """Says why the router is ready although something is broken."""
    named = ", ".join(dict.fromkeys(snapshot.required_containers))
    needed = f" and {named} connected" if named else ""
    waits = "" if named else " (router run --wait-for CONTAINER makes it depend on a container)"
    return (
        f"its listeners are open{needed}, and its other routes serve: readiness depends on no more"
        f"{waits}; router status --check fails while anything is broken"
    )


def is_rejecting(route: RouteRecord) -> bool:
    """Returns whether a delivery of a route was rejected lately."""
    return route.rejection is not None and route.rejection.seconds <= REJECTED_SECONDS


def stalls(snapshot: RouterSnapshot) -> tuple[str, ...]:
    """Describes every stall in a line; stalls do not affect readiness."""
    return tuple(
        f"route {route.name} is stalled: {_describe_stall(route)}"
        for route in snapshot.core.routes
        if route.stall is not None
    )


# The rules, in the order in which problems of one severity are reported


def _draining(snapshot: RouterSnapshot) -> Iterator[Problem]:
    if snapshot.is_draining:
        yield Problem(
            severity=Severity.WARNING,
            subject="router",
            name=snapshot.id,
            text="is draining: it takes nothing new, and ends when it has finished",
            advice="deliveries that are not finished within router.drain_seconds stay unsettled",
        )


def _silent_workers(snapshot: RouterSnapshot) -> Iterator[Problem]:
    for number in snapshot.silent:
        yield Problem(
            severity=Severity.ERROR,
            subject="worker",
            name=str(number),
            text="does not answer",
            advice="see the log for worker lines; what follows leaves it out",
        )


def _absent_workers(snapshot: RouterSnapshot) -> Iterator[Problem]:
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


def _restarted_workers(snapshot: RouterSnapshot) -> Iterator[Problem]:
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


def _listeners(snapshot: RouterSnapshot) -> Iterator[Problem]:
    for listener in snapshot.listeners:
        if not listener.addresses and not snapshot.is_draining:
            yield Problem(
                severity=Severity.ERROR,
                subject="listener",
                name=listener.name,
                text="is not open",
                advice="see the log for listener lines",
            )


def _refused_files(snapshot: RouterSnapshot) -> Iterator[Problem]:
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


def _certificates(snapshot: RouterSnapshot) -> Iterator[Problem]:
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


def _containers(snapshot: RouterSnapshot) -> Iterator[Problem]:
    for container in snapshot.containers:
        if container.is_connected:
            continue
        is_fresh = container.seconds < CONNECTING_SECONDS and container.error is None
        if not container.urls:
            yield _away(container)
            continue
        reason = "" if container.error is None else f": {container.error}"
        attempts = "1 attempt" if container.failed == 1 else f"{container.failed} attempts"
        tried = f" ({attempts} failed)" if container.failed else ""
        yield Problem(
            severity=Severity.WARNING if is_fresh else Severity.ERROR,
            subject="container",
            name=container.name,
            text=f"is not connected for {show_seconds(container.seconds)}{reason}{tried}",
            advice=_connection_advice(container),
        )


def _away(container: ContainerRecord) -> Problem:
    """Describes the absence of a container that dials in."""
    is_fresh = container.seconds < CONNECTING_SECONDS
    refused = f"; {container.failed} connections were refused" if container.failed else ""
    return Problem(
        severity=Severity.WARNING if is_fresh else Severity.ERROR,
        subject="container",
        name=container.name,
        text=f"has not dialed in for {show_seconds(container.seconds)}{refused}",
        advice="start it, and look whether it reaches a listener and logs in with"
        f" containers.{container.name}.identity; the log has its refusals",
    )


def _uplinks(snapshot: RouterSnapshot) -> Iterator[Problem]:
    for route in snapshot.core.routes:
        seen = set()  # a link of two addresses, or of two workers, fails for one reason
        for uplink in route.uplinks:
            place = uplink.container, uplink.address, uplink.error
            if uplink.step != "paused" or place in seen:
                continue
            seen.add(place)
            reason = uplink.error or NO_REASON
            yield Problem(
                severity=Severity.ERROR,
                subject="route",
                name=route.name,
                text=f"{uplink.container} ends the link to {uplink.address!r}: {reason}",
                advice=link_advice(reason, uplink.address, "it is tried again for ever"),
            )


def _stalled(snapshot: RouterSnapshot) -> Iterator[Problem]:
    for route in snapshot.core.routes:
        if route.stall is not None:
            yield Problem(
                severity=Severity.ERROR,
                subject="route",
                name=route.name,
                text=f"is stalled: {_describe_stall(route)}",
                advice=_stall_advice(route.name, route.stall),
            )


def _stall_advice(route: str, stall: Stall) -> str:
    trace = f"router trace {stall.address!r} shows what happens"
    if stall.deliveries:
        return f"router deliveries --route {route!r} lists what waits, {trace}"
    return f"the senders have no credit; {trace}"


def _rejections(snapshot: RouterSnapshot) -> Iterator[Problem]:
    by_name = snapshot.routes.table.by_name
    for route in snapshot.core.routes:
        rejection = route.rejection
        if rejection is None or not is_rejecting(route):
            continue
        count = "1 delivery was" if rejection.count == 1 else f"{rejection.count} deliveries were"
        who = f"by {rejection.peer}"
        if rejection.by_router:
            who = f"by the router, from {rejection.peer}"
        where = f" at {rejection.address!r}" if rejection.address else ""
        reason = rejection.reason or "no reason was given"
        yield Problem(
            severity=Severity.ERROR,
            subject="route",
            name=route.name,
            text=f"{count} rejected {who}, the last {show_seconds(rejection.seconds)} ago{where}:"
            f" {reason}",
            advice=_rejection_advice(rejection, by_name.get(route.name)),
        )


def _rejection_advice(rejection: Rejection, route: Route | None) -> str:
    trace = f"router trace {rejection.address!r}" if rejection.address else "router trace"
    otherwise = f"{_who_was_told(rejection, route)}; {trace} shows the next ones"
    return first_fitting(_REJECTION_ADVICE, rejection.reason, otherwise)


def _who_was_told(rejection: Rejection, route: Route | None) -> str:
    """Says whether the senders of rejected deliveries have the outcome."""
    place = None if route is None else route.dead_letter
    fate = "were dropped" if place is None else f"went to the dead letters at {place}"
    if route is not None and route.store is not None:
        return f"what had been stored {fate}; the senders of the others have that outcome"
    if not rejection.untold:
        return "their senders have that outcome"
    if rejection.untold >= rejection.count:
        return f"their senders had settled them: they {fate}"
    others = "the senders of the others have that outcome"
    return f"{rejection.untold} had been settled by their senders and {fate}; {others}"


def _in_doubt(snapshot: RouterSnapshot) -> Iterator[Problem]:
    by_name = snapshot.routes.table.by_name
    for route in snapshot.core.routes:
        if route.in_doubt:
            count = "1 delivery is" if route.in_doubt == 1 else f"{route.in_doubt} deliveries are"
            own = by_name.get(route.name)
            yield Problem(
                severity=Severity.ERROR if _holds(own) else Severity.WARNING,
                subject="route",
                name=route.name,
                text=f"{count} in doubt: sent, and the connection was lost before the outcome came",
                advice="router deliveries --in-doubt lists them; they are settled when the peer"
                " resumes, or by router deliveries resolve",
            )


def _budget(snapshot: RouterSnapshot) -> Iterator[Problem]:
    fullest = max((snapshot.core, *(each.core for each in snapshot.workers)), key=_budget_share)
    if _budget_share(fullest) >= BUDGET_SHARE:
        yield Problem(
            severity=Severity.WARNING,
            subject="router",
            name=snapshot.id,
            text=f"{fullest.payload_octets} of {fullest.payload_limit_octets} octets of payload"
            f" wait for an outcome{_who_keeps_most(fullest)}; senders of which much"
            " waits get no credit",
            advice="look why these receivers do not read or settle; limits.process_octets is the"
            " budget",
        )


def _budget_share(core: Snapshot) -> float:
    limit = core.payload_limit_octets
    return core.payload_octets / limit if limit else 0.0


def _who_keeps_most(core: Snapshot) -> str:
    """Names the route of which most payload waits, and its receivers with most deliveries."""
    route = max(core.routes, key=lambda each: each.payload_octets, default=None)
    if route is None or not route.payload_octets:
        return ""
    receivers = [each for each in core.peers if (route.name, Role.SENDER) in each.routes]
    receivers.sort(key=lambda each: (each.outgoing_unsettled, each.congested), reverse=True)
    slow = [each for each in receivers if each.outgoing_unsettled or each.congested]
    text = f", {route.payload_octets} of route {route.name}"
    if slow:
        names = ", ".join(each.container for each in slow[:NAMED_MOST])
        more = len(slow) - NAMED_MOST
        text += f" at {names}" + (f" and {more} more receivers" if more > 0 else "")
    return text


def _peers(snapshot: RouterSnapshot) -> Iterator[Problem]:
    for peer in snapshot.core.peers:
        is_worker = is_sibling_name(peer.container)
        subject = "worker" if is_worker else "peer"
        name = peer.container.removeprefix("/") if is_worker else peer.container
        if peer.held:
            yield Problem(
                severity=Severity.WARNING,
                subject=subject,
                name=name,
                text=f"has {peer.payload_octets} octets here whose outcome is not known;"
                " it gets no credit until some are",
                advice="limits.connection_octets is the budget",
            )
        if peer.congested:
            yield Problem(
                severity=Severity.WARNING,
                subject=subject,
                name=name,
                text="reads slower than it is sent to; what is for it waits",
                advice="look whether it, or the network to it, is overloaded",
            )


def _lease(snapshot: RouterSnapshot) -> Iterator[Problem]:
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
        advice=_journal_advice(snapshot, lease.trouble or ""),
    )


def _journal(snapshot: RouterSnapshot) -> Iterator[Problem]:
    for trouble, workers in _journal_troubles(snapshot).items():
        is_all = len(workers) == len(snapshot.workers)
        numbers = ", ".join(map(str, workers))
        yield Problem(
            severity=Severity.ERROR,
            subject="journal",
            name="of the router" if is_all else f"of worker {numbers}",
            text=f"cannot write: {trouble}; exactly-once routes get no credit until it can",
            advice=_journal_advice(snapshot, trouble),
        )


def _journal_gaps(snapshot: RouterSnapshot) -> Iterator[Problem]:
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


def _journal_advice(snapshot: RouterSnapshot, trouble: str) -> str:
    advices = _JOURNAL_ADVICE if snapshot.lease is None else _DATABASE_ADVICE
    return first_fitting(advices, trouble, "see the log for journal lines")


def _journal_troubles(snapshot: RouterSnapshot) -> dict[str, list[int]]:
    """Returns why the journal cannot write, each reason once, with the workers concerned."""
    troubles: dict[str, list[int]] = {}
    for worker in snapshot.workers:
        trouble = None if worker.journal is None else worker.journal.trouble
        if trouble is not None:
            trouble = snapshot.journal_trouble or trouble  # its own process knows better
            troubles.setdefault(trouble, []).append(worker.worker)
    return troubles


def _mesh(snapshot: RouterSnapshot) -> Iterator[Problem]:
    meshes = [worker.mesh for worker in snapshot.workers if worker.mesh is not None]
    for site in (site for mesh in meshes for site in mesh.sites):
        if site.cost is None:
            yield Problem(
                severity=Severity.ERROR,
                subject="site",
                name=site.router,
                text="of the mesh is not reached: addresses that it alone serves get no credit",
                advice="see the log for mesh.link_down; if the site is gone for good, it is"
                " forgotten after an hour",
            )


def _ledger(snapshot: RouterSnapshot) -> Iterator[Problem]:
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


def _tracing(snapshot: RouterSnapshot) -> Iterator[Problem]:
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


def _log(snapshot: RouterSnapshot) -> Iterator[Problem]:
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


def _awaiting_restart(snapshot: RouterSnapshot) -> Iterator[Problem]:
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


def _logins(snapshot: RouterSnapshot) -> Iterator[Problem]:
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


def _nobody(snapshot: RouterSnapshot) -> Iterator[Problem]:
    addresses = [address for each in snapshot.listeners for address in each.addresses]
    is_new = snapshot.at - snapshot.started_at < NOBODY_SECONDS
    if addresses and not (snapshot.core.connections or is_new or snapshot.is_draining):
        yield Problem(
            severity=Severity.NOTE,
            subject="router",
            name=snapshot.id,
            text="has no connections: nobody dials it",
            advice=f"clients dial {', '.join(addresses)}; router send URL ADDRESS tries it",
        )


def failing_sources(snapshot: RouterSnapshot) -> list[tuple[str, int]]:
    """Returns the IP addresses with recent failed logins, summed over all workers."""
    counts: dict[str, int] = {}
    for worker in snapshot.workers:
        for source, count in worker.logins.sources:
            counts[source] = counts.get(source, 0) + count
    return sorted(counts.items(), key=lambda each: -each[1])[:SOURCES_MOST]


def _lag(snapshot: RouterSnapshot) -> Iterator[Problem]:
    for worker in snapshot.workers:
        if worker.vitals.lag_seconds >= LAG_SECONDS:
            yield Problem(
                severity=Severity.WARNING,
                subject="worker",
                name=str(worker.worker),
                text=f"its event loop was {worker.vitals.lag_seconds:.2f} s late",
                advice="the machine, or this worker's core, is overloaded",
            )


def _paused(snapshot: RouterSnapshot) -> Iterator[Problem]:
    for route in snapshot.core.routes:
        if route.is_paused:
            yield Problem(
                severity=Severity.NOTE,
                subject="route",
                name=route.name,
                text="is paused",
                advice=f"router resume {route.name!r} lets it go on",
            )


def _store_away(snapshot: RouterSnapshot) -> Iterator[Problem]:
    is_starting = snapshot.at - snapshot.started_at < CONNECTING_SECONDS
    if has_store(snapshot) and not is_answering(snapshot) and not is_starting:
        yield Problem(
            severity=Severity.ERROR,
            subject="store",
            name=snapshot.id,
            text="does not answer: routes that store messages get no credit",
            advice="see the log for messages and store lines; its process is started again",
        )


def _store_stuck(snapshot: RouterSnapshot) -> Iterator[Problem]:
    trouble = store_trouble(snapshot)
    if trouble is not None and is_answering(snapshot):
        yield Problem(
            severity=Severity.ERROR,
            subject="store",
            name=snapshot.id,
            text=f"cannot write: {trouble}; routes that store messages get no credit until it can",
            advice=_journal_advice(snapshot, trouble),
        )


def _store_unreadable(snapshot: RouterSnapshot) -> Iterator[Problem]:
    unreadable = store_unreadable(snapshot)
    if unreadable is not None:
        yield Problem(
            severity=Severity.ERROR,
            subject="store",
            name=snapshot.id,
            text=f"cannot read {unreadable}, and so does what stands behind them",
            advice="look at the disk, or put the file back: it is tried again by itself;"
            " moved away it is given up",
        )


def _stores(snapshot: RouterSnapshot) -> Iterator[Problem]:
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


_RULES: Final[tuple[Callable[[RouterSnapshot], Iterator[Problem]], ...]] = (
    _draining,
    _silent_workers,
    _absent_workers,
    _restarted_workers,
    _listeners,
    _refused_files,
    _certificates,
    _lease,
    _journal,
    _journal_gaps,
    _mesh,
    _ledger,
    _tracing,
    _log,
    _containers,
    _store_away,
    _store_stuck,
    _store_unreadable,
    _stores,
    _uplinks,
    _stalled,
    _rejections,
    _in_doubt,
    _budget,
    _peers,
    _logins,
    _lag,
    _paused,
    _nobody,
    _awaiting_restart,
)


def _holds(route: Route | None) -> bool:
    """Returns whether deliveries in doubt of a route may have to be decided by a person."""
    if route is None or route.guarantee is not Guarantee.EXACTLY_ONCE:
        return False
    return route.in_doubt is not InDoubt.RESEND


# Words


def _describe_stall(route: RouteRecord) -> str:
    stall = route.stall
    assert stall is not None
    where = "" if stall.address == route.address else f" at {stall.address!r}"
    return f"{stall.reason}{where}; nothing has moved for {show_seconds(stall.seconds)}"


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
_REJECTION_ADVICE: Final = (
    ("nobody receives", "let somebody receive there, or set unroutable: of the route"),
    (
        "no binding",
        "bind a queue there for the routing key that the route publishes with",
    ),
    ("not-found", "make the address there, or name one that exists in `to` of the route"),
    ("unauthorized", "give our user there the right to publish to this address"),
    ("message-size", "send smaller messages, or let the receiver take greater ones"),
    ("decode", "look at the sender: the message does not fit the receiver's protocol"),
    ("not-allowed", "look at the rules of policy, and at the receiver's"),
)


def _connection_advice(container: ContainerRecord) -> str:
    ports = (urlsplit(url).port for url in container.urls)
    words = container_words(container.name, container.urls, filter(None, ports))
    return connection_advice(container.error or "", words)
