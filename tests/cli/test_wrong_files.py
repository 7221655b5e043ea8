"""Files as newcomers write them: each problem has its place, its rule, and what to write instead.

`router check` is run on each, as a user runs it.
"""

from pathlib import Path

import pytest
from click.testing import CliRunner

from router.cli.main import main

EAST = "containers:\n  east: {url: amqp://h}\n"

WRONG: dict[str, tuple[str, tuple[str, ...]]] = {
    # indentation and blanks
    "url one level too far left": (
        "containers:\n  east:\n  url: amqp://h\nroutes:\n  - {address: a, to: east}\n",
        ("3:3: containers.url: indent this below 'east', to which it belongs",),
    ),
    "several keys one level too far left": (
        "containers:\n  east:\n  url: amqp://h\n  protocol: amqp-0-9-1\n",
        (
            "3:3: containers.url: indent this below 'east', to which it belongs",
            "4:3: containers.protocol: indent this below 'east', to which it belongs",
        ),
    ),
    "url without a name above it": (
        "containers:\n  url: amqp://h\n",
        ("2:3: containers.url: this belongs to an entry: write its container name above, indent",),
    ),
    "url at the very left": (
        EAST + "url: amqp://h\n",
        ("3:1: unknown key 'url'; it belongs in an entry of 'containers': indent it there",),
    ),
    "key of router at the very left": (
        "workers: 2\n",
        ("1:1: unknown key 'workers'; it belongs in 'router': indent it there",),
    ),
    "routes with names": (
        EAST + "routes:\n  orders: {to: east}\n",
        ("4:3: routes: is a list: begin each route with '- ', not with a name",),
    ),
    "containers with dashes": (
        "containers:\n  - east: {url: amqp://h}\n",
        ("2:3: containers: wants a container name, a colon and a value in each entry and no '- '",),
    ),
    "no blank behind the dash": (
        "routes:\n  -address: a\n",
        (
            "2:3: routes: needs the key 'address': pattern of the route's addr",
            "2:3: routes: unknown key '-address'; write a blank after the '-'",
        ),
    ),
    "no blank behind the colon": (
        "routes:\n  - address:a\n",
        ("2:5: routes[0]: wants keys and values: write a blank after 'address:'",),
    ),
    "no blank behind the colon in braces": (
        "router: {id:dc1}\n",
        ("1:10: router: unknown key 'id:dc1'; write a blank after 'id:'",),
    ),
    "a text instead of a container": (
        "containers:\n  east: amqp://app:s3cret@h\n",
        ("2:9: containers.east: wants keys and values, such as 'url: ...'; its keys are url,",),
    ),
    "a text instead of a route": (
        "routes:\n  - orders\n",
        ("2:5: routes[0]: wants keys and values, such as 'address: ...'; its keys are address,",),
    ),
    "a port instead of listeners": (
        "listeners: 5672\n",
        ("1:12: listeners: wants keys and values, such as 'bind: ...'",),
    ),
    "tls: true": (
        "listeners:\n  - {bind: '127.0.0.1:5671', tls: true}\n",
        ("2:35: listeners[0].tls: wants keys and values, such as 'cert: ...'",),
    ),
    "pattern without quotes": (
        "routes:\n  - address: #\n",
        ("2:13: routes[0].address: has no value; a pattern that begins with '#' wants quotes",),
    ),
    "second document": (
        "routes: []\n---\nroutes: []\n",
        ("2:1: a second YAML document begins; only one is read: remove the line",),
    ),
    "section twice": (
        "routes: []\nroutes: []\n",
        ("2:1: key 'routes' is given twice, first in line 1; join them",),
    ),
    # words of other programs
    "brokers": ("brokers: {}\n", ("1:1: unknown key 'brokers'; here that is 'containers'",)),
    "bindings": ("bindings: []\n", ("1:1: unknown key 'bindings'; here that is 'routes'",)),
    "capitals": ("Routes: []\n", ("1:1: unknown key 'Routes'; the nearest known one is 'routes'",)),
    "no such key at all": (
        "xyzzy: 1\n",
        ("1:1: unknown key 'xyzzy'; the keys here are router, listeners, containers,",),
    ),
    "queue of a route": (
        "routes:\n  - queue: a\n",
        (
            "2:5: routes[0]: needs the key 'address': pattern of the route's addr",
            "2:5: routes[0]: unknown key 'queue'; here that is 'address'",
        ),
    ),
    "host and port of a container": (
        "containers:\n  east: {host: h, port: 5672}\n",
        (
            "2:9: containers.east: needs the key 'url': amqp[s]://",
            "2:10: containers.east: unknown key 'host'; here that is 'url'",
            "2:19: containers.east: unknown key 'port'; here that is 'url'",
        ),
    ),
    "username beside the url": (
        "containers:\n  east: {url: amqp://h, username: a, password: s3cret}\n",
        (
            "2:25: containers.east: unknown key 'username'; 'user' belongs in 'sasl': indent it",
            "2:38: containers.east: unknown key 'password'; it belongs in 'sasl': indent it there",
        ),
    ),
    "protocol without its prefix": (
        "containers:\n  east: {url: amqp://h, protocol: 0-9-1}\n",
        ("2:35: containers.east.protocol: '0-9-1' is not one of ", "; write amqp-0-9-1"),
    ),
    "protocol with points": (
        "containers:\n  east: {url: amqp://h, protocol: amqp-0.9.1}\n",
        ("2:35: containers.east.protocol: 'amqp-0.9.1' is not", "; write amqp-0-9-1"),
    ),
    "protocol without marks": (
        "containers:\n  east: {url: amqp://h, protocol: amqp091}\n",
        ("2:35: containers.east.protocol: 'amqp091' is not", "; write amqp-0-9-1"),
    ),
    "the broker's name as protocol": (
        "containers:\n  east: {url: amqp://h, protocol: rabbitmq}\n",
        ("2:35: containers.east.protocol: 'rabbitmq' is not one of", "; write amqp-0-9-1"),
    ),
    "guarantee with underscores": (
        "routes:\n  - {address: a, guarantee: exactly_once}\n",
        ("2:29: routes[0].guarantee: 'exactly_once' is not one of", "; write exactly-once"),
    ),
    "distribution of others": (
        "routes:\n  - {address: a, distribution: round-robin}\n",
        ("2:32: routes[0].distribution: 'round-robin' is not one of", "; write balanced"),
    ),
    "declare: true": (
        EAST.replace("h}", "h, protocol: amqp-0-9-1}")
        + "routes:\n  - {address: a, to: east, declare: true}\n",
        ("4:37: routes[0].declare.lifetime: 'true' is not one of", "; write durable"),
    ),
    "workers: auto": (
        "router: {workers: auto}\n",
        ("1:19: router.workers: 'auto' is not a whole number", "leave the key out for its default"),
    ),
    "time in words": (
        "limits: {idle_seconds: 30 sec}\n",
        ("1:24: limits.idle_seconds: '30 sec' is not a duration such as 30s, 5m or 250ms",),
    ),
    # URLs
    "at in the password": (
        "containers:\n  east: {url: 'amqp://a:s3cret@ss@h'}\n",
        ("2:15: containers.east.url: has an '@' in user or password: there it is written %40",),
    ),
    "hash in the password": (
        "containers:\n  east: {url: 'amqp://a:s3cret#ss@h'}\n",
        ("2:15: containers.east.url: has a '#': percent-encode it, %23",),
    ),
    "slash in the password": (
        "containers:\n  east: {url: 'amqp://a:s3cret/ss@h'}\n",
        ("2:15: containers.east.url: has a '/' in user or password: there it is written %2F",),
    ),
    "percent in the password": (
        "containers:\n  east: {url: 'amqp://a:s3cret%off@h'}\n",
        ("2:15: containers.east.url: has a '%': percent-encode it, %25",),
    ),
    "blank in the password": (
        "containers:\n  east: {url: 'amqp://a:s3cret ss@h'}\n",
        ("2:15: containers.east.url: has a blank: percent-encode it, %20",),
    ),
    "options in the url": (
        "containers:\n  east: {url: 'amqp://h/?heartbeat=10'}\n",
        ("2:15: containers.east.url: has a '?': percent-encode it, %3F; options are keys of the",),
    ),
    "url of the management": (
        "containers:\n  east: {url: 'http://h:15672'}\n",
        (
            "2:15: containers.east.url: does not begin with amqp:// or amqps://, ws:// or wss://;"
            " HTTP is a broker's management: write amqp:// and the port of AMQP, usually 5672",
        ),
    ),
    "no scheme": (
        "containers:\n  east: {url: 'h:5672'}\n",
        ("2:15: containers.east.url: does not begin", "; write amqp:// before the host, or amqps"),
    ),
    "scheme of another client": (
        "containers:\n  east: {url: 'amqp+ssl://h'}\n",
        ("2:15: containers.east.url: does not begin", "; write amqp://, or amqps:// for TLS, inst"),
    ),
    "empty url": (
        "containers:\n  east:\n    url:\n",
        ("3:9: containers.east.url: has no value; write amqp://host, or amqps://host for TLS",),
    ),
    "url without a host": (
        "containers:\n  east: {url: 'amqp://a:s3cret@'}\n",
        ("2:15: containers.east.url: has no host",),
    ),
    "IPv6 without brackets": (
        "containers:\n  east: {url: 'amqp://::1'}\n",
        ("2:15: containers.east.url: has no host",),
    ),
    "IPv6 and a port without brackets": (
        "containers:\n  east: {url: 'amqp://fe80::1:5672'}\n",
        ("2:15: containers.east.url: has an IPv6 address without brackets: write [::1]:5672",),
    ),
    "tls without amqps": (
        "containers:\n  east: {url: amqp://h, tls: {verify: false}}\n",
        ("2:30: containers.east: tls is given, but no url begins with amqps:// or wss://; write",),
    ),
    # listeners
    "port alone": (
        "listeners:\n  - bind: 5672\n",
        (
            "2:11: listeners[0].bind: '5672' is not host:port, [v6]:port or unix:/path; write"
            " 127.0.0.1:5672 for this machine alone, 0.0.0.0:5672 for all",
        ),
    ),
    "star for all": (
        "listeners:\n  - bind: '*:5672'\n",
        ("2:11: listeners[0].bind: '*:5672' is not", "; write 127.0.0.1:5672 for this machine"),
    ),
    "nothing for all": (
        "router: {admin: ':8672'}\n",
        ("1:17: router.admin.bind: ':8672' is not", "; write 127.0.0.1:8672 for this machine"),
    ),
    "url to bind": (
        "listeners:\n  - bind: amqp://127.0.0.1:5672\n",
        ("2:11: listeners[0].bind: 'amqp://127.0.0.1:5672' is not", "; leave 'amqp://' out"),
    ),
    "host alone": (
        "listeners:\n  - bind: localhost\n",
        ("2:11: listeners[0].bind: 'localhost' is not", "; add the port: localhost:5672"),
    ),
    "users as a list": (
        "listeners:\n  - {sasl: {users: [app]}}\n",
        ("2:20: listeners[0].sasl.users: wants a user, a colon and a value in each entry and no",),
    ),
    "admin for everybody": (
        "router: {admin: '0.0.0.0:8672'}\n",
        ("1:17: admin: other machines can reach 0.0.0.0:8672, so it needs the key 'token'",),
    ),
    "state is a file": (
        "router: {state: router.yaml}\n",
        ("1:17: router.state: ", "router.yaml is a file; name a directory, which need not exist"),
    ),
    # routes
    "container and address with a point": (
        EAST + "routes:\n  - {address: a, to: east.orders}\n",
        ("4:22: to: unknown container 'east.orders'; an address in 'east' is written east/orders",),
    ),
    "mistyped container": (
        EAST + "routes:\n  - {address: a, to: esat}\n",
        ("4:22: to: unknown container 'esat'; the nearest known one is 'east'",),
    ),
    "no containers": (
        "routes:\n  - {address: a, to: east}\n",
        ("2:22: to: unknown container 'east'; none is known here: write its name and url under",),
    ),
    "half a wildcard": (
        "routes:\n  - address: orders*\n",
        ("2:14: routes[0].address: 'orders*' has a wildcard inside", "alone, as in 'orders.*'"),
    ),
    "source with wildcards": (
        EAST + "routes:\n  - {address: 'prices/#', from: east}\n",
        (
            "4:33: from: 'prices/#' has wildcards, and only containers that speak amqp-0-9-1",
            "'east' speaks amqp-1.0; name one address",
        ),
    ),
    "the same address twice": (
        "routes:\n  - {address: a}\n  - {address: a}\n",
        ("3:15: address: 'a' matches exactly what 'a' in line 2 does; join them into one route",),
    ),
    "dead letters without a place": (
        "routes:\n  - {address: a, unroutable: dead-letter}\n",
        ("2:30: unroutable: dead-letter needs the key 'dead_letter', container/address",),
    ),
}


@pytest.mark.parametrize("slip", WRONG)
def test_a_slip_is_told_with_its_place_and_what_to_write(tmp_path: Path, slip: str) -> None:
    text, wanted = WRONG[slip]
    file = tmp_path / "router.yaml"
    file.write_text(text)
    result = CliRunner().invoke(main, ["check", str(file)], catch_exceptions=False)
    assert (result.exit_code, result.stdout) == (2, "")
    told = result.stderr.replace(f"{file}:", "")
    for part in wanted:
        assert part in told
    places = sum(part[0].isdigit() for part in wanted)
    assert len(result.stderr.splitlines()) == places, told
    assert "s3cret" not in told


@pytest.mark.parametrize(
    ("port", "said"),
    [(15672, "RabbitMQ's management (HTTP)"), (8161, "ActiveMQ and Artemis"), (1883, "MQTT")],
)
def test_a_port_that_is_usually_something_else_is_noted(
    tmp_path: Path, port: int, said: str
) -> None:
    file = tmp_path / "router.yaml"
    file.write_text(f"containers: {{east: {{url: 'amqp://a:s3cret@h:{port}'}}}}\n")
    result = CliRunner().invoke(main, ["check", str(file)], catch_exceptions=False)
    assert (result.exit_code, result.stderr) == (0, "")
    assert f"note: {file}:1:26: containers.east.url: port {port} is usually " in result.stdout
    assert said in result.stdout
    assert "s3cret" not in result.stdout


def test_a_password_from_a_variable_may_hold_any_character(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EAST_PASSWORD", "p@ss/w#rd%")
    file = tmp_path / "router.yaml"
    file.write_text("containers: {east: {url: 'amqp://a:${EAST_PASSWORD}@h'}}\n")
    result = CliRunner().invoke(main, ["check", str(file)], catch_exceptions=False)
    assert (result.exit_code, result.stderr) == (0, "")
