"""Other places of a container, as peers of all protocols write them."""

import pytest

from router.model.capabilities import Protocol
from router.model.condition import CONNECTION_REDIRECT
from router.model.events import ConnectionClosed, ConnectionOpened, Event
from router.model.place import Alternative
from router.wire.alternatives import (
    ENTRIES_MOST,
    FAILOVER_SERVER_LIST,
    UnfitAlternativeError,
    as_map,
    read_alternative,
    read_known_hosts,
    read_list,
    redirect,
    write_known_hosts,
)
from router.wire.engine import Engine, EngineSettings
from router.wire.protocols import PROTOCOLS
from router.wire.v0_9_1 import methods as m
from router.wire.v1_0.encoding import encode_value
from router.wire.v1_0.types import Array, Symbol, Ushort, decode_value
from tests.support.basic_peer import BrokerPeer
from tests.support.draft_peer import DraftBrokerPeer

B = Alternative(host="b.example", port=5673)


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"network-host": "b.example", "port": 5673}, B),
        ({"network-host": "b.example", "port": "5673"}, B),  # as Qpid Dispatch writes it
        (
            {"network-host": "b", "hostname": "b", "scheme": "amqps", "port": 5671},  # Artemis
            Alternative(host="b", hostname="b", scheme="amqps", port=5671),
        ),
        (
            {"network-host": "b", "port": 443, "scheme": "WSS", "path": "amqp"},
            Alternative(host="b", port=443, scheme="wss", path="/amqp"),
        ),
        ({"network-host": "[::1]", "port": 1}, Alternative(host="::1", port=1)),
        ({"network-host": "b", "hostname": "", "scheme": None}, Alternative(host="b")),
    ],
)
def test_a_map_names_a_place(entry: object, expected: Alternative) -> None:
    assert read_alternative(entry) == expected


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("b.example:5672", "is text, and no map"),
        ({}, "names no network-host"),
        ({"network-host": "", "port": 5672}, "names no network-host"),
        ({"network-host": 7}, "has a number as network-host, and no text"),
        ({"network-host": "a b"}, "has a network-host that is no host: 'a b'"),
        ({"network-host": "a..b"}, "has a network-host that is no host: 'a..b'"),
        ({"network-host": ".b"}, "has a network-host that is no host: '.b'"),
        ({"network-host": "b" * 64}, f"has a network-host that is no host: '{'b' * 64}'"),
        ({"network-host": "::::"}, "has a network-host that is no host: '::::'"),
        (
            {"network-host": "b", "scheme": "ws", "path": "/a b"},
            "has a path that nobody can ask for: '/a b'",
        ),
        ({"network-host": "user@b"}, "has a network-host that is no host: 'user@b'"),
        ({"network-host": "b\n"}, "has a network-host that nobody can dial: 'b\\n'"),
        ({"network-host": "b", "port": True}, "has a port that is none from 1 to 65535: True"),
        ({"network-host": "b", "port": 0}, "has a port that is none from 1 to 65535: 0"),
        ({"network-host": "b", "port": 65536}, "has a port that is none from 1 to 65535: 65536"),
        ({"network-host": "b", "port": "-1"}, "has a port that is none from 1 to 65535: '-1'"),
        ({"network-host": "b", "port": [1]}, "has a port that is none from 1 to 65535: a list"),
        ({"network-host": "b", "scheme": "http"}, "has the unknown scheme 'http'"),
        ({"network-host": "b", "hostname": b"b"}, "has binary as hostname, and no text"),
    ],
)
def test_a_map_that_names_no_place_is_refused_by_name(entry: object, reason: str) -> None:
    with pytest.raises(UnfitAlternativeError) as caught:
        read_alternative(entry)
    assert str(caught.value) == reason


def test_a_wrong_entry_does_not_spoil_a_list() -> None:
    good = {"network-host": "b.example", "port": 5673}
    listed = read_list(["", good, None, 7, good, {"port": 5672}])
    assert listed.alternatives == (B,)
    assert listed.refused == (
        "entry 1 is text, and no map",
        "entry 3 is nothing, and no map",
        "entry 4 is a number, and no map",
        "entry 6 names no network-host",
    )
    assert read_list(Array(dict, [good])).alternatives == (B,)


@pytest.mark.parametrize("value", ["b.example", {}, 7, None, b"x"])
def test_what_is_no_list_is_refused_by_name(value: object) -> None:
    listed = read_list(value)
    assert not listed.alternatives
    assert listed.refused[0].endswith("and no list")


def test_a_list_without_end_is_cut() -> None:
    listed = read_list([{"network-host": f"b{n}"} for n in range(1000)])
    assert len(listed.alternatives) == ENTRIES_MOST
    assert listed.refused == (f"it has 1000 entries; the first {ENTRIES_MOST} are read",)


def test_a_place_is_written_as_artemis_and_dispatch_write_it() -> None:
    written = as_map(Alternative(host="b", port=5671, scheme="amqps", hostname="vhost"))
    assert written == {"network-host": "b", "port": 5671, "scheme": "amqps", "hostname": "vhost"}
    assert all(type(key) is Symbol for key in written)
    assert type(written[Symbol("port")]) is Ushort
    octets = encode_value([written])
    assert read_list(decode_value(octets, 0)[0]).alternatives == (
        Alternative(host="b", port=5671, scheme="amqps", hostname="vhost"),
    )


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        ("b:5673", [{"network-host": "b", "port": 5673}]),
        ("b, c:1", [{"network-host": "b"}, {"network-host": "c", "port": 1}]),
        (
            ["amqp:tcp:10.0.0.1:5672,tls:c:5671", "amqp:d"],
            [
                {"network-host": "10.0.0.1", "port": 5672, "scheme": "amqp"},
                {"network-host": "c", "port": 5671, "scheme": "amqps"},
                {"network-host": "d"},
            ],
        ),
        ("amqp:[::1]:5672", [{"network-host": "::1", "port": 5672}]),
        ("", []),
        (None, []),
    ],
)
def test_known_hosts_of_older_protocols_become_the_same_list(
    texts: object, expected: list[object]
) -> None:
    assert read_known_hosts(texts) == expected


@pytest.mark.parametrize("texts", ["a b", "rdma:x:y:z", [7, ""], "user@b:5672"])
def test_known_hosts_that_are_none_are_refused_by_name(texts: object) -> None:
    listed = read_list(read_known_hosts(texts))
    assert listed.refused or listed.alternatives == (Alternative(host="7"),)


def test_known_hosts_are_written_and_read_back() -> None:
    places = [
        Alternative(host="b", port=5672),
        Alternative(host="::1", port=5671, scheme="amqps"),
        Alternative(host="c", port=443, scheme="wss", path="/amqp"),
    ]
    assert write_known_hosts(places, is_url=True) == ["amqp:tcp:b:5672", "amqp:tls:[::1]:5671"]
    assert write_known_hosts(places, is_url=False) == ["b:5672", "[::1]:5671"]


def test_a_redirect_of_an_older_protocol_has_the_host_first_and_then_those_that_are_known() -> None:
    said = redirect("b:5673", ["amqp:tcp:c:5674"])
    assert said.name == CONNECTION_REDIRECT
    assert said.info == {
        "network-host": "b",
        "port": 5673,
        FAILOVER_SERVER_LIST: [{"network-host": "c", "port": 5674, "scheme": "amqp"}],
    }


def converse(server: Engine, client: Engine) -> list[Event]:
    """Hands octets to and fro until both are silent; returns the client's events."""
    events: list[Event] = []
    for _ in range(20):
        for one, other in ((client, server), (server, client)):
            one.handle_deadline(0.0)
            while shown := bytes(one.data_to_send()):
                one.bytes_sent(len(shown))
                told = other.receive_data(shown, 0.0)
                events += told if other is client else []
    return events


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        (Protocol.AMQP_1_0, [{"network-host": "b", "port": 5671, "scheme": "amqps"}]),
        (Protocol.AMQP_0_10, [{"network-host": "b", "port": 5671, "scheme": "amqps"}]),
        (Protocol.AMQP_0_9R1, [{"network-host": "b", "port": 5671}]),
        (Protocol.AMQP_0_9_1, None),  # the field of open-ok is reserved
        (Protocol.AMQP_FAST, None),  # it has none
    ],
)
def test_an_open_names_other_places_where_its_protocol_can(
    protocol: Protocol, expected: object
) -> None:
    make = PROTOCOLS[protocol].make
    places = (Alternative(host="b", port=5671, scheme="amqps"),)
    server = make(EngineSettings(is_server=True, container="a", alternatives=places), None)
    client = make(EngineSettings(is_server=False, container="c", hostname="/"), None)
    (opened,) = [each for each in converse(server, client) if isinstance(each, ConnectionOpened)]
    assert opened.alternatives == expected


@pytest.mark.parametrize("kind", [BrokerPeer, DraftBrokerPeer])
def test_a_broker_before_0_9_1_redirects_instead_of_opening(kind: type[BrokerPeer]) -> None:
    peer = kind()
    major, minor = kind.version
    start = m.ConnectionStart(
        version_major=major, version_minor=minor, server_properties={}, mechanisms=b"PLAIN"
    )
    peer.send(0, start)
    peer.send(0, m.ConnectionTune(channel_max=10, frame_max=131072, heartbeat=0))
    events = peer.send(0, m.ConnectionRedirect("b:5673", "c"))
    assert events == [
        ConnectionClosed(
            redirect("b:5673", "c"),
            by_peer=True,
        )
    ]
