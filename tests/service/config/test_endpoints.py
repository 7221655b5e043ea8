"""Endpoints as mappings: what is read, and what is refused, with its place."""

from pathlib import Path

import pytest

from router.routes.route import PLAIN, Endpoint
from router.service.config import ConfigError, read
from router.wire.v1_0.types import Described, Symbol, Timestamp, Ubyte, Ulong, decode_value

HEAD = """\
containers:
  azure: {url: "amqp://azure"}
  rabbit: {url: "amqp://rabbit", protocol: amqp-0-9-1}
routes:
"""


def endpoints(routes: str, **environment: str) -> tuple[Endpoint, ...]:
    return read(HEAD + routes, "r.yaml", Path(), environment).routes[0].endpoints


def problems(routes: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(HEAD + routes, "r.yaml", Path(), {})
    return [str(problem) for problem in caught.value.problems]


def test_lists_mix_texts_and_mappings() -> None:
    first, second = endpoints(
        "  - {address: x, to: [azure/a, {container: azure, address: b, capabilities: topic}]}\n"
    )
    assert (first.container, first.address, first.terms) == ("azure", "a", PLAIN)
    assert (second.container, second.address) == ("azure", "b")
    assert second.terms.capabilities == ("topic",)
    assert str(second) == "azure/b (capability topic)"


def test_a_filter_is_described_by_its_name_and_has_the_type_that_is_written() -> None:
    (source,) = endpoints(
        """\
  - address: x
    from:
      container: azure
      filter:
        a: text
        b: 7
        c: "7"
        d: null
        e: {timestamp: 5}
        f: {described: [{ulong: 77}, [1, true]]}
        g: ${SECRET}
        h: 1.5
      properties: {epoch: 1, mode: {ubyte: 2}}
""",
        SECRET="12",
    )
    filters, _ = decode_value(source.terms.filters)
    assert {name: each.value for name, each in filters.items()} == {
        "a": "text",
        "b": 7,
        "c": "7",
        "d": None,
        "e": Timestamp(5),
        "f": [1, True],
        "g": "12",
        "h": 1.5,
    }
    assert type(filters["e"].value) is Timestamp
    assert filters["a"] == Described(Symbol("a"), "text")
    assert filters["f"].descriptor == Ulong(77)
    assert all(type(name) is Symbol for name in filters)
    assert source.terms.filter_names == tuple("abcdefgh")
    properties, _ = decode_value(source.terms.properties)
    assert properties == {"epoch": 1, "mode": 2}
    assert type(properties["mode"]) is Ubyte


@pytest.mark.parametrize(
    ("routes", "expected"),
    [
        (
            "  - {address: x, from: {address: q}}\n",
            "5:24: routes[0].from: needs the key 'container'",
        ),
        (
            "  - {address: x, from: {container: azure, filtre: {a: 1}}}\n",
            "5:43: routes[0].from: unknown key 'filtre'; the nearest known one is 'filter'",
        ),
        (
            "  - {address: x, from: {container: azure, filter: a}}\n",
            "5:51: routes[0].from.filter: wants a name, a colon and a value in each entry",
        ),
        (
            "  - {address: x, from: {container: azure, filter: {a: {ubyte: 900}}}}\n",
            "5:55: routes[0].from.filter: 'a': ubyte is from 0 to 255",
        ),
        (
            "  - {address: x, from: {container: azure, filter: {a: {uwyte: 9}}}}\n",
            "5:55: routes[0].from.filter: 'a': 'uwyte' is no type of AMQP",
        ),
        (
            "  - {address: x, from: {container: azure, properties: {'router:node': x}}}\n",
            "5:56: routes[0].from.properties: 'router:node': names that begin with 'router:' are",
        ),
        (
            "  - {address: x, to: [azure, {container: azure, capabilities: [ü]}]}\n",
            "5:64: routes[0].to[1].capabilities[0]: 'ü' is no symbol",
        ),
        (
            "  - {address: x, from: azure, to: {container: azure, address: y, filter: {a: 1}}}\n",
            "5:35: to: filter: is for a source, and this route only sends to 'azure'; leave it out",
        ),
        (
            "  - {address: x, from: {container: rabbit, filter: {a: 1}}}\n",
            "5:24: from: filter: this is for amqp-1.0, and 'rabbit' speaks amqp-0-9-1; leave it",
        ),
        (
            "  - {address: x.*, to: {container: azure, link_name: l}}\n",
            "5:24: to: link_name: 'x.*' has wildcards, so there would be several links of that",
        ),
        (
            "  - {address: x, to: {container: azure, link_name: l}}\n"
            "  - {address: y, from: {container: azure, link_name: l}}\n",
            "6:24: from: link_name: 'l' is the name of a link to 'azure' in line 5 too; give anoth",
        ),
        (
            "  - {address: x, to: [azure, {container: azure, capabilities: [queue]}]}\n",
            "5:22: to: names the same endpoint twice; leave one out",
        ),
        (
            "  - {address: x, from: {container: azure, filter: {a: '" + "x" * 5000 + "'}}}\n",
            "5:51: routes[0].from.filter: has 5021 octets encoded; at most 4096 are allowed",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_where_it_stands(routes: str, expected: str) -> None:
    (problem,) = problems(routes)
    assert problem.removeprefix("r.yaml:").startswith(expected)


def test_only_the_offset_of_a_stream_is_a_filter_for_0_9_1() -> None:
    offset = '"rabbitmq:stream-offset-spec": first'
    route = "  - {{address: x, from: {{container: rabbit, filter: {{{}}}}}}}\n"
    (source,) = endpoints(route.format(offset))
    assert source.terms.filter_names == ("rabbitmq:stream-offset-spec",)
    (problem,) = problems(route.format(f"{offset}, other: 1"))
    assert "filter: this is for amqp-1.0, and 'rabbit' speaks amqp-0-9-1" in problem
