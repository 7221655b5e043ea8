import fcntl
import json
import os
import socket
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner, Result

from router.cli.check import command

EXAMPLES = Path(__file__).parents[2] / "examples" / "configs"
VARIABLES = {"EAST_PASSWORD": "x", "WEST_PASSWORD": "y", "BROKER_PASSWORD": "z"}

LONGEST = {
    "bridge": 10,
    "sidecar": 8,
    "mesh": 10,
    "multicast": 4,
    "auto-link": 8,
    "link-route": 6,
}

BRIDGE = """\
containers:
  east: {url: amqp://east, protocol: amqp-0-9-1}
  west: {url: amqp://west}
routes:
  - address: orders.eu
    from: east/orders.eu
    to: west/orders.europe
    guarantee: exactly-once
"""


def check(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments, env=VARIABLES, catch_exceptions=False)


@pytest.fixture
def bridge(tmp_path: Path) -> Path:
    file = tmp_path / "router.yaml"
    file.write_text(BRIDGE)
    return file


@pytest.mark.parametrize("job", LONGEST)
def test_usual_job_passes_and_stays_short(job: str) -> None:
    file = EXAMPLES / f"{job}.yaml"
    result = check(str(file))
    assert (result.exit_code, result.stderr) == (0, "")
    schema, *lines = file.read_text().splitlines()
    assert schema.startswith("# yaml-language-server: ")
    assert len(lines) <= LONGEST[job]


def test_every_example_has_its_length_tested() -> None:
    assert {file.stem for file in EXAMPLES.glob("*.yaml")} == set(LONGEST)


def test_bad_file_exits_with_two_and_says_nothing_but_its_problems(bridge: Path) -> None:
    bridge.write_text(BRIDGE + "rotues: []\n")
    result = check(str(bridge))
    assert result.exit_code == 2
    assert result.stdout == ""
    refusal, unknown = result.stderr.splitlines()
    assert refusal.startswith(f"{bridge}:8:16: exactly-once towards west: it neither resumes")
    assert unknown == f"{bridge}:9:1: unknown key 'rotues'; the nearest known one is 'routes'"


def test_missing_file_is_reported_in_the_same_form(tmp_path: Path) -> None:
    result = check(str(tmp_path / "gone.yaml"))
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"{tmp_path}/gone.yaml:1:1: cannot read: No such file or directory\n"


def test_each_route_is_printed_with_what_it_really_gives_and_why(bridge: Path) -> None:
    more = "    in_doubt: hold\n  - {address: prices.*, distribution: multicast}\n"
    bridge.write_text(BRIDGE + more)
    result = check(str(bridge))
    assert (result.exit_code, result.stderr) == (0, "")
    assert (
        result.stdout
        == f"""\
{bridge}: 2 routes, 2 containers, 1 listener

orders.eu (balanced, {bridge}:5:14)
  east/orders.eu -> west/orders.europe: at-least-once, though exactly-once is asked for
    from east: it cannot resume links, so what it did not hear settled comes again as a new delivery
    what comes settled: kept in the journal until it is accepted; what is rejected ends
    to west: what is in doubt waits in the journal until a person decides (in_doubt: hold)

prices.* (multicast, {bridge}:10:15)
  senders -> receivers: at-least-once
    senders: they hear the outcome of the far end
    what comes settled: kept in memory until it is accepted; what is rejected ends
    receivers: their outcome is awaited; what is in doubt is sent again, its delivery-count raised
"""
    )


def test_route_with_a_name_shows_its_address_too(bridge: Path) -> None:
    bridge.write_text("routes: [{address: a.#, name: everything}]")
    assert "everything a.# (balanced, " in check(str(bridge)).stdout


def test_notes_are_printed_last(bridge: Path) -> None:
    bridge.write_text("listeners: [{bind: '0.0.0.0:5672'}]")
    lines = check(str(bridge)).stdout.splitlines()
    assert lines[0].endswith(": 0 routes, 0 containers, 1 listener")
    assert "lets anybody in" in lines[-3] + lines[-1]
    assert "there are no routes" in lines[-3] + lines[-1]


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        (
            "routes: [{address: x}, {\n  address: orders. #\n}]",
            "2:12",
            "routes[1].address: is 'orders.'",
        ),
        ("routes:\n- address: orders/ # all\n", "2:12", "routes[0].address: is 'orders/'"),
        (f"{BRIDGE}- {{address: x, to: [west/a.  #\n]}}", "8:23", "routes[1].to[0]: is 'west/a.'"),
        (
            "policy: {rules: [{name: a, send: [x/ #\n]}]}\nroutes: [{address: x}]",
            "1:35",
            "policy.rules[0].send[0]: is 'x/'",
        ),
    ],
)
def test_a_wildcard_that_yaml_takes_for_a_comment_is_noted(
    bridge: Path, text: str, place: str, said: str
) -> None:
    bridge.write_text(text.replace("    guarantee: exactly-once\n", "").replace("\n- {", "\n  - {"))
    result = check(str(bridge))
    assert result.exit_code == 0
    assert (
        f"{bridge}:{place}: {said}, because a '#' after a space begins a comment" in result.stdout
    )


@pytest.mark.parametrize(
    "text", ["{address: 'x.'} # x.#", "{address: x.#}  # all of x", "{address: x, to: east} #"]
)
def test_a_comment_that_follows_a_whole_address_is_none_of_its_own(bridge: Path, text: str) -> None:
    bridge.write_text(f"containers: {{east: {{url: amqp://east/ # here\n}}}}\nroutes:\n- {text}\n")
    assert "begins a comment" not in check(str(bridge)).output


def test_a_state_directory_that_cannot_be_written_is_noted(
    bridge: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bridge.write_text("router: {state: state}\nroutes: [{address: a, guarantee: exactly-once}]\n")
    assert "router.state" not in check(str(bridge)).stdout
    monkeypatch.setattr(os, "access", lambda path, _: path != bridge.parent)
    output = " ".join(check(str(bridge)).stdout.split())
    assert f"note: {bridge}:1:17: router.state: user " in output
    assert f" cannot write to {bridge.parent}; router run needs it for the journal" in output


def test_addresses_in_use_are_noted_with_who_may_have_them(bridge: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        bridge.write_text(
            "router: {state: ., admin: off}\nroutes: [{address: a}]\n"
            f"listeners: [{{bind: '127.0.0.1:0'}}, {{bind: '127.0.0.1:{port}'}}]\n"
        )
        assert "in use" not in check(str(bridge)).stdout
        where = f"{bridge}:3:43: listeners[1].bind: 127.0.0.1:{port} cannot be had: it is in use, "
        result = check(str(bridge), "--here")
        assert result.exit_code == 0
        assert f"{where}by this router, if it runs already" in result.stdout
        with (bridge.parent / "lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            output = check(str(bridge), "--here").stdout
        assert f"{where}by this router, which runs as process {os.getpid()}, or by" in output
    assert "in use" not in check(str(bridge), "--here").stdout


def test_config_is_router_yaml_unless_named(bridge: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(bridge.parent)
    assert check().stderr.startswith("router.yaml:8:16: exactly-once")


def test_schema_is_printed_as_json() -> None:
    result = check("--schema")
    assert result.exit_code == 0
    schema = json.loads(result.stdout)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert set(schema["properties"]) == {
        "router",
        "listeners",
        "containers",
        "routes",
        "mesh",
        "limits",
        "policy",
    }


def test_secrets_are_printed_nowhere(bridge: Path) -> None:
    bridge.write_text(
        "containers: {a: {url: 'amqp://u:${EAST_PASSWORD}@h'}}\nroutes: [{address: a, to: a}]\n"
    )
    secret = "correct horse battery staple"
    result = CliRunner().invoke(command, [str(bridge)], env={"EAST_PASSWORD": secret})
    assert result.exit_code == 0
    assert secret not in result.output


def test_files_that_cannot_serve_are_problems_at_the_option_that_names_them(tmp_path: Path) -> None:
    (tmp_path / "no.pem").write_text("nothing")
    (tmp_path / "users").write_text("app nonsense\n")
    file = tmp_path / "router.yaml"
    file.write_text(
        """\
router: {admin: {tls_cert: no.pem, tls_key: no.pem}}
listeners:
  - bind: 127.0.0.1:5671
    tls:
      cert: no.pem
      key: no.pem
    sasl: {users: users}
containers:
  west: {url: "amqps://west", tls: {ca: no.pem}}
"""
    )
    result = check(str(file))
    assert (result.exit_code, result.stdout) == (2, "")
    pem = f"{tmp_path}/no.pem: it holds no certificate in PEM"
    expected = [
        f"{file}:1:28: router.admin.tls_cert: {pem}",
        f"{file}:5:13: listeners[0].tls.cert: {pem}",
        f"{file}:7:19: listeners[0].sasl.users: {tmp_path}/users: line 1: it is not mechanism:",
        f"{file}:9:41: containers.west.tls.ca: {pem}",
    ]
    for line, beginning in zip(result.stderr.splitlines(), expected, strict=True):
        assert line.startswith(beginning)
