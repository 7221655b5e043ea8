import contextlib
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.routes.route import (
    Declaration,
    Endpoint,
    ExchangeType,
    Guarantee,
    InDoubt,
    QueueType,
)
from router.service.config import ConfigError, RouterConfig, Secret, load, read
from router.service.config.file import sections
from router.service.config.options import options_of
from router.wire.protocols import PROTOCOLS

DEPLOYED = Path(__file__).parents[3] / "deploy" / "router.yaml"


def of(text: str, **environment: str) -> RouterConfig:
    return read(text, "r.yaml", Path("/etc/router"), environment)


def test_empty_file_has_every_default() -> None:
    config = of("")
    (listener,) = config.listeners
    assert str(listener.bind) == "127.0.0.1:5672"
    assert listener.protocols == tuple(PROTOCOLS)
    assert config.router.admin is not None
    assert str(config.router.admin.bind) == "127.0.0.1:8672"
    assert config.router.workers >= 1
    assert config.router.id
    assert config.limits.link_credit == 250
    assert [note.problem for note in config.notes] == ["there are no routes: no address is known"]


@pytest.mark.parametrize(
    "text",
    [
        "routes: [{address: a}]",
        "listeners: [{bind: 'unix:/run/r'}]",
        "listeners:",
        "router:\nlisteners: []\ncontainers:\nroutes:\nlimits:\npolicy:\n",
    ],
)
def test_file_may_have_any_sections_or_none(text: str) -> None:
    of(text)


def test_null_and_empty_lists_of_listeners_mean_none() -> None:
    assert of("listeners: []").listeners == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("durable", Declaration()),
        ("transient", Declaration(durable=False)),
        (
            "{lifetime: auto-delete, exchange: fanout}",
            Declaration(durable=False, auto_delete=True, exchange=ExchangeType.FANOUT),
        ),
        ("{queue: quorum}", Declaration(queue=QueueType.QUORUM)),
    ],
)
def test_a_route_says_how_brokers_make_what_is_not_there(text: str, expected: Declaration) -> None:
    config = of(
        f"""
containers: {{east: {{url: amqp://e, protocol: amqp-0-9-1}}}}
routes:
  - {{address: a, to: east, declare: {text}}}
"""
    )
    assert config.routes[0].declare == expected


def test_route_is_read_with_all_its_keys() -> None:
    config = of(
        """
containers: {east: {url: amqp://e}, west: {url: amqp://w, deduplicates: message-id}}
routes:
  - address: orders.eu
    name: orders
    from: east//queues/orders
    to: [west/orders.europe, east/copy]
    guarantee: exactly-once
    in_doubt: hold
    dedup: _AMQ_DUPL_ID
    ttl_seconds: 90s
    stall_seconds: 2m
    unroutable: dead-letter
    dead_letter: east/dead
    archive: true
    link_credit: 10
"""
    )
    (route,) = config.routes
    assert route.name == "orders"
    assert route.from_ == Endpoint("east", "/queues/orders")
    assert route.to == (Endpoint("west", "orders.europe"), Endpoint("east", "copy"))
    assert route.guarantee is Guarantee.EXACTLY_ONCE
    assert route.in_doubt is InDoubt.HOLD
    assert route.dedup is not None
    assert route.dedup.property == "_AMQ_DUPL_ID"
    assert (route.ttl_seconds, route.stall_seconds) == (90.0, 120.0)
    assert route.dead_letter == Endpoint("east", "dead")
    assert route.archive
    assert str(route.position) == "r.yaml:4:14"
    assert config.table.lookup("orders.eu") is not None


def test_relative_paths_start_from_the_directory_of_the_file() -> None:
    assert of("router: {state: s}").router.state == Path("/etc/router/s")
    assert of("router: {state: /s}").router.state == Path("/s")
    assert of("").router.state == Path("/etc/router/router-state")


def test_admin_is_an_address_or_keys_or_off() -> None:
    admin = of("router: {admin: '127.0.0.1:1'}").router.admin
    assert admin is not None
    assert str(admin.bind) == "127.0.0.1:1"
    admin = of("router: {admin: {bind: '0.0.0.0:1', token: '${T}'}}", T="secret").router.admin
    assert admin is not None
    assert admin.token == Secret("secret")
    for off in ("off", "false", "No"):  # off is false to YAML 1.1, and is written so by programs
        assert of(f"router: {{admin: {off}, compaction: {off}}}").router.admin is None


def test_probes_are_an_address_or_off() -> None:
    assert of("").router.probes is None
    assert of("router: {probes: off}").router.probes is None
    config = of("router: {admin: off, probes: '0.0.0.0:8673'}")  # needs no token
    assert str(config.router.probes) == "0.0.0.0:8673"
    for port in ("admin: '127.0.0.1:0', probes: '127.0.0.1:0'", "probes: '127.0.0.2:8672'"):
        assert of(f"router: {{{port}}}").router.probes is not None


def test_policy_keeps_the_user_placeholder_for_later() -> None:
    config = of("policy: {rules: [{name: a, send: ['x.${user}.#']}]}")
    assert config.policy.rules[0].send == ("x.${user}.#",)


def test_listener_open_to_the_network_is_noted() -> None:
    config = of("listeners: [{bind: '0.0.0.0:1'}]\nroutes: [{address: a}]")
    assert [str(note) for note in config.notes] == [
        "r.yaml:1:20: 0.0.0.0:1 lets anybody in who can reach it: it has no sasl section"
    ]


SASL = "sasl: {mechanisms: [SCRAM-SHA-256], users: {a: '${S}'}}"


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        (
            "listeners: [{bind: '0.0.0.0:1', SASL}]\nroutes: [{address: a}]",
            ["r.yaml:1:1: there is no policy: everything is allowed to everybody who gets in"],
        ),
        (
            "routes: [{address: a}]\npolicy: {groups: {a: [b]}}",
            ["r.yaml:2:9: policy: it has no rules: everything is allowed to everybody who gets in"],
        ),
        ("listeners: [{bind: '127.0.0.1:1', SASL}]\nroutes: [{address: a}]", []),
        (
            "listeners: [{bind: '0.0.0.0:1', SASL}]\nroutes: [{address: a}]\n"
            "policy: {rules: [{name: a}]}",
            [],
        ),
    ],
)
def test_a_policy_that_is_missing_where_peers_log_in_is_noted(text: str, notes: list[str]) -> None:
    assert [str(note) for note in of(text.replace("SASL", SASL), S="b").notes] == notes


def test_nothing_that_is_printed_of_a_configuration_shows_a_secret() -> None:
    text = """
router: {admin: {token: '${S}'}}
listeners: [{sasl: {users: {a: '${S}'}}}]
containers: {a: {url: 'amqp://u:${S}@h'}, b: {url: amqp://b, sasl: {user: u, password: '${S}'}}}
"""
    config = of(text, S="hunter2")
    assert "hunter2" not in repr(config)
    assert config.listeners[0].sasl is not None
    users = config.listeners[0].sasl.users
    assert isinstance(users, Mapping)
    assert users["a"].reveal() == "hunter2"


def test_loading_again_reads_files_and_variables_anew(tmp_path: Path) -> None:
    secret, file = tmp_path / "secret", tmp_path / "r.yaml"
    file.write_text("containers: {a: {url: 'amqp://u:${file:secret}@h'}}")
    secret.write_text("one\n")
    first = load(file, {})
    assert load(file, {}) == first
    secret.write_text("two\n")
    second = load(file, {})
    assert second != first
    assert second.containers["a"].url[0].password == Secret("two")


def test_comments_and_order_of_keys_make_no_difference() -> None:
    assert of("router: {id: a}\nlimits: {attempts: 3}") == of(
        "# moved\nlimits: {attempts: 3}\n\nrouter:\n  id: a\n"
    )
    assert of("router: {id: a}") != of("router: {id: b}")


@pytest.mark.parametrize(
    ("octets", "problem"),
    [
        (b"a: 1\nb: \xff", "{}:2:4: not UTF-8"),
        (None, "{}:1:1: cannot read: No such file or directory"),
    ],
)
def test_unreadable_file_is_a_problem_like_any_other(
    tmp_path: Path, octets: bytes | None, problem: str
) -> None:
    file = tmp_path / "r.yaml"
    if octets is not None:
        file.write_bytes(octets)
    with pytest.raises(ConfigError) as caught:
        load(file)
    assert str(caught.value) == problem.format(file)


def test_directory_and_impossible_path_are_problems_too(tmp_path: Path) -> None:
    for path in (tmp_path, "a\0b", "x" * 5000):
        with pytest.raises(ConfigError):
            load(path)


def test_byte_order_mark_is_no_part_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "r.yaml"
    file.write_bytes(b"\xef\xbb\xbfrouter: {id: a}")
    assert load(file).router.id == "a"


# Whatever stands in a file, nothing but ConfigError comes out.

KEYS = sorted({each.key for model in sections().values() for each in options_of(model)})
WORDS = [
    "none",
    "off",
    "amqp://u:p@h/%2f",
    "amqp://a,amqp://b",
    "amqp-0-9-1",
    "east",
    "east/a.#",
    "a.*",
    "#",
    "exactly-once",
    "hold",
    "dead-letter",
    "30s",
    "64KiB",
    "127.0.0.1:5672",
    "unix:x",
    "PLAIN",
    "${HOME}",
    "${file:/dev/null}",
    "${",
    "/dev/null",
]
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(WORDS)
    | st.dates()
)
keys = st.sampled_from(KEYS) | st.sampled_from(["east", "west"]) | st.text(max_size=3)
trees = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5),
    max_leaves=40,
)


def shaped(model: str, depth: int = 0) -> st.SearchStrategy[object]:
    """Draws mappings that have the keys of a section, with values right and wrong."""
    values: dict[str, st.SearchStrategy[object]] = {}
    for each in options_of(sections()[model]):
        wanted = [name for name in sections() if f"#/$defs/{name}'" in str(each.kind.schema())]
        inner = shaped(wanted[0], depth + 1) if wanted and depth < 3 else scalars
        named = st.dictionaries(st.sampled_from(["east", "west"]), inner, max_size=2)
        values[each.key] = inner | st.lists(inner, max_size=3) | named | scalars
    return st.fixed_dictionaries({}, optional=values)


def loads_or_refuses(text: str) -> None:
    with contextlib.suppress(ConfigError):
        read(text, "r.yaml", Path("/nowhere"), {"HOME": "/h"})


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(trees)
def test_any_tree_is_loaded_or_refused(tree: object) -> None:
    loads_or_refuses(yaml.safe_dump(tree))


@settings(max_examples=400, deadline=None, suppress_health_check=list(HealthCheck))
@given(shaped("ConfigFile"))
def test_any_file_with_known_keys_is_loaded_or_refused(tree: object) -> None:
    loads_or_refuses(yaml.safe_dump(tree))


@settings(max_examples=400, deadline=None)
@given(st.text() | st.text(alphabet="ab:-[]{}#*&!|>'\"%@`,? \n\t~"))
def test_any_text_is_loaded_or_refused(text: str) -> None:
    loads_or_refuses(text)


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_edit_of_the_deployed_file_is_loaded_or_refused(data: st.DataObject) -> None:
    lines = DEPLOYED.read_text().splitlines()
    for _ in range(data.draw(st.integers(1, 4))):
        line = data.draw(st.integers(0, len(lines) - 1))
        edit = data.draw(st.sampled_from(["drop", "indent", "value", "repeat"]))
        match edit:
            case "drop":
                lines[line] = ""
            case "indent":
                lines[line] = "  " + lines[line]
            case "repeat":
                lines[line] += "\n" + lines[line]
            case "value":
                key = lines[line].partition(":")[0]
                lines[line] = f"{key}: {data.draw(st.sampled_from(WORDS) | st.text(max_size=5))}"
    loads_or_refuses("\n".join(lines))


@settings(max_examples=100, deadline=None)
@given(st.binary())
def test_any_octets_are_loaded_or_refused(octets: bytes) -> None:
    import tempfile

    with tempfile.NamedTemporaryFile() as file:
        file.write(octets)
        file.flush()
        with contextlib.suppress(ConfigError):
            load(file.name, {})
