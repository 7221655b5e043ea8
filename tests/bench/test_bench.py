"""The benchmark's own arithmetic: what is compared with what, and what people are shown."""

import json
import socket
from pathlib import Path
from typing import cast

import pytest
import yaml
from click.testing import CliRunner

from router.core.homes import rendezvous
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.codec import CODEC
from router.wire.v0_9_1.framing import BODY, HEADER, METHOD, frame
from tests.bench import history, show, workers
from tests.bench.__main__ import main
from tests.bench.bare_bridge import Peer, confirmed, measure
from tests.bench.cases import CASES, Case
from tests.bench.goals import GOALS, Report
from tests.bench.measure import Conditions, Figures, Result, _medians, command, runs_within
from tests.bench.shovel import Run, summary
from tests.bench.subjects import another, configuration
from tests.support.running import RunningRouter


def figures(rate: float, p99: float = 100.0) -> Figures:
    """What a run of the load program comes to."""
    return {
        "messages_per_second": rate,
        "octets_per_second": rate * 100,
        "cpu_ns_per_message": 1e9 / rate,
        "one_way_p50_us": p99 / 2,
        "one_way_p99_us": p99,
        "one_way_p999_us": p99 * 2,
    }


def result(name: str, router: float, relay: float, **subjects: Figures) -> Result:
    found = next(case for case in CASES if case.name == name)
    return Result(
        case=found, figures={"relay": figures(relay), "router": figures(router), **subjects}
    )


def report(**others: Figures) -> Report:
    results = {
        "links 10": result("links 10", 4e6, 8e6),
        "100,000 routes": result("100,000 routes", 3e6, 8e6),
        "paced 20,000/s": Result(
            case=Case(name="paced 20,000/s"),
            figures={"relay": figures(2e4, 100.0), "router": figures(2e4, 350.0)},
        ),
    }
    return Report(results=results, others=others)


def test_every_case_has_a_name_of_its_own_and_every_goal_names_cases_that_exist() -> None:
    names = [case.name for case in CASES]
    assert len(set(names)) == len(names)
    measured = Report(
        results={name: result(name, 1e6, 2e6) for name in names},
        others={
            "timer": {"timer_p99_us": 1.0},
            "idle": {"octets_each": 1.0},
            "storm": {"seconds": 1.0, "longest_gap_us": 1.0},
            "unsettled": {"octets_each": 1.0, "collection_us": 1.0},
            "stored": {"stored_per_second": 1.0, "drained_part": 1.0},
            "stored, beside": {"paced_part": 1.0},
            "workers": {"of_one": 1.0},
            "exact": {"of_two_flushes": 1.0},
            "postgres": {"of_bare": 1.0},
            "crossing": {"of_home": 1.0},
            "hops": dict.fromkeys(("hop_part", "growth", "exact_hop_part", "exact_growth"), 1.0),
            "shovel": {"of_shovel": 1.0},
            "shovel, 10 KB": {"of_shovel": 1.0},
            "tables": {"first_part": 1.0, "start_growth": 1.0, "reload_growth": 1.0},
        },
    )
    assert all(goal.value(measured) is not None for goal in GOALS)


def test_goals_look_at_shares_ratios_and_differences() -> None:
    values = {goal.text: goal.value(report(idle={"octets_each": 9000.0})) for goal in GOALS}
    assert values["10 links, messages/s"] == 4e6
    assert values["10 links, of the relay"] == 0.5
    assert values["100,000 routes, of 10"] == 0.75
    assert values["p99 added at 20,000/s, us"] == 250.0
    assert values["idle connection, octets"] == 9000.0
    assert values["1 MiB, of the relay"] is None
    assert values["10 ms timer late at p99, us"] is None


def test_tls_is_compared_by_processor_time_with_haproxy_or_else_the_relay() -> None:
    name = "TLS, 1 KiB"
    beside = Report(results={name: result(name, 1e6, 4e6, haproxy=figures(2e6))}, others={})
    alone = Report(results={name: result(name, 1e6, 4e6)}, others={})
    assert beside.share_by_time(name) == 0.5
    assert alone.share_by_time(name) == 0.25
    assert alone.share_by_time("TLS, 16 KiB") is None


def test_a_case_inside_tls_has_a_listener_with_a_certificate() -> None:
    case = next(case for case in CASES if case.tls)
    assert "tls: {cert: /b/server.pem, key: /b/server.pem}" in configuration(
        case, 5671, Path("/b/state")
    )
    assert case.relay_load["tls"] == 1


@pytest.mark.parametrize("scheme", ["amqps", "wss"])
def test_a_case_whose_router_dials_itself_has_all_messages_pass_that_connection(
    scheme: str,
) -> None:
    case = next(case for case in CASES if case.dials == scheme)
    config = yaml.safe_load(configuration(case, 5671, Path("/b/state")))
    dialed = config["listeners"][1]["bind"]
    assert config["containers"]["self"]["url"] == f"{scheme}://{dialed}"
    routes = {route["address"]: route.get("to") for route in config["routes"]}
    assert routes["#"] == "self/dialed.#"
    assert routes["dialed.#"] is None


def test_the_median_of_runs_counts() -> None:
    assert _medians([figures(3.0), figures(1.0), figures(2.0)])["messages_per_second"] == 2.0


def test_the_tables_say_what_was_reached_and_what_was_missed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    show.print_report(report(), {"links 10": -0.25, "100,000 routes": 0.04})
    printed = capsys.readouterr().out
    assert "reached" in printed
    assert "missed" in printed
    assert "links 10: -25% against the relay" in printed
    assert "100,000 routes: +4% against" not in printed


def test_history_compares_with_the_last_run_on_the_same_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "RESULTS", tmp_path)
    monkeypatch.setattr(history, "HISTORY", tmp_path / "history.jsonl")
    first = history.entry(report())
    assert history.changes(first) == {}
    history.append(first)
    elsewhere = json.loads(json.dumps(first))
    elsewhere["machine"] = "another"
    elsewhere["cases"]["links 10"]["of_relay"] = 99.0
    history.append(elsewhere)
    slower = Report(results={"links 10": result("links 10", 2e6, 8e6)}, others={})
    assert history.changes(history.entry(slower)) == {"links 10": pytest.approx(-0.5)}


def test_a_routing_table_has_as_many_routes_as_its_case(tmp_path: Path) -> None:
    text = configuration(Case(name="routes", routes=50), 5672, tmp_path)
    assert text.count("- address:") == 50
    assert "127.0.0.1:5672" in text


def test_another_router_is_put_under_the_same_load() -> None:
    case = Case(name="case", senders=3, size=77)
    subject = another(case, "amqp://guest:guest@127.0.0.9:5673")
    assert subject.port == 5673
    assert subject.options["host"] == "127.0.0.9"
    assert subject.options["sasl"] == 1
    assert subject.options["size"] == 77
    assert another(case, "amqp://127.0.0.1").port == 5672


def test_a_relay_gets_as_many_pairs_as_the_larger_side_has_links() -> None:
    load = Case(name="fan-in", senders=100, receivers=1).relay_load
    assert (load["senders"], load["receivers"]) == (100, 100)


def test_each_run_has_addresses_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.bench.measure.program", lambda name: name)
    conditions = Conditions(subject_core=None, load_core=1, runs=1, seconds=1)
    one, other = (command({"size": 7}, conditions) for _ in range(2))
    assert one[:4] == ["taskset", "-c", "1", "load"]
    assert "size=7" in one
    assert {each for each in one if each.startswith("address=")} != {
        each for each in other if each.startswith("address=")
    }


def test_a_program_of_homes_has_addresses_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "program", lambda name: name)
    monkeypatch.setattr(workers, "address_of", lambda router: "127.0.0.1:5672")
    setting = workers.HOMES[workers.SPREAD]
    names = [setting.names(number) for number in range(4)]
    homes = [{rendezvous(name % each, 4) for each in range(workers.GROUP)} for name in names]
    assert homes == [{1}, {2}, {3}, {4}]
    assert len({workers.HOMES[workers.ALONE].names(0), *names}) == 5
    router = cast("RunningRouter", None)
    assert f"address={names[0]}" in workers.options(router, 4, 1.0, address=names[0])
    one, other = (workers.options(router, 4, 1.0) for _ in range(2))
    assert set(one) ^ set(other) == {each for each in (*one, *other) if each.startswith("address=")}


def test_a_load_is_measured_between_its_warmup_and_its_end(tmp_path: Path) -> None:
    script = tmp_path / "load"
    script.write_text(
        'echo measuring; echo "{\\"measured\\": 7}"; cat >"$0.end"; echo "$1" >"$0.end"'
    )
    with workers.loaded(["sh", str(script)]) as (load,):
        assert load.wait() == {"measured": 7}
        assert load.process.poll() is None
    assert (tmp_path / "load.end").read_text() == "marks=1\n"
    with (
        pytest.raises(RuntimeError, match="the load ended: 3"),
        workers.loaded(["sh", "-c", "exit 3"]),
    ):
        pass


def test_a_case_is_run_with_the_load_program_that_it_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tests.bench.measure.program", lambda name: name)
    conditions = Conditions(subject_core=None, load_core=None, runs=1, seconds=1)
    for name, expected in (("lean 10", "lean"), ("links 10", "load")):
        case = next(case for case in CASES if case.name == name)
        subject = another(case, "amqp://127.0.0.1")
        assert command(subject.options, conditions, subject.program)[0] == expected


def test_what_a_message_takes_is_compared_beside_the_rates(
    capsys: pytest.CaptureFixture[str],
) -> None:
    name = "lean 10"
    measured = Report(results={name: result(name, 2e6, 8e6)}, others={})
    assert measured.share_by_time(name) == 0.25
    show.print_report(measured, {})
    assert "by CPU" in capsys.readouterr().out


def test_cases_are_listed_by_what_their_names_contain() -> None:
    listed = CliRunner().invoke(main, ["--list", "--only", "links 100, window"])
    assert listed.output.splitlines() == ["links 100, window 10"]
    quick = CliRunner().invoke(main, ["--list", "--quick"]).output.splitlines()
    every = CliRunner().invoke(main, ["--list"]).output.splitlines()
    assert set(quick) < set(every)
    assert {"timer", "idle", "unsettled"} < set(quick)
    assert set(every) - set(quick) >= {"crossing", "hops"}


def test_what_cannot_be_measured_is_named_and_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(case: Case, _: Conditions) -> Result:
        if case.name == "links 100":
            raise RuntimeError("nobody listens")
        return result(case.name, 1e6, 2e6)

    monkeypatch.setattr("tests.bench.__main__.measure", measured)
    monkeypatch.setattr("tests.bench.__main__.RESULTS", tmp_path)
    monkeypatch.setattr(history, "RESULTS", tmp_path)
    monkeypatch.setattr(history, "HISTORY", tmp_path / "history.jsonl")
    only = ["--only", "links 10"]
    run = CliRunner().invoke(main, only)
    assert run.exit_code == 0
    assert "links 100: not measured: RuntimeError: nobody listens" in run.output
    written = json.loads((tmp_path / "latest.json").read_text())
    assert written["failed"] == {"links 100": "RuntimeError: nobody listens"}
    assert "links 1000" in written["cases"]
    assert written["goals"]["10 links, of the relay"] == 0.5
    assert "links 1000" in (tmp_path / "latest.svg").read_text()


def test_runs_get_fewer_where_time_is_short() -> None:
    conditions = Conditions(subject_core=0, load_core=1, runs=3, seconds=1.5)
    runs = [runs_within(seconds, conditions) for seconds in (-5, 0, 9, 12, 17, 100)]
    assert runs == [1, 1, 1, 2, 3, 3]
    more = Conditions(subject_core=0, load_core=1, runs=3, seconds=1.5, against=("amqp://other",))
    assert runs_within(17, more) == 2


def test_a_plot_shows_every_case_and_subject(tmp_path: Path) -> None:
    results = {
        "links 10": result("links 10", 4e6, 8e6, **{"amqp://127.0.0.1:5673": figures(1e5)}),
        "1 MiB & more": result("1 MiB", 500, 700),
    }
    file = tmp_path / "plot.svg"
    show.plot(results, file)
    drawn = file.read_text()
    for text in ("links 10", "1 MiB &amp; more", "router", "relay", "amqp://127.0.0.1:5673"):
        assert text in drawn
    assert drawn.count('class="bar"') == 5


def test_the_load_is_told_which_protocols_and_whether_ids_are_its_own() -> None:
    case = next(case for case in CASES if case.name == "0-9-1 to 1.0, own ids")
    told = command(case.load, Conditions(subject_core=None, load_core=None, runs=1, seconds=1))
    assert {"send=0-9-1", "take=1.0", "own=1"} <= set(told)


def test_the_shovel_is_compared_by_medians_with_what_each_process_took() -> None:
    told = summary(
        {
            "shovel": [Run(rate, {"west": 80.0}) for rate in (9e3, 1e4, 2e4)],
            "router": [Run(2e4, {"west": 40.0, "mover": 7.0})],
            "bare": [Run(25e3, {"west": 40.0, "mover": 3.0})],
        }
    )
    assert told == {
        "shovel": {"messages_per_second": 10000, "west_us": 80},
        "router": {"messages_per_second": 20000, "west_us": 40, "mover_us": 7},
        "bare": {"messages_per_second": 25000, "west_us": 40, "mover_us": 3},
        "ratio": 2.0,
        "of_bare": 0.8,
    }


def test_the_least_bridge_measures_a_delivery_and_reads_how_far_the_node_confirmed() -> None:
    node, own = socket.socketpair()
    with node, own:
        method = frame(METHOD, 1, CODEC.encode(m.BasicDeliver(delivery_tag=1, routing_key="q")))
        node.sendall(method + frame(HEADER, 1, bytes(14)) + frame(BODY, 1, b"body"))
        assert measure(Peer(own)) == (len(method) + 22 + 12, len(method))
        for number in (3, 7):
            node.sendall(frame(METHOD, 1, CODEC.encode(m.BasicAck(number, multiple=True))))
        assert confirmed(Peer(own)) == 7
