"""Whatever peers call themselves, their links and addresses: every command prints text."""

import contextlib
import json
import re
import socket
import threading
from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import attrs
import pytest
from click.testing import CliRunner, Result
from rich.console import Console

from router.cli import audit as audit_verb
from router.cli import screen
from router.cli import traffic as traffic_verb
from router.cli.main import VERBS, main
from router.core.snapshot import PeerRecord
from router.core.trace import TraceLine
from router.journal.disk import Disk
from router.journal.keys import LinkKey
from router.journal.log import Log
from router.journal.record import LinkDescription
from router.model.commands import (
    RefuseLink,
    SendDeliveries,
)
from router.model.condition import NOT_FOUND, Condition
from router.model.delivery import OutgoingDelivery
from router.model.events import CreditGranted, LinkAttached
from router.model.identity import DeliveryNumber, DeliveryTag
from router.model.terminus import Role
from router.model.text import SHOWN_MOST, shown
from router.pipeline import audit as audits
from router.pipeline import traffic as traffics
from router.pipeline.clocks import Clock
from router.pipeline.coverage import LedgerHole, Reach
from router.pipeline.offenders import Offender
from router.pipeline.report import render
from router.pipeline.stories import Event
from router.pipeline.tally import Correction
from router.service.control import (
    MeshLinkRecord,
    MeshRecord,
    MeshSiteRecord,
    MeshWayRecord,
    StoredRecord,
    StoreRecord,
)
from router.service.difference import Change, Difference
from router.service.fleet import ReloadReport
from router.wire.engine import EngineSettings
from router.wire.mechanisms import Mechanism, MechanismServer
from router.wire.v1_0.engine import Engine10
from router.wire.v1_0.sections import AnnotatedMessage, Properties, encode_message
from tests.support.accepting import accepting
from tests.support.fleets import (
    FakeControl,
    FakeSteering,
    Fleet,
    container,
    core,
    delivery,
    route,
    stalled,
    uplink,
    worker_snapshot,
)
from tests.support.journal import SECOND_NS, SOURCE, START_NS, append, key, new_writer
from tests.support.served import serving

NAMES = {
    "plain": "plain",
    "ansi": "\x1b[31mred\x1b]0;title\x07\x1b[2J",
    "c1": "\x9b31m\x90\x85",
    "return": "good\rbad",
    "newline": "one\ntwo\r\nthree",
    "bidi": "\u202egnol\u2066x\u2069",
    "unseen": "a\u200bb\ufeffc\u2028d\xa0e\xad",
    "nul": "a\0b\x7f",
    "html": "<script>alert('x')</script>&amp;<img src=x onerror=y>",
    "rich": "[red]x[/red][/][link=http://x]y[/link]",
    "rich broken": "[/nonsense][bold",
    "emoji code": ":skull: %s {0} ${HOME}",
    "formula": "=HYPERLINK(A1)",
    "tags": "\U000e0041\U000e0042",
    "long": "x" * 20_000,
    "long and bad": "\x1b" * 20_000,
}

SGR = re.compile(r"\x1b\[[0-9;]*m")
"""Styles: all of ANSI that we write ourselves."""

LINE_MOST = 6_000
"""Characters of a line for people, whatever is in it."""

names = pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)

NOTHING_FOREIGN = {"run", "demo", "ledger", "otel", "replay"}
"""``run`` logs, which test_log.py holds to the same; the others print counts and files of ours."""


def check(text: str, *, most: int = LINE_MOST) -> None:
    """Holds a text to being printable lines."""
    for line in text.split("\n"):
        assert line.isprintable(), ascii(line)
        assert len(line) <= most, len(line)


def run(*arguments: str, **options: Any) -> Result:
    result = CliRunner().invoke(main, list(arguments), **options)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    check(result.output, most=1 << 20 if "--json" in arguments else LINE_MOST)
    return result


def lines_of(result: Result) -> int:
    return len(result.output.splitlines())


# --- a running router -----------------------------------------------------------------------------


def named(name: str) -> Fleet:
    """A router in which everything that has a name has that."""
    known = core(
        route(name, to=(name,), from_=name, senders=2, receivers=1, incoming_unsettled=2),
        stalled(f"{name} stalled", senders=1, queued=3, blocked_senders=1),
        route(f"{name} broken", to=(name,), senders=1, uplinks=(uplink("away", name, name),)),
        route(f"{name} refused", to=(name,), senders=1, uplinks=(uplink("paused", name, name),)),
        peers=(PeerRecord(container=name, is_configured=False, routes=((name, Role.RECEIVER),)),),
    )
    worker = FakeControl(
        fares=worker_snapshot(
            core=known,
            containers=(
                container(name, error=name, urls=(name,)),
                container(f"{name} there", is_connected=True, address=name),
            ),
            store=StoreRecord(is_connected=True, routes=(stored(name), stored(None))),
        ),
        unsettled=tuple(
            delivery(
                b"\x01",
                3.0,
                route=name,
                address=name,
                container=name,
                link=name,
                to_container=name,
                to_link=name,
                state=state,
            )
            for state in ("in doubt", "sent")
        ),
        lines=[
            [
                traced("transfer", name, name, is_incoming=True, delivery=1),
                traced(name, name, name, is_incoming=False),
                traced("decision", None, name, delivery=1),
            ]
        ],
        routes={name},
        shared_mesh=mesh(name),
    )
    changed = Difference(section="routes", name=name, change=Change.CHANGED, options=(name,))
    steering = FakeSteering(
        id=name,
        required_containers=(name,),
        report=ReloadReport(differences=(changed,)),
    )
    return Fleet([worker], steering)


def mesh(name: str) -> MeshRecord:
    """A mesh in which routers are called so, and what they serve."""
    site = MeshSiteRecord(
        router=name, cost=10, hop=name, links=((name, 10),), prefixes=(name, "x"), addresses=1
    )
    return MeshRecord(
        router=name,
        links=(MeshLinkRecord(router=name, cost=10, is_up=True),),
        sites=(site,),
        ways=(MeshWayRecord(egress=name, hop=name, cost=10),),
    )


def stored(route: str | None) -> StoredRecord:
    return StoredRecord(
        route=route,
        messages=3,
        octets=100,
        oldest_seconds=5.0,
        is_full=True,
        stored_rate=1.0,
        forwarded_rate=1.0,
        dead=1,
        resting=1,
        rests_seconds=2.0,
    )


def traced(what: str, peer: str | None, text: str, **fields: Any) -> TraceLine:
    line = TraceLine(
        seconds=0.1,
        what=what,
        is_incoming=None,
        delivery=None,
        container=peer,
        link=peer,
        text=text,
    )
    return attrs.evolve(line, **fields)


@contextlib.contextmanager
def asked(name: str) -> Iterator[Callable[..., Result]]:
    with serving(named(name)) as up:
        place = up.url.removeprefix("http://").rstrip("/")

        def ask(*arguments: str) -> Result:
            return run(*arguments, "--admin", place)

        yield ask


def walk_status(name: str, folder: Path) -> None:
    with asked(name) as ask, asked(shown(name)) as ask_plain:
        told, plain = ask("status", "--all"), ask_plain("status", "--all")
        assert told.exit_code == 0
        assert lines_of(told) == lines_of(plain) or len(name) > SHOWN_MOST
        json.loads(ask("status", "--json").output)


def walk_top(name: str, folder: Path) -> None:
    with asked(name) as ask:
        assert ask("top", "--count", "1").exit_code == 0


def walk_deliveries(name: str, folder: Path) -> None:
    with asked(name) as ask, asked("plain") as ask_plain:
        told = ask("deliveries")
        assert told.exit_code == 0
        assert lines_of(told) == lines_of(ask_plain("deliveries"))
        (found, _) = json.loads(ask("deliveries", "--json").output)
        assert found["container"] == name


def walk_store(name: str, folder: Path) -> None:
    with asked(name) as ask, asked(shown(name)) as ask_plain:
        told, plain = ask("store"), ask_plain("store")
        assert told.exit_code == 0
        assert lines_of(told) == lines_of(plain) or len(name) > SHOWN_MOST
        (found, _) = json.loads(ask("store", "--json").output)["routes"]
        assert found["route"] == name


def walk_mesh(name: str, folder: Path) -> None:
    with asked(name) as ask, asked(shown(name)) as ask_plain:
        told, plain = ask("mesh"), ask_plain("mesh")
        assert told.exit_code == 0
        assert lines_of(told) == lines_of(plain)
        (site,) = json.loads(ask("mesh", "--json").output)["sites"]
        assert site["router"] == name
        assert ask("mesh", "--check").exit_code == 0


def walk_trace(name: str, folder: Path) -> None:
    with asked(name) as ask:
        assert ask("trace", "orders").output.count("transfer:") == 1
        assert len(ask("trace", "orders", "--json").stdout.splitlines()) == 3


def walk_pause(name: str, folder: Path) -> None:
    if not 0 < len(name) < 1000:
        return  # the API takes no such name, and says so
    with asked(name) as ask:
        assert lines_of(ask("pause", name)) == 1
        assert lines_of(ask("resume", name)) == 1
        unknown = ask("pause", f"{name} unknown")
        assert unknown.exit_code == 1
        assert lines_of(unknown) == 1


def walk_drain(name: str, folder: Path) -> None:
    with asked(name) as ask:
        assert lines_of(ask("drain", "--no-wait")) == 1


def walk_reload(name: str, folder: Path) -> None:
    with asked(name) as ask:
        assert lines_of(ask("reload")) == 2  # the difference, and what it comes to


# --- files ----------------------------------------------------------------------------------------


def walk_check(name: str, folder: Path) -> None:
    run("check", str(config(name, folder)))


def walk_explain(name: str, folder: Path) -> None:
    file = str(config(name, folder))
    run("explain", file, "orders")
    run("explain", file, name)
    with serving(named(name)) as up:
        host, _, port = up.url.removeprefix("http://").rstrip("/").rpartition(":")
        text = config("plain", folder).read_text()
        Path(file).write_text(text.replace("{id: x}", f'{{admin: "{host}:{port}"}}'))
        ways = run("explain", file, "orders", "--mesh")
        assert ways.exit_code == 0
        assert lines_of(ways) == 3


def config(name: str, folder: Path) -> Path:
    """A file in which a route is called so."""
    file = folder / "router.yaml"
    routes = json.dumps([{"name": name, "address": "orders"}])
    file.write_text(f"router: {{id: x}}\nlisteners: [{{bind: '127.0.0.1:0'}}]\nroutes: {routes}\n")
    return file


def walk_user(name: str, folder: Path) -> None:
    file = str(folder / "users")
    run("user", "add", file, name, input="secret\n")
    run("user", "list", file)
    run("user", "remove", file, f"{name} unknown")


def walk_journal(name: str, folder: Path) -> None:
    short = name[:1000]
    log = Log(folder, "dc1", disk=Disk(), incarnation=START_NS)
    log.open(START_NS)
    writer = new_writer()
    description = LinkDescription(
        key=LinkKey(SOURCE), is_incoming=True, local="dc1", remote=short, name=short
    )
    writer.link_attached(START_NS, description)
    writer.received(
        START_NS, key(1), SOURCE, b"\x1b[2J", payload=b"x", address=short, message_octets=1
    )
    append(log, writer)
    assert log.commit(START_NS + SECOND_NS)
    log.close(START_NS)
    table = run("journal", "inspect", str(folder))
    assert table.exit_code == 0
    assert lines_of(table) == 4
    told = [
        json.loads(line)
        for line in run("journal", "inspect", "--json", str(folder)).output.splitlines()
    ]
    assert told[0]["link"]["remote"] == short


# --- the pipeline ---------------------------------------------------------------------------------


def found_by_audit(name: str) -> audits.Audit:
    flow = audits.Flow(
        address=name,
        source=name,
        target=name,
        from_router=name,
        to_router=name,
        deliveries=1,
        octets=1,
        milliseconds=(1.0, 2.0, 3.0, 4.0),
    )
    event = Event(
        at="2026-01-01T00:00:00.000000Z",
        time_ns=START_NS,
        router=name,
        worker=1,
        incarnation=1,
        sequence=1,
        text=f"received <- {name}",
    )
    offender = Offender(key="00" * 16, verdict="in-doubt", address=name, history=(event,))
    reach = Reach(
        router=name, begun_ns=1, reach_ns=2, has_ended=False, is_declared=False, holes=((1, 2),)
    )
    hole = LedgerHole(
        router=name, worker=1, incarnation=1, first=1, last=2, after_ns=1, before_ns=2
    )
    return audits.Audit(
        routers=(name,),
        files=1,
        records=1,
        since="2026-01-01T00:00:00",
        until="2026-01-01T00:00:01",
        verdicts={"lost": 0, "duplicated": 0, "in-doubt": 1},
        carried={"lost": 0, "duplicated": 0},
        flows=(flow,),
        rates=(),
        offenders=(offender,),
        holes=(hole,),
        corrected=(Correction(before="lost", after="open", deliveries=1),),
        reaches=(reach,),
        clocks=(Clock(router=name, reference=f"other {name}", ahead_ns=10**9, within_ns=1),),
        unseen=(f"unseen {name}",),
        too_late=(name,),
        future=(name,),
    )


def walk_audit(name: str, folder: Path) -> None:
    with pytest.MonkeyPatch.context() as patch:
        stand_in(patch, audit_verb)
        patch.setattr(audits, "audit", lambda *_, **__: found_by_audit(name))
        out = str(folder / "out")
        assert lines_of(run("audit", str(folder), "--out", out, "--html")) == 9
        told = json.loads(run("audit", str(folder), "--json").output)
        assert told["offenders"][0]["address"] == name
    page = (folder / "out" / "audit.html").read_text()
    check(page, most=40_000)
    assert page == render(found_by_audit(name))
    assert "<script" not in page
    assert "<img" not in page
    assert "<td>=" not in page


def walk_traffic(name: str, folder: Path) -> None:
    cell = traffics.Cell(
        from_site=name,
        to_site=name,
        source=name,
        target=name,
        address=name,
        deliveries=1,
        delivered=1,
        octets=1,
        milliseconds=(1.0, 2.0, 3.0, 4.0),
    )
    found = traffics.Traffic(
        seconds=3600,
        matrix=(cell,),
        spans=(traffics.Span(start="2026-01-01T00:00", address=name, deliveries=1, octets=1),),
        talkers=(traffics.Talker(container=name, direction="sent", deliveries=1, octets=1),),
    )
    with pytest.MonkeyPatch.context() as patch:
        stand_in(patch, traffic_verb)
        patch.setattr(traffics, "summarize", lambda *_, **__: found)
        assert lines_of(run("traffic", str(folder))) == 8
        json.loads(run("traffic", str(folder), "--json").output)


def stand_in(patch: pytest.MonkeyPatch, verb: Any) -> None:
    """Does without Spark."""
    patch.setattr(verb, "need_spark", lambda: None)
    patch.setattr(verb, "spark_session", lambda *_: contextlib.nullcontext())


# --- peers ----------------------------------------------------------------------------------------


def answering(name: str) -> Iterator[int]:
    """A peer that refuses links of senders with that, and sends that to receivers; its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = listener.accept()
                with peer, contextlib.suppress(OSError):
                    converse(peer, name)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(30)


def converse(peer: socket.socket, name: str) -> None:
    settings = EngineSettings(
        is_server=True,
        container="peer",
        sasl_server=lambda: MechanismServer(offer=[Mechanism.ANONYMOUS]),
    )
    engine = Engine10(settings)
    while not engine.finished:
        octets = peer.recv(65536)
        events = engine.receive_data(octets, 0.0) if octets else engine.receive_eof(0.0)
        for event in events:
            match event:
                case LinkAttached(role=Role.RECEIVER, link=link):
                    engine.execute(RefuseLink(link, Condition(NOT_FOUND, name)))
                case LinkAttached(link=link):
                    engine.execute(accepting(event))
                case CreditGranted(link=link, credit=credit) if credit:
                    message = AnnotatedMessage(
                        properties=Properties(message_id=name[:100]), data=[name.encode()]
                    )
                    engine.execute(
                        SendDeliveries(
                            link,
                            [
                                OutgoingDelivery(
                                    DeliveryNumber(1), DeliveryTag(b"1"), encode_message(message)
                                )
                            ],
                        )
                    )
                case _:
                    pass
        while octets_out := bytes(engine.data_to_send()):
            peer.sendall(octets_out)
            engine.bytes_sent(len(octets_out))
        if not octets:
            return


def walk_send(name: str, folder: Path) -> None:
    with contextlib.contextmanager(answering)(name) as port:
        refused = run("send", f"amqp://127.0.0.1:{port}", "orders", "--timeout", "5")
        assert refused.exit_code == 1
        assert "amqp:not-found" in refused.output


def walk_receive(name: str, folder: Path) -> None:
    with contextlib.contextmanager(answering)(name) as port:
        place = f"amqp://127.0.0.1:{port}"
        result = CliRunner().invoke(
            main, ["receive", place, "orders", "--count", "1", "--show", "--timeout", "5"]
        )
        assert result.exit_code == 0, result.output
        check(result.output, most=100_000)
        assert lines_of(result) == 2


WALKS = {
    verb: globals()[f"walk_{verb}"]
    for verb in VERBS
    if verb not in NOTHING_FOREIGN and verb != "resume"
}
"""By verb; resume is walked with pause."""


@names
@pytest.mark.parametrize("verb", WALKS)
def test_every_command_prints_text_whatever_peers_are_called(
    verb: str, name: str, tmp_path: Path
) -> None:
    WALKS[verb](name, tmp_path)


@names
def test_on_a_terminal_nothing_but_our_own_styles_is_more_than_text(name: str) -> None:
    from tests.support.fleets import Site

    async def overview() -> Any:
        site = Site(named(name))
        return (await site.get("/api/v1/overview")).json, (
            await site.get("/api/v1/deliveries")
        ).json

    import trio

    fares, deliveries = trio.run(overview)
    into = StringIO()
    console = Console(file=into, force_terminal=True, width=160, height=50, highlight=False)
    console.print(screen.overview(console, fares, 50))
    console.print(screen.deliveries(deliveries["deliveries"], 160))
    text = into.getvalue()
    check(SGR.sub("", text))
    if name == NAMES["rich"]:
        assert "[red]x[/red]" in text


def test_arguments_that_are_no_text_are_bad_usage() -> None:
    odd = "t\udcff"
    for arguments in (
        ("send", "amqp://127.0.0.1:1", odd),
        ("send", "amqp://127.0.0.1:1", "x", "--name", odd),
        ("send", "amqp://127.0.0.1:1", "x", "--body", odd),
        ("receive", "amqp://127.0.0.1:1", odd),
        ("trace", odd),
        ("pause", odd),
        ("deliveries", "--route", odd),
        ("deliveries", "resolve", "00", "--accept", "--link", odd),
        ("explain", "router.yaml", odd),
        ("user", "add", "users", odd),
    ):
        result = run(*arguments)
        assert result.exit_code == 2, arguments
        assert "'t\\\\xff' is not UTF-8" in result.output
