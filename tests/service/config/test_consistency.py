"""Every rule between sections: a file that breaks it, and the line that says so."""

from pathlib import Path

import pytest

from router.service.config import ConfigError, read

CONTAINERS = """
containers:
  east: {url: "amqp://east", protocol: amqp-0-9-1}
  west: {url: "amqp://west"}
"""

# name of the rule -> (file, the problems from line:column on)
BROKEN: dict[str, tuple[str, list[str]]] = {
    "unknown key": (
        "router:\n  drain_secs: 1\n",
        ["2:3: router: unknown key 'drain_secs'; the nearest known one is 'drain_seconds'"],
    ),
    "unknown section": (
        "rotues: []\n",
        ["1:1: unknown key 'rotues'; the nearest known one is 'routes'"],
    ),
    "key that is not indented": (
        "router:\nid: x\n",
        ["2:1: unknown key 'id'; it belongs in 'router': indent it there"],
    ),
    "container that is not indented": (
        "containers:\neast:\n  url: amqp://a\n",
        [
            "2:1: unknown key 'east'; the keys here are router, listeners, containers, routes,"
            " mesh, limits, policy; or it belongs, indented, below 'containers', which is empty"
        ],
    ),
    "no mapping": (
        "- a\n",
        ["1:1: the file wants keys and values, such as 'router: ...'; its keys are router,"],
    ),
    "section of the wrong shape": (
        "limits: 5\n",
        ["1:9: limits: wants keys and values, such as 'connections: ...'; its keys are conn"],
    ),
    "several at once": (
        "router: {workers: 0}\nlimits: {idle_seconds: soon}\nroutes:\n  - {address: a*, to: x}\n",
        [
            "1:19: router.workers: '0' is below the minimum, 1",
            "2:24: limits.idle_seconds: 'soon' is not a duration such as 30s, 5m or 250ms",
            "4:15: routes[0].address: 'a*' has a wildcard inside the token 'a*'; it stands alone",
        ],
    ),
    "missing key": ("routes:\n  - to: east\n", ["2:5: routes[0]: needs the key 'address'"]),
    "missing url": ("containers:\n  a: {}\n", ["2:6: containers.a: needs the key 'url'"]),
    "null url": (
        "containers:\n  a:\n    url:\n",
        ["3:9: containers.a.url: has no value; write amqp://host, or amqps://host for TLS"],
    ),
    "null pattern": (
        "routes:\n  - address: #.x\n",
        ["2:13: routes[0].address: has no value; a pattern that begins with '#' wants quotes"],
    ),
    "missing variable": (
        "containers:\n  a: {url: 'amqp://u:${GONE}@h'}\n",
        ["2:12: containers.a.url: needs the environment variable GONE, which is not set"],
    ),
    "unknown container": (
        CONTAINERS + "routes:\n  - {address: a, from: eats, to: [west, wset]}\n",
        [
            "6:24: from: unknown container 'eats'; the nearest known one is 'east'",
            "6:34: to: unknown container 'wset'; the nearest known one is 'west'",
        ],
    ),
    "no containers at all": (
        "routes:\n  - {address: a, to: east}\n",
        ["2:22: to: unknown container 'east'; none is known here"],
    ),
    "broken containers are known": (
        "containers:\n  east: {url: 'x'}\nroutes:\n  - {address: a, to: east}\n",
        ["2:15: containers.east.url: does not begin with amqp:// or amqps://"],
    ),
    "wait_for": (
        CONTAINERS + "router: {wait_for: [east, nort]}\n",
        ["5:20: wait_for: unknown container 'nort'; the nearest known one is"],
    ),
    "admin in the open": (
        "router: {admin: '0.0.0.0:8672'}\n",
        ["1:17: admin: other machines can reach 0.0.0.0:8672, so it needs the key 'token'"],
    ),
    "admin half tls": (
        "router:\n  admin: {tls_cert: '/dev/null'}\n",
        ["2:10: admin: tls_cert and tls_key go together"],
    ),
    "probes at a listener": (
        "router:\n  admin: off\n  probes: 0.0.0.0:5672\n",
        ["3:11: probes: 0.0.0.0:5672 is taken by the listener at 127.0.0.1:5672"],
    ),
    "probes at the default admin endpoint": (
        "router: {probes: '127.0.0.1:8672'}\n",
        ["1:18: probes: 127.0.0.1:8672 is taken by router.admin"],
    ),
    "probes at a socket of admin": (
        "router: {admin: 'unix:/a', probes: 'unix:/a'}\n",
        ["1:36: probes: unix:/a is taken by router.admin"],
    ),
    "bind twice": (
        "listeners:\n  - bind: 127.0.0.1:1\n  - bind: 127.0.0.1:1\n",
        ["3:11: bind: 127.0.0.1:1 is taken by the listener in line 2"],
    ),
    "external without tls": (
        "listeners:\n  - sasl: {mechanisms: EXTERNAL}\n",
        ["2:24: sasl.mechanisms: EXTERNAL needs tls with verify_client: optional or required"],
    ),
    "no users": (
        "listeners:\n  - sasl: {mechanisms: [PLAIN, ANONYMOUS]}\n",
        ["2:11: sasl: PLAIN needs users, and there are none"],
    ),
    "no mechanisms": (
        "listeners:\n  - sasl: {mechanisms: []}\n",
        ["2:24: listeners[0].sasl.mechanisms: is an empty list; leave the key out for its"],
    ),
    "resumes without links": (
        "containers:\n  a: {url: 'amqp://a', protocol: amqp-0-9-1, resumes: true}\n",
        ["2:55: containers.a: resumes: this is for amqp-1.0 and amqp-0-10, and this container"],
    ),
    "tls without amqps": (
        "containers:\n  a: {url: 'amqp://a', tls: {verify: false}}\n",
        ["2:29: containers.a: tls is given, but no url begins with amqps://"],
    ),
    "certificate without key": (
        "containers:\n  a: {url: 'amqps://a', tls: {cert: /dev/null}}\n",
        ["2:30: containers.a: tls: cert and key go together"],
    ),
    "user twice": (
        "containers:\n  a: {url: 'amqp://u@a', sasl: {user: u}}\n",
        ["2:39: containers.a: sasl.user: the url names a user already"],
    ),
    "mechanism without credentials": (
        "containers:\n  a: {url: 'amqp://u@a', sasl: {mechanisms: [PLAIN, XOAUTH2, EXTERNAL]}}\n",
        [
            "2:45: containers.a: sasl.mechanisms: EXTERNAL needs tls.cert and tls.key",
            "2:45: containers.a: sasl.mechanisms: PLAIN needs a user and a password",
            "2:45: containers.a: sasl.mechanisms: XOAUTH2 needs sasl.token",
        ],
    ),
    "retry": (
        "containers:\n  a: {url: 'amqp://a', retry_seconds: 1m}\n",
        ["2:6: containers.a: retry_limit_seconds is shorter than retry_seconds"],
    ),
    "equal addresses": (
        "routes:\n  - address: a.*.#\n  - address: a/#/*\n",
        ["3:14: address: 'a/#/*' matches exactly what 'a.*.#' in line 2 does"],
    ),
    "names": (
        "routes:\n  - {address: a, name: b}\n  - {address: b}\n  - {address: c, name: b}\n",
        [
            "3:15: address: 'b' is the name of the route in line 2 too",
            "4:24: name: 'b' is the name of the route in line 2 too",
        ],
    ),
    "pull by pattern": (
        CONTAINERS + "routes:\n  - {address: 'a.*', from: east/b.#}\n",
        [
            "6:28: from: 'east/b.#' has wildcards, but no exchange before them",
        ],
    ),
    "pull from 1.0": (
        CONTAINERS + "routes:\n  - {address: 'b/#', from: west/b/#}\n",
        ["6:28: from: 'b/#' has wildcards, and only containers that speak"],
    ),
    "pull exactly once": (
        CONTAINERS + "routes:\n  - {address: 'b/#', from: east/b/#, guarantee: exactly-once}\n",
        ["6:49: guarantee: exactly-once holds for messages pulled for one address"],
    ),
    "pull renamed": (
        CONTAINERS + "routes:\n  - {address: 'a/*', from: east/b/#}\n",
        ["6:15: address: pattern 'a/*' has 1 '*', but 'b/#' captures only 0"],
    ),
    "rename": (
        CONTAINERS + "routes:\n  - {address: 'a.*', to: west/b.#}\n",
        ["6:26: to: pattern 'b.#' has 1 '#', but 'a.*' captures only 0"],
    ),
    "endpoint without container": (
        "routes:\n  - {address: a, to: /x}\n",
        ["2:22: routes[0].to: '/x' names no container before the '/'"],
    ),
    "endpoint without address": (
        "routes:\n  - {address: a, to: x/}\n",
        ["2:22: routes[0].to: 'x/' names no address after the '/'"],
    ),
    "target twice": (
        CONTAINERS + "routes:\n  - {address: a, to: [east, east]}\n",
        ["6:22: to: names the same endpoint twice"],
    ),
    "dead-letter to nowhere": (
        "routes:\n  - {address: a, unroutable: dead-letter}\n",
        ["2:30: unroutable: dead-letter needs the key 'dead_letter'"],
    ),
    "dead_letter for nothing": (
        CONTAINERS + "routes:\n  - {address: a, dead_letter: east}\n",
        ["6:31: dead_letter: means nothing without unroutable: dead-letter"],
    ),
    "fallback to nowhere": (
        CONTAINERS + "routes:\n  - {address: a, fallback: over}\n",
        ["6:28: fallback: 'over' is neither a container's queue nor an address whose route leads"],
    ),
    "fallback of a route to a container": (
        CONTAINERS + "routes:\n  - {address: a, to: west, fallback: east/q}\n",
        ["6:38: fallback: is for routes without 'from' and 'to'"],
    ),
    "fallback with exactly-once": (
        CONTAINERS + "routes:\n  - {address: a, guarantee: exactly-once, fallback: east/q}\n",
        ["6:53: fallback: exactly-once ends at 'east'"],
    ),
    "fallback with more wildcards": (
        CONTAINERS + "routes:\n  - {address: a, fallback: east/q.*}\n",
        ["6:28: fallback: pattern 'q.*' has 1 '*', but 'a' captures only 0"],
    ),
    "fallback of two virtual hosts": (
        CONTAINERS
        + "routes:\n  - {address: a, fallback: east/q}\n"
        + "  - {address: a, name: other, vhost: v, fallback: east/q}\n",
        ["7:51: fallback: 'east/q' serves another virtual host in line 6"],
    ),
    "exactly-once": (
        CONTAINERS + "routes:\n  - {address: a, to: west, guarantee: exactly-once}\n",
        ["6:39: exactly-once towards west: it neither resumes links nor drops duplicates; say"],
    ),
    "doubt without doubt": (
        "routes:\n  - {address: a, guarantee: at-most-once, in_doubt: hold}\n",
        ["2:53: in_doubt means nothing with guarantee at-most-once"],
    ),
    "declare towards nobody": (
        "routes:\n  - {address: a, declare: durable}\n",
        ["2:27: declare: brokers are asked to make things, and this route leads to none"],
    ),
    "declare towards one that cannot": (
        CONTAINERS + "routes:\n  - {address: a, to: west, declare: durable}\n",
        ["6:37: declare: containers that speak amqp-0-9-1, amqp-0-10, amqp-0-9r1 can be asked"],
    ),
    "dedup without target": (
        "routes:\n  - {address: a, dedup: message-id}\n",
        ["2:25: dedup speaks of targets, and this route has no 'to'"],
    ),
    "loop": (
        CONTAINERS + "routes:\n  - {address: a, from: east, to: west}\n"
        "  - {address: b, from: west/a, to: east/a}\n",
        ["6:15: route 'a' is part of a loop: east/a -> west/a -> east/a"],
    ),
    "loop under two names": (
        "containers:\n  a: {url: 'amqp://h'}\n  b: {url: 'amqp://H:5672'}\n"
        "routes:\n  - {address: x, from: a, to: b}\n",
        ["5:15: route 'x' is part of a loop: a/x -> a/x"],
    ),
    "loop through our own door": (
        "listeners:\n  - bind: 0.0.0.0:7000\ncontainers:\n  me: {url: 'amqp://localhost:7000'}\n"
        "routes:\n  - {address: x.#, to: me}\n",
        ["6:15: route 'x.#' is part of a loop: me/x.* -> me/x.*"],
    ),
    "policy": (
        "policy:\n  groups: {apps: [a]}\n  rules:\n"
        "    - {name: one, groups: [aps]}\n    - {name: all}\n    - {name: one}\n",
        [
            "4:27: groups: unknown group 'aps'; the nearest known one is 'apps'",
            "6:14: policy: rule 'one' is given twice, first in line 4",
            "6:14: policy: rule 'one' is never reached: 'all' fits everybody",
        ],
    ),
    "rules without anybody": (
        "policy:\n  rules:\n    - {name: a, users: []}\n    - {name: b, groups: []}\n"
        "    - {name: c, vhosts: []}\n    - {name: d, users: }\n",
        [
            "3:24: policy.rules[0].users: is an empty list; leave the key out for its default",
            "4:25: groups: is an empty list; leave the rule out, or it would fit everybody",
            "5:25: policy.rules[2].vhosts: is an empty list; leave the key out for its default",
            "6:24: policy.rules[3].users: has no value; leave the key out for its default",
        ],
    ),
    "empty lists": (
        "listeners: [{protocols: []}]\n"
        "containers: {a: {url: amqp://a, sasl: {mechanisms: []}}}\n"
        "routes: [{address: a, to: []}, {address: b, to: }]\n",
        [
            "1:25: listeners[0].protocols: is an empty list; leave the key out for its default",
            "2:52: containers.a.sasl.mechanisms: is an empty list; leave the key out for its",
            "3:27: routes[0].to: is an empty list; leave the key out for its default",
            "3:49: routes[1].to: has no value; leave the key out for its default",
        ],
    ),
    "broken values of which rules speak": (
        "listeners:\n"
        "  - {bind: 127.0.0.1:1, sasl: {mechanisms: [PLAN]}}\n"
        "  - {bind: 127.0.0.1:2, sasl: {users: {a: [b]}}}\n"
        "containers:\n  a: {url: amqp://a, cbs: {audience: a, token_file: gone}}\n",
        [
            "2:45: listeners[0].sasl.mechanisms[0]: 'PLAN' is not one of",
            "3:43: listeners[1].sasl.users.a: wants a single value",
            "5:53: containers.a.cbs.token_file: cannot read gone: No such file",
        ],
    ),
    "budgets": (
        "limits: {connection_octets: 2GB}\n",
        ["1:9: limits: process_octets is smaller than connection_octets"],
    ),
}


def problems_of(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(text, "r.yaml", Path(), {})
    return [str(problem).removeprefix("r.yaml:") for problem in caught.value.problems]


@pytest.mark.parametrize("rule", BROKEN)
def test_broken_rule_is_reported_at_its_place(rule: str) -> None:
    text, expected = BROKEN[rule]
    found = sorted(problems_of(text))
    assert len(found) == len(expected), found
    for problem, beginning in zip(found, sorted(expected), strict=True):
        assert problem.startswith(beginning)


def test_problems_come_in_the_order_of_the_file() -> None:
    problems = problems_of("routes: [{address: a*}, {address: b*}]\nlimits: x\nrouter: {a: 1}\n")
    places = [tuple(map(int, problem.split(":")[:2])) for problem in problems]
    assert len(places) == 4
    assert places == sorted(places)


def test_secret_in_a_broken_value_is_not_shown() -> None:
    environment = {"PASSWORD": "hunter2"}
    text = "containers: {a: {url: 'amqp://u:${PASSWORD}@h:x'}}\nrouter: {workers: '${PASSWORD}'}\n"
    with pytest.raises(ConfigError) as caught:
        read(text, "r.yaml", Path(), environment)
    assert len(caught.value.problems) == 2
    assert "hunter2" not in str(caught.value)
    assert "'${PASSWORD}' is not a whole number" in str(caught.value)


def test_content_that_is_taken_for_a_path_is_not_shown(tmp_path: Path) -> None:
    """The path of a key is wanted, and ``${file:...}`` gives the key."""
    (tmp_path / "key").write_text("-----BEGIN PRIVATE KEY-----\nhunter2\n")
    text = """
listeners:
  - tls: {cert: "${file:key}", key: "${file:key}"}
    sasl: {users: "${file:key}"}
containers:
  a: {url: amqp://a, cbs: {audience: a, token_file: "${file:key}"}}
"""
    with pytest.raises(ConfigError) as caught:
        read(text, "r.yaml", tmp_path, {})
    assert [str(problem) for problem in caught.value.problems] == [
        f"r.yaml:{place}: {key}: '${{file:key}}' is no path of a file: {why}"
        for place, key in (
            ("3:17", "listeners[0].tls.cert"),
            ("3:37", "listeners[0].tls.key"),
            ("4:19", "listeners[0].sasl.users"),
            ("6:53", "containers.a.cbs.token_file"),
        )
        for why in ["${file:...} gives what the file holds; write the path alone"]
    ]


def test_an_unavailable_route_leads_nowhere_and_promises_nothing() -> None:
    text = (
        "containers: {east: {url: 'amqp://x'}}\n"
        "routes: [{address: a, unavailable: true, to: east}]\n"
    )
    (problem,) = problems_of(text)
    assert "to: means nothing where unavailable: true; leave one of them out" in problem
