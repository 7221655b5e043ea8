"""What a stranger is told to fix, and in which order."""

import importlib.util
from pathlib import Path
from typing import Any

import attrs
import pytest

from router.core.reach import sibling_name
from router.core.snapshot import PeerRecord, RouteRecord, Stall
from router.model.terminus import Role
from router.net.journal import UNANSWERED
from router.net.validity import Validity
from router.routes.route import Endpoint, Guarantee, InDoubt, Route, Storing
from router.routes.table import RoutingTable
from router.service.certificates import TlsRecord
from router.service.compaction import LedgerHealth, compact, keep_ledger
from router.service.config.process import Compaction
from router.service.control import ContainerRecord, JournalRecord, LoginRecord, MeshRecord
from router.service.diagnosis.deliveries import stalls
from router.service.diagnosis.problem import Problem, Severity
from router.service.diagnosis.readiness import reasons_not_ready
from router.service.diagnosis.rules import broken, diagnose
from router.service.durations import show_seconds
from router.service.fleet import RouterSnapshot
from router.service.lease import LeaseRecord
from router.service.lives import WaitingClients, WorkerLives
from router.service.route_list import RouteList
from tests.support.fleets import (
    container,
    core,
    listener,
    mesh_site,
    rejecting,
    route,
    router_snapshot,
    stalled,
    uplink,
    vitals,
    worker_snapshot,
)


def only(snapshot: RouterSnapshot) -> Problem:
    (problem,) = diagnose(snapshot)
    return problem


def with_core(snapshot: RouterSnapshot, **fields: Any) -> RouterSnapshot:
    return attrs.evolve(snapshot, core=attrs.evolve(snapshot.core, **fields))


def test_nothing_is_wrong_with_an_idle_router() -> None:
    snapshot = router_snapshot(containers=[container(is_connected=True)])
    assert diagnose(snapshot) == ()
    assert reasons_not_ready(snapshot) == ()
    assert stalls(snapshot) == ()


def test_errors_come_before_warnings_and_notes() -> None:
    snapshot = router_snapshot(
        route("paused", is_paused=True), route("doubtful", in_doubt=2), stalled("stuck")
    )
    found = [(each.severity, each.name) for each in diagnose(snapshot)]
    assert found == [
        (Severity.ERROR, "stuck"),
        (Severity.WARNING, "doubtful"),
        (Severity.NOTE, "paused"),
    ]


def test_options_that_wait_for_a_restart_are_noted_and_break_nothing() -> None:
    snapshot = router_snapshot(awaits_restart=("router.id", "limits.link_credit"))
    problem = only(snapshot)
    assert problem.severity is Severity.NOTE
    assert problem.text.endswith("until it is started again, in router.id, limits.link_credit")
    assert broken(diagnose(snapshot)) == ()


def test_tls_files_that_cannot_be_used_are_told_once_until_they_can() -> None:
    reason = "listeners[0].tls.key: key.pem: the key is not the certificate's"
    worker = TlsRecord(refused=(reason,))
    snapshot = router_snapshot(tls=TlsRecord.merged((worker, worker)))
    problem = only(snapshot)
    assert problem.severity is Severity.ERROR
    text = f"keeps an older certificate, and does not use what is there now: {reason}"
    assert problem.text == text
    assert broken(diagnose(snapshot))


def test_a_certificate_is_a_problem_two_weeks_before_it_expires() -> None:
    day = 86400.0
    at = 1_000 * day

    def found(ends: float) -> tuple[Problem, ...]:
        own = Validity(
            option="listeners[0].tls.cert", file="a.pem", begins=0, ends=ends, own_ends=0
        )
        return diagnose(router_snapshot(at=at, tls=TlsRecord(in_use=(own,))))

    assert found(at + 15 * day) == ()
    (warning,) = found(at + 10 * day)
    assert warning.severity is Severity.WARNING
    assert warning.text == (
        "uses a certificate that has to be renewed: listeners[0].tls.cert: a.pem expires on"
        " 1972-10-07 00:00 UTC, in 10 d"
    )
    (error,) = found(at - 3 * day)
    assert error.severity is Severity.ERROR
    assert error.text.endswith("a.pem expired on 1972-09-24 00:00 UTC, 3 d ago")


def test_a_certificate_that_is_not_valid_yet_is_an_error() -> None:
    day = 86400.0
    own = Validity(
        option="listeners[0].tls.cert",
        file="a.pem",
        begins=1_000 * day,
        ends=1_090 * day,
        own_ends=1_090 * day,
    )
    (error,) = diagnose(router_snapshot(at=998 * day, tls=TlsRecord(in_use=(own,))))
    assert error.severity is Severity.ERROR
    assert error.text == (
        "uses a certificate too early: listeners[0].tls.cert: a.pem is not valid before 1972-09-27"
        " 00:00 UTC, in 2 d"
    )
    assert "compare the clocks" in error.advice


def test_what_the_journal_lacked_is_told_once() -> None:
    gaps = tuple(f"segment {number} is missing" for number in range(1, 8))
    journal = JournalRecord(trouble=None, records=0, durable=0, waiting_octets=0, gaps=gaps)
    worker = worker_snapshot(core=core(), journal=journal)
    problem = only(attrs.evolve(router_snapshot(), workers=(worker, worker)))
    assert (problem.severity, problem.subject) == (Severity.WARNING, "journal")
    assert problem.text.startswith("was incomplete when it was read: segment 1 is missing; segment")
    assert problem.text.endswith("segment 5 is missing; and 2 more")
    assert "router deliveries --in-doubt" in problem.advice


def test_deliveries_that_were_rejected_are_a_problem_for_five_minutes() -> None:
    problem = only(router_snapshot(rejecting("orders")))
    assert (problem.severity, problem.subject, problem.name) == (Severity.ERROR, "route", "orders")
    assert problem.text == (
        "12 deliveries were rejected by west, the last 4 s ago at 'orders': amqp:not-found: no such"
        " queue"
    )
    assert diagnose(router_snapshot(rejecting(seconds=301.0))) == ()


def test_a_delivery_that_the_router_rejects_is_told_with_whose_it_was() -> None:
    found = rejecting(count=1, by_router=True, peer="shop", reason="")
    assert only(router_snapshot(found)).text == (
        "1 delivery was rejected by the router, from shop, the last 4 s ago at 'orders': no reason"
        " was given"
    )


@pytest.mark.parametrize(
    ("reason", "advice"),
    [
        ("amqp:not-found: nobody receives here", "let somebody receive there"),
        ("amqp:not-found: no binding takes it", "bind a queue there"),
        ("amqp:not-found: no queue", "make the address there"),
        ("amqp:link:message-size-exceeded: 9 octets", "send smaller messages"),
        ("", "router trace 'orders' shows the next ones"),
    ],
)
def test_advice_follows_the_reason_of_a_rejection(reason: str, advice: str) -> None:
    assert advice in only(router_snapshot(rejecting(reason=reason))).advice


@pytest.mark.parametrize(
    ("guarantee", "in_doubt", "severity"),
    [
        (Guarantee.EXACTLY_ONCE, None, Severity.ERROR),
        (Guarantee.EXACTLY_ONCE, InDoubt.HOLD, Severity.ERROR),
        (Guarantee.EXACTLY_ONCE, InDoubt.RESEND, Severity.WARNING),
        (Guarantee.AT_LEAST_ONCE, None, Severity.WARNING),
    ],
)
def test_what_a_person_may_have_to_decide_is_an_error(
    guarantee: Guarantee, in_doubt: InDoubt | None, severity: Severity
) -> None:
    table = RoutingTable([Route(address="orders", guarantee=guarantee, in_doubt=in_doubt)])
    snapshot = router_snapshot(route("orders", in_doubt=1))
    listed = RouteList.of(table, snapshot.core.routes)
    assert only(attrs.evolve(snapshot, routes=listed)).severity is severity


def test_what_is_broken_is_a_line_for_each_error_and_50_at_most() -> None:
    snapshot = router_snapshot(*(rejecting(f"r{each}") for each in range(60)), route(in_doubt=1))
    assert len(diagnose(snapshot)) == 61
    lines = broken(diagnose(snapshot))
    assert len(lines) == 50
    assert lines[0].startswith("route r0 12 deliveries were rejected by west")


def test_a_container_that_is_away_is_told_with_reason_and_advice() -> None:
    problem = only(router_snapshot(containers=[container("east")]))
    assert problem == Problem(
        severity=Severity.ERROR,
        subject="container",
        name="east",
        text="is not connected for 30 s: Connection refused (3 attempts failed)",
        advice="nothing listens at amqp://east.example:5672: is it running, is the port right?",
    )


@pytest.mark.parametrize(
    ("error", "advice"),
    [
        ("Name or service not known", "check containers.east.url"),
        ("no connection within 10 s", "firewall"),
        ("no TLS handshake within 10 s", "is that the port of AMQP"),
        ("proxy 10.0.0.1:3128: it does not connect within 10 s", "the container's option proxy"),
        ("Network is unreachable", "check the network"),
        ("certificate verify failed", "check containers.east.tls"),
        ("the peer does not speak TLS (wrong version number)", "write amqp:// in containers.east"),
        ("amqp:not-implemented: the peer wants TLS (it began with 41)", "write amqps://"),
        ("amqp:not-implemented: the peer speaks amqp-0-9-1 (it)", "containers.east.protocol"),
        ("amqp:not-implemented: the peer speaks HTTP (it began)", "the port of AMQP, usually 5672"),
        ("amqp:not-allowed: 530 NOT_ALLOWED - vhost nope not found", "the path of containers.east"),
        ("amqp:not-implemented: the peer speaks no AMQP (it began)", "no port of AMQP"),
        ("TLS alert of the peer: certificate required", "cert and key in containers.east.tls"),
        (
            "certificate is refused: unable to get local issuer certificate",
            "containers.east.tls.ca",
        ),
        ("certificate is refused: self-signed certificate", "containers.east.tls.ca"),
        ("certificate is refused: certificate has expired", "renew the certificate"),
        ("certificate is refused: Hostname mismatch", "containers.east.tls.server_name"),
        ("amqp:connection:forced: the stream ended without a close", "is it AMQP"),
        ("amqp:unauthorized-access: no", "check the user and password"),
        ("the container offers no SASL mechanism of ours", "mechanisms"),
        ("something else", "it is dialed for ever at amqp://east.example:5672"),
    ],
)
def test_advice_follows_the_reason(error: str, advice: str) -> None:
    problem = only(router_snapshot(containers=[container("east", error=error)]))
    assert advice in problem.advice


def test_a_port_of_https_is_right_for_a_websocket() -> None:
    refused = container("east", error="Connection refused")
    assert "AMQP is at 5671" in only_advice(refused, "amqps://east.example:443")
    advice = only_advice(refused, "wss://east.example:443/amqp")
    assert advice.startswith("nothing listens at wss://east.example:443/amqp")


def only_advice(away: ContainerRecord, url: str) -> str:
    return only(router_snapshot(containers=[attrs.evolve(away, urls=(url,))])).advice


def test_a_container_that_dials_in_is_waited_for_and_not_dialed() -> None:
    away = attrs.evolve(container("plant7", error="taken", failed=2), urls=())
    problem = only(router_snapshot(containers=[away]))
    assert problem.text == "has not dialed in for 30 s; 2 connections were refused"
    assert "containers.plant7.identity" in problem.advice


def test_one_failed_attempt_is_an_attempt() -> None:
    problem = only(router_snapshot(containers=[container("east", failed=1)]))
    assert problem.text.endswith("(1 attempt failed)")


def test_a_container_that_is_just_being_dialed_is_only_a_warning() -> None:
    fresh = container("east", seconds=0.5, error=None, failed=0)
    problem = only(router_snapshot(containers=[fresh]))
    assert problem.severity is Severity.WARNING
    assert problem.text == "is not connected for 0.5 s"


def test_a_link_that_a_container_refuses_is_told_with_its_reason() -> None:
    refused = route(uplinks=(uplink("paused", "amqp:not-found: no such queue"), uplink("attached")))
    problem = only(router_snapshot(refused))
    assert problem.text == "east ends the link to 'orders': amqp:not-found: no such queue"
    assert problem.advice == (
        "make 'orders' there (the key declare in the route lets a broker of 0-9-1 or 0-10 make it),"
        " or correct the address in the route"
    )


def test_a_stall_says_what_waits_where_and_since_when() -> None:
    problem = only(router_snapshot(stalled()))
    assert problem.text == (
        "is stalled: 3 deliveries wait: nobody receives from it; nothing has moved for 75 s"
    )
    assert "router trace 'orders'" in problem.advice


def test_advice_for_senders_that_wait_does_not_point_to_deliveries() -> None:
    stall = Stall(address="orders", seconds=75.0, reason="1 sender waits: nobody", deliveries=0)
    advice = only(router_snapshot(route("orders", stall=stall))).advice
    assert advice == "the senders have no credit; router trace 'orders' shows what happens"


@pytest.mark.parametrize(
    ("untold", "told"),
    [
        (0, "their senders have that outcome; "),
        (12, "their senders had settled them: they were dropped; "),
        (5, "5 had been settled by their senders and were dropped; the senders of the others"),
    ],
)
def test_advice_says_whether_the_senders_of_what_was_rejected_know(untold: int, told: str) -> None:
    found = rejecting(reason="", untold=untold)
    assert only(router_snapshot(found)).advice.startswith(told)


@pytest.mark.parametrize(
    ("trouble", "advice"),
    [
        ("opentelemetry-sdk is not installed", "pip install '.[otel]'"),
        ("http://collector:4318 does not take spans", "start the collector at router.tracing"),
        ("the process ended with 1", "see the log for spans lines"),
    ],
)
def test_spans_that_are_not_exported_are_an_error_with_what_to_do(
    trouble: str, advice: str
) -> None:
    (problem,) = diagnose(router_snapshot(tracing_trouble=trouble))
    assert problem.severity is Severity.ERROR
    assert problem.text == f"spans are not exported: {trouble}"
    assert problem.advice.startswith(advice)


def test_spans_that_were_dropped_are_a_warning() -> None:
    (problem,) = diagnose(router_snapshot(tracing_dropped=2))
    assert problem.severity is Severity.WARNING
    assert problem.text.startswith("2 segments of the journal were dropped")


def test_spans_that_were_refused_are_a_warning_with_the_reason() -> None:
    (problem,) = diagnose(
        router_snapshot(tracing_refused=2, tracing_refusal="it refuses (HTTP 400)")
    )
    assert problem.severity is Severity.WARNING
    assert problem.text == "2 spans were dropped: it refuses (HTTP 400)"


def test_advice_names_the_dead_letters_to_which_what_was_rejected_went() -> None:
    table = RoutingTable((Route(address="orders", dead_letter=Endpoint("graveyard", "dead")),))
    found = rejecting(reason="", untold=12)
    snapshot = attrs.evolve(router_snapshot(found), routes=RouteList.of(table, (found,)))
    assert only(snapshot).advice.startswith(
        "their senders had settled them: they went to the dead letters at graveyard/dead; "
    )


def test_advice_does_not_say_that_senders_know_of_stored_messages_that_were_rejected() -> None:
    stored = Route(
        address="orders",
        to=(Endpoint("cloud"),),
        store=Storing(),
        dead_letter=Endpoint("graveyard", "dead"),
    )
    found = rejecting(reason="", untold=0)
    routes = RouteList.of(RoutingTable((stored,)), (found,))
    snapshot = attrs.evolve(router_snapshot(found), routes=routes)
    assert only(snapshot).advice.startswith(
        "what had been stored went to the dead letters at graveyard/dead; "
    )


def test_a_link_that_fails_at_two_workers_is_one_problem() -> None:
    failing = uplink("paused", "amqp:not-found: no queue")
    assert only(router_snapshot(route("orders", uplinks=(failing, failing)))).subject == "route"


# Workers that die

DEAD = WorkerLives(worker=2, is_up=False, ends=1, ended_at=4990.0, reason="signal SIGKILL")


def test_a_worker_that_died_is_a_problem_while_it_is_away_and_for_a_while_afterwards() -> None:
    problem = only(router_snapshot(lives=(DEAD,)))
    assert (problem.severity, problem.subject, problem.name) == (Severity.ERROR, "worker", "2")
    assert problem.text == "died 10 s ago: signal SIGKILL; it is started again"
    back = attrs.evolve(DEAD, is_up=True, ends=2)
    problem = only(router_snapshot(lives=(back,)))
    assert problem.severity is Severity.WARNING
    assert problem.text == (
        "has died 2 times, last 10 s ago: signal SIGKILL; a new process has taken its place"
    )
    assert diagnose(router_snapshot(lives=(attrs.evolve(back, ended_at=4000.0),))) == ()


def test_connections_that_wait_for_a_worker_are_a_problem_after_some_seconds() -> None:
    assert diagnose(router_snapshot(waiting=WaitingClients(2, 1.0))) == ()
    problem = only(router_snapshot(waiting=WaitingClients(2, 12.0)))
    assert (problem.severity, problem.subject) == (Severity.ERROR, "router")
    assert problem.text == (
        "has no worker for its clients: 2 accepted connections wait for a worker, the first for"
        " 12 s"
    )


def test_a_worker_that_is_started_for_the_first_time_is_no_problem() -> None:
    fresh = WorkerLives(worker=2, is_up=False)
    assert diagnose(router_snapshot(lives=(fresh, attrs.evolve(fresh, is_up=True)))) == ()


def test_a_site_of_the_mesh_that_is_not_reached_is_a_problem() -> None:
    mesh = MeshRecord(
        router="dc1", links=(), sites=(mesh_site("dc2", cost=10), mesh_site("dc3", cost=None))
    )
    problem = only(attrs.evolve(router_snapshot(), workers=(worker_snapshot(mesh=mesh),)))
    assert (problem.subject, problem.name, problem.severity) == ("site", "dc3", Severity.ERROR)
    assert "is not reached" in problem.text


def test_a_reason_of_the_journal_is_told_once_for_all_workers_that_have_it() -> None:
    full = JournalRecord(trouble="No space left on device", records=0, durable=0, waiting_octets=0)
    snapshot = router_snapshot()
    workers = tuple(worker_snapshot(number, journal=full) for number in (1, 2))
    assert only(attrs.evolve(snapshot, workers=workers)).name == "of the router"
    lone = (workers[0], worker_snapshot(2))
    assert only(attrs.evolve(snapshot, workers=lone)).name == "of worker 1"
    assert reasons_not_ready(attrs.evolve(snapshot, workers=workers)) == (
        "the journal cannot write: No space left on device",
    )


def test_the_reason_of_a_journal_that_does_not_answer_is_that_of_its_process() -> None:
    silent = JournalRecord(trouble=UNANSWERED, records=0, durable=0, waiting_octets=0)
    snapshot = attrs.evolve(
        router_snapshot(), workers=(worker_snapshot(journal=silent),), journal_trouble="it is full"
    )
    assert reasons_not_ready(snapshot) == ("the journal cannot write: it is full",)


def test_a_stall_at_one_address_of_a_pattern_names_the_address() -> None:
    pattern = attrs.evolve(stalled("orders.eu"), name="all", address="orders.#")
    assert "at 'orders.eu'" in only(router_snapshot(pattern)).text
    assert stalls(router_snapshot(pattern)) == (
        "route all is stalled: 3 deliveries wait: nobody receives from it at 'orders.eu';"
        " nothing has moved for 75 s",
    )


def test_a_spent_budget_and_a_held_peer_name_the_limits() -> None:
    peer = PeerRecord(container="bulk", is_configured=False, held=1, payload_octets=900)
    snapshot = with_core(
        router_snapshot(), payload_octets=950, payload_limit_octets=1000, peers=(peer,)
    )
    budget, held = diagnose(snapshot)
    assert "limits.process_octets" in budget.advice
    assert budget.text.startswith("950 of 1000 octets of payload wait for an outcome;")
    assert (held.subject, held.name) == ("peer", "bulk")
    assert "limits.connection_octets" in held.advice


def test_a_budget_nearly_spent_names_the_route_and_its_receivers() -> None:
    routes = (
        RouteRecord(name="small", address="a", payload_octets=50),
        RouteRecord(name="large", address="b", payload_octets=700),
    )
    peers = [
        PeerRecord(
            container=f"r{number}",
            is_configured=False,
            outgoing_unsettled=number,
            routes=(("small" if number == 9 else "large", Role.SENDER),),
        )
        for number in range(10)
    ]
    snapshot = with_core(
        router_snapshot(),
        payload_octets=750,
        payload_limit_octets=1000,
        routes=routes,
        peers=tuple(peers),
    )
    text = only(snapshot).text
    assert ", 700 of route large at r8, r7, r6 and 5 more receivers;" in text
    assert diagnose(with_core(snapshot, payload_octets=749)) == ()


def test_a_peer_that_does_not_read_is_named() -> None:
    peer = PeerRecord(container="slow", is_configured=False, congested=1)
    problem = only(with_core(router_snapshot(), peers=(peer,)))
    assert problem.text.startswith("reads slower")
    assert (problem.subject, problem.name) == ("peer", "slow")


def test_a_worker_that_does_not_read_is_named_by_its_number() -> None:
    peer = PeerRecord(container=sibling_name(2), is_configured=True, congested=1)
    problem = only(with_core(router_snapshot(), peers=(peer,)))
    assert (problem.subject, problem.name) == ("worker", "2")


def test_a_loop_that_was_late_is_told() -> None:
    late = worker_snapshot(core=core(), vitals=vitals(lag_seconds=0.5))
    problem = only(router_snapshot(workers=(late,)))
    assert problem.text == "its event loop was 0.50 s late"


def test_a_worker_that_does_not_answer_is_an_error() -> None:
    problem = only(router_snapshot(silent=(3,)))
    assert (problem.severity, problem.subject, problem.name) == (Severity.ERROR, "worker", "3")


def test_a_closed_listener_makes_the_router_unready() -> None:
    snapshot = router_snapshot(listeners=(listener(is_open=False),))
    assert only(snapshot).subject == "listener"
    assert reasons_not_ready(snapshot) == ("listener 127.0.0.1:5672 is not open",)


def test_a_draining_router_is_not_ready_and_closed_listeners_are_no_news() -> None:
    snapshot = router_snapshot(listeners=(listener(is_open=False),), is_draining=True)
    assert reasons_not_ready(snapshot) == ("it is draining",)
    assert only(snapshot).subject == "router"


def test_only_required_containers_are_waited_for() -> None:
    containers = [container("east"), container("west"), container("north", is_connected=True)]
    snapshot = router_snapshot(
        containers=containers, required_containers=("west", "north", "missing", "west")
    )
    assert reasons_not_ready(snapshot) == (
        "container west is not connected: Connection refused",
        "container missing is not connected",
    )


def test_a_stalled_router_is_ready() -> None:
    assert reasons_not_ready(router_snapshot(stalled())) == ()


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.25, "0.2 s"),
        (1, "1 s"),
        (119, "119 s"),
        (300, "5 min"),
        (9000, "2.5 h"),
        (200_000, "2 d"),
    ],
)
def test_durations_are_written_for_people(seconds: float, shown: str) -> None:
    assert show_seconds(seconds) == shown


def journal(trouble: str | None) -> JournalRecord:
    return JournalRecord(trouble=trouble, records=10, durable=4, waiting_octets=600)


@pytest.mark.parametrize(
    ("trouble", "advice"),
    [
        ("No space left on device", "make room on the disk of router.state"),
        ("Disk quota exceeded", "make room in the quota"),
        ("Input/output error", "look at the kernel's log"),
        ("its process does not answer", "see the log for journal lines"),
    ],
)
def test_a_journal_that_cannot_write_is_told_with_reason_and_advice(
    trouble: str, advice: str
) -> None:
    worker = worker_snapshot(journal=journal(trouble))
    problem = only(attrs.evolve(router_snapshot(), workers=(worker,)))
    assert (problem.severity, problem.subject) == (Severity.ERROR, "journal")
    assert problem.text.startswith(f"cannot write: {trouble}; exactly-once routes get no credit")
    assert advice in problem.advice


@pytest.mark.parametrize(
    ("trouble", "advice"),
    [
        ("No space left on device", "make room on the disk of the database"),
        ("Input/output error", "the database's own log"),
    ],
)
def test_a_journal_on_postgresql_that_cannot_write_is_advised_about_the_database(
    trouble: str, advice: str
) -> None:
    lease = LeaseRecord(leads=True, epoch=1, place="here", since=0.0, age_seconds=0.1)
    worker = worker_snapshot(journal=journal(trouble))
    problem = only(attrs.evolve(router_snapshot(), workers=(worker,), lease=lease))
    assert advice in problem.advice
    assert "router.state" not in problem.advice


def test_a_router_whose_journal_cannot_write_is_not_ready() -> None:
    worker = worker_snapshot(journal=journal("No space left on device"))
    snapshot = attrs.evolve(router_snapshot(), workers=(worker,))
    assert reasons_not_ready(snapshot) == ("the journal cannot write: No space left on device",)


def test_a_journal_that_writes_is_no_problem() -> None:
    worker = worker_snapshot(journal=journal(None))
    assert diagnose(attrs.evolve(router_snapshot(), workers=(worker,))) == ()


def test_logins_that_fail_again_and_again_are_told_by_source_over_all_workers() -> None:
    workers = tuple(
        worker_snapshot(
            number, logins=LoginRecord(failed=2, sources=(("10.0.0.7", 2), (f"{number}", 1)))
        )
        for number in (1, 2)
    )
    problem = only(attrs.evolve(router_snapshot(), workers=workers))
    assert (problem.severity, problem.name) == (Severity.WARNING, "10.0.0.7")
    assert "has failed to log in 4 times lately" in problem.text
    assert "check the user and password" in problem.advice


def test_a_router_that_nobody_dials_says_where_it_listens() -> None:
    problem = only(with_core(router_snapshot(), connections=0))
    assert problem.severity is Severity.NOTE
    assert problem.text == "has no connections: nobody dials it"
    assert "127.0.0.1:5672" in problem.advice
    young = with_core(router_snapshot(uptime_seconds=10.0), connections=0)
    assert diagnose(young) == ()


def test_a_login_that_is_refused_is_not_taken_for_a_port_where_nobody_listens() -> None:
    error = "amqp:unauthorized-access: the peer refused us: SASL code 1 (auth)"
    problem = only(router_snapshot(containers=[container("east", error=error)]))
    assert problem.advice == "check the user and password in containers.east"


@pytest.mark.parametrize(
    ("trouble", "advice"),
    [
        ("pyarrow is not installed", "pip install '.[spark]'"),
        ("[Errno 28] No space left on device", "make room on the disk of router.compaction"),
        ("something else", "see the log for ledger lines"),
    ],
)
def test_a_ledger_that_is_not_kept_up_to_date_is_an_error(trouble: str, advice: str) -> None:
    (problem,) = diagnose(router_snapshot(ledger_trouble=trouble))
    assert (problem.severity, problem.subject) == (Severity.ERROR, "ledger")
    assert trouble in problem.text
    assert problem.advice.startswith(advice)
    assert diagnose(router_snapshot()) == ()


async def test_a_router_without_pyarrow_says_that_it_keeps_no_ledger(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    health = LedgerHealth()
    options = Compaction(directory=tmp_path / "ledger")
    await keep_ledger(tmp_path, options, health)
    assert health.trouble == "pyarrow is not installed"


async def test_a_compaction_that_fails_says_why(tmp_path: Path) -> None:
    trouble = await compact(tmp_path, Compaction(directory=tmp_path / "ledger"))
    assert trouble is not None
    assert "no journal here" in trouble or "pyarrow" in trouble
