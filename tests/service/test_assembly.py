"""What the file says, as net and core are told it."""

import itertools
from pathlib import Path

import pytest

from router.core.mesh.names import FRAME_OCTETS_LEAST
from router.core.policy import Operation
from router.core.settings import ContainerTerms
from router.model.capabilities import Protocol
from router.model.identity import LinkId
from router.model.place import TcpAddress
from router.net.reception import Transport
from router.net.tls import TlsError
from router.routes.vhost import inside
from router.service import assembly
from router.service.assembly import (
    Assembly,
    Shared,
    assemble,
    core_settings,
    named_listeners,
)
from router.service.config import ConfigError, RouterConfig, Secret, read
from router.service.users import UserFileError, WrittenUsers, hash_password, write_users
from router.wire.detect import AmbiguousHeader, TlsOffer, WebSocketOffer
from router.wire.engine import Engine, EngineSettings, PeerTerms
from router.wire.protocols import PROTOCOLS, ProtocolRow
from router.wire.sasl import SaslServer, Success
from router.wire.v0_9_1.client import ClientEngine
from router.wire.v1_0.express import Express
from tests.support.plain import PlainEngine
from tests.support.planes import papers

CLEAR = Transport(is_tls=False, identity=None)
SECURE = Transport(is_tls=True, identity=None)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """State directories are made in the current folder."""
    monkeypatch.chdir(tmp_path)


def config(text: str, directory: Path = Path()) -> RouterConfig:
    return read("router: {id: dc1}\n" + text, "router.yaml", directory, {})


def assembled(text: str, directory: Path = Path()) -> Assembly:
    return assemble(config(text, directory), Shared(map(LinkId, itertools.count(1)), None))


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[EngineSettings]:
    """Settings of the engines that are made; they are plain ones."""
    settings: list[EngineSettings] = []

    def make(of: EngineSettings, express: Express | None) -> Engine:
        settings.append(of)
        return PlainEngine()

    monkeypatch.setattr(
        assembly, "PROTOCOLS", {Protocol.AMQP_1_0: ProtocolRow(make=make, vhost=None)}
    )
    return settings


FIRST_OCTETS = {
    Protocol.AMQP_1_0: b"AMQP\3\1\0\0",
    Protocol.AMQP_0_9_1: b"AMQP\0\0\x09\1",
    Protocol.AMQP_0_9R1: b"AMQP\1\1\x09\1",
    Protocol.AMQP_0_10: b"AMQP\1\1\0\x0a",
    Protocol.AMQP_FAST: b"\x80\1",
}


def sasl_server(settings: EngineSettings) -> SaslServer:
    assert settings.sasl_server is not None
    return settings.sasl_server()


def test_a_listener_serves_what_has_an_engine_and_the_file_allows() -> None:
    (listener,) = assembled("listeners: [{bind: '127.0.0.1:0'}]").listener_settings.values()
    assert listener.door.protocols == PROTOCOLS.keys()
    (listener,) = assembled(
        "listeners: [{bind: '127.0.0.1:0', protocols: [amqp-0-9-1]}]"
    ).listener_settings.values()
    assert listener.door.protocols == {Protocol.AMQP_0_9_1}


def test_the_file_says_who_sends_the_header_of_two_protocols() -> None:
    for text, meant in (
        ("", AmbiguousHeader.DRAFT),
        (", header_1_1_9_1: amqp-0-9r1", AmbiguousHeader.DRAFT),
        (", header_1_1_9_1: amqp-0-8", AmbiguousHeader.AS_0_8),
    ):
        whole = assembled("listeners: [{bind: '127.0.0.1:0'" + text + "}]")
        (listener,) = whole.listener_settings.values()
        assert listener.door.header_1_1_9_1 is meant


def test_listeners_are_named_by_what_they_bind() -> None:
    names = named_listeners(
        config("listeners: [{bind: '127.0.0.1:0'}, {bind: '127.0.0.1:0'}, {bind: 'unix:/r.sock'}]")
    )
    assert list(names) == ["127.0.0.1:0", "127.0.0.1:0#1", "unix:/r.sock"]
    assert names["127.0.0.1:0#1"].bind == TcpAddress("127.0.0.1", 0)


def test_limits_reach_engines_core_and_reception(made: list[EngineSettings]) -> None:
    whole = assembled(
        "limits: {max_frame_octets: 4KiB, sessions_per_connection: 8, links_per_session: 16,"
        " idle_seconds: 7s, handshake_seconds: 3s, session_window_frames: 99,"
        " output_octets: 128KiB, hop_limit: 5, link_credit: 11, connections: 12}\n"
        "listeners: [{bind: '127.0.0.1:0'}]"
    )
    (listener,) = whole.listener_settings.values()
    listener.make_engine(Protocol.AMQP_1_0, CLEAR)
    settings = made[0]
    assert settings.is_server
    assert settings.container == "dc1"
    assert settings.max_frame_octets == 4096
    assert (settings.channel_max, settings.handle_max) == (7, 15)
    assert settings.basic_channel_max == 8
    assert (settings.idle_seconds, settings.handshake_seconds) == (7, 3)
    assert settings.session_window_frames == 99
    assert (settings.output_high_octets, settings.output_low_octets) == (131072, 32768)
    assert listener.handshake_seconds == 3
    assert whole.admission.connections == 12
    assert (whole.core.hop_limit, whole.core.link_credit) == (5, 11)
    assert core_settings(whole.config) == whole.core


def test_routers_of_a_mesh_take_frames_that_hold_an_attach_whatever_clients_may_send(
    made: list[EngineSettings], tmp_path: Path
) -> None:
    whole = assembled(
        "limits: {max_frame_octets: 4KiB}\nlisteners: [{bind: '127.0.0.1:0'}]\n"
        "mesh: {listen: '127.0.0.1:1', tls: off, links: {dc2: {host: '127.0.0.2:1'}}}\n"
    )
    for listener in whole.listener_settings.values():
        listener.make_engine(Protocol.AMQP_1_0, CLEAR)
    for place in itertools.chain(*whole.endpoints.values()):
        place.make_engine()
    frames = {settings.is_mesh: settings.max_frame_octets for settings in made}
    assert frames == {False: 4096, True: FRAME_OCTETS_LEAST}
    assert len(made) == 3


def test_without_a_sasl_section_anybody_may_come_in(made: list[EngineSettings]) -> None:
    (listener,) = assembled("listeners: [{bind: '127.0.0.1:0'}]").listener_settings.values()
    listener.make_engine(Protocol.AMQP_1_0, CLEAR)
    assert not made[0].sasl_required
    assert not listener.door.sasl_required
    assert sasl_server(made[0]).mechanisms == ("ANONYMOUS",)


def test_with_a_sasl_section_only_its_users_may(made: list[EngineSettings]) -> None:
    (listener,) = assembled(
        "listeners: [{bind: '127.0.0.1:0', sasl: {mechanisms: [PLAIN], users: {app: pencil}}}]"
    ).listener_settings.values()
    listener.make_engine(Protocol.AMQP_1_0, CLEAR)
    assert made[0].sasl_required
    assert listener.door.sasl_required
    assert sasl_server(made[0]).mechanisms == ("PLAIN",)


def test_plain_is_offered_to_other_machines_over_tls_only(made: list[EngineSettings]) -> None:
    def mechanisms(options: str, transport: Transport) -> object:
        (listener,) = assembled(
            "listeners: [{bind: '192.0.2.1:5672',"
            f" sasl: {{mechanisms: [PLAIN], users: {{app: pencil}}{options}}}}}]"
        ).listener_settings.values()
        listener.make_engine(Protocol.AMQP_1_0, transport)
        return sasl_server(made[-1]).mechanisms

    assert mechanisms("", CLEAR) == ()
    assert mechanisms("", SECURE) == ("PLAIN",)
    assert mechanisms(", allow_plain_without_tls: true", CLEAR) == ("PLAIN",)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_no_protocol_asks_for_passwords_in_clear_because_anonymous_clients_may_come_in(
    protocol: Protocol,
) -> None:
    """Clients that know nothing else would send theirs."""
    for more, is_asked in (("", False), (", allow_plain_without_tls: true", True)):
        (listener,) = assembled(
            "listeners: [{bind: '192.0.2.1:5672', sasl: {mechanisms: [ANONYMOUS, PLAIN],"
            f" users: {{app: pencil}}{more}}}}}]"
        ).listener_settings.values()
        engine = listener.make_engine(protocol, CLEAR)
        engine.receive_data(FIRST_OCTETS[protocol], 0.0)
        offered = bytes(engine.data_to_send())
        assert b"ANONYMOUS" in offered
        assert (b"PLAIN" in offered) is is_asked, offered


def test_a_certificate_is_an_identity_and_others_share_one_record_of_settings(
    made: list[EngineSettings],
) -> None:
    (listener,) = assembled("listeners: [{bind: '127.0.0.1:0'}]").listener_settings.values()
    for transport in (CLEAR, CLEAR, Transport(is_tls=True, identity="app")):
        listener.make_engine(Protocol.AMQP_1_0, transport)
    assert made[0] is made[1]
    assert sasl_server(made[2]).mechanisms == ("EXTERNAL", "ANONYMOUS")


def test_passwords_are_compared_whole() -> None:
    users = WrittenUsers({"app": Secret("pencil"), "blank": Secret("")})
    assert users.verify_plain("app", "pencil")
    assert not users.verify_plain("app", "pencil ")
    assert not users.verify_plain("nobody", "")
    assert users.verify_plain("blank", "")


def test_a_broker_of_0_9_1_is_asked_for_the_host_that_is_named_or_the_default_one() -> None:
    for path, vhost, asked in (("", "", "/"), ("/v", "", "v"), ("/v", ", vhost: w", "w")):
        [endpoint] = assembled(
            "containers: {east: {url: 'amqp://u:p@east.example" + path + "',"
            " protocol: amqp-0-9-1" + vhost + "}}"
        ).endpoints["east"]
        engine = endpoint.make_engine()
        assert isinstance(engine, ClientEngine)
        assert engine.settings.hostname == asked


def test_a_container_is_dialed_as_its_urls_and_options_say(made: list[EngineSettings]) -> None:
    endpoints = assembled(
        "containers: {east: {url: ['amqp://u:p%40ss@one.example/%2f', 'amqps://two.example:7000'],"
        " idle_seconds: 9s, sessions: 1, is_router: true,"
        " tls: {server_name: east.example, verify: false}}}"
    ).endpoints["east"]
    assert [str(each) for each in endpoints] == ["one.example:5672", "two.example:7000"]
    assert endpoints[0].tls is None
    assert endpoints[1].tls is not None
    assert endpoints[1].server_name == "east.example"
    for each in endpoints:
        each.make_engine()
    one, two = made
    assert not one.is_server
    assert (one.hostname, two.hostname) == ("/", "two.example")
    assert one.idle_seconds == two.idle_seconds == 9
    assert one.own_sessions == two.own_sessions == 1
    assert one.peer_is_trusted_router
    assert one.sasl_client is not None
    assert two.sasl_client is not None
    assert one.sasl_client().choose(["ANONYMOUS", "PLAIN"]) == ("PLAIN", b"\0u\0p@ss")
    assert two.sasl_client().choose(["ANONYMOUS", "PLAIN"]) == ("ANONYMOUS", b"anonymous")


def test_tls_of_a_listener_is_required_unless_the_file_says_otherwise(tmp_path: Path) -> None:
    papers(tmp_path)
    for option, offer in (("", TlsOffer.REQUIRED), (", required: false", TlsOffer.OFFERED)):
        (listener,) = assembled(
            "listeners: [{bind: '127.0.0.1:0', tls: {cert: server.pem, key: server.pem"
            + option
            + "}}]",
            tmp_path,
        ).listener_settings.values()
        assert listener.door.tls is offer
        assert listener.tls is not None


def test_websocket_is_served_as_the_file_says() -> None:
    whole = assembled(
        """
listeners:
- {bind: '127.0.0.1:1'}
- {bind: '127.0.0.1:2', websocket: {}}
- {bind: '127.0.0.1:3', websocket: {required: true, origins: ["HTTPS://App.example", null]}}
""".replace("null", '"null"')
    )
    settings = list(whole.listener_settings.values())
    assert [each.door.websocket for each in settings] == [
        WebSocketOffer.NONE,
        WebSocketOffer.OFFERED,
        WebSocketOffer.REQUIRED,
    ]
    assert [each.origins for each in settings] == [
        frozenset(),
        frozenset(),
        {"https://app.example", "null"},
    ]


@pytest.mark.parametrize("origin", ["app.example", "https://app.example/", "https://", "a b"])
def test_an_origin_is_a_scheme_and_a_host(origin: str) -> None:
    with pytest.raises(ConfigError, match="is not an origin"):
        config(f"listeners: [{{websocket: {{origins: ['{origin}']}}}}]")


def test_a_certificate_that_cannot_be_used_is_named_by_option_and_file(tmp_path: Path) -> None:
    (tmp_path / "bad.pem").write_text("nothing")
    with pytest.raises(TlsError, match=r"tls\.cert: .*bad\.pem: it holds no certificate"):
        assembled(
            "listeners: [{bind: '127.0.0.1:0', tls: {cert: bad.pem, key: bad.pem}}]", tmp_path
        )


POLICY = """
limits: {connections_per_identity: 3, unsettled_per_link: 5, messages_per_second: 7,
  links_per_connection: 9, sessions_per_connection: 11}
policy:
  groups: {apps: [app-*, web], nobody: []}
  rules:
    - {name: routers, users: [dc2], send: ["#"], is_router: true, limits: {connections: 1}}
    - {name: none, groups: [nobody], send: ["#"]}
    - {name: apps, groups: [apps], vhosts: [east], send: [orders], limits: {link_credit: 4,
       sessions_per_connection: 2}}
listeners: [{bind: '127.0.0.1:0'}]
"""


def test_rules_are_compiled_with_the_members_of_their_groups_and_the_limits_behind() -> None:
    policy = assembled(POLICY).policy
    assert policy.permissions("dc2", None).is_router
    web = policy.permissions("web", "east")
    assert (web.rule, web.limits.link_credit, web.limits.connections) == ("apps", 4, 3)
    assert web.limits.unsettled_per_link == 5
    assert web.limits.messages_per_second == 7
    assert web.limits.links_per_connection == 9
    assert web.exceeds("connections", 3) == "limits.connections_per_identity: 3"
    assert policy.permissions("web", "west").rule is None
    assert policy.permissions("eve", "east").rule is None


def test_a_policy_of_groups_without_members_lets_nobody_do_anything() -> None:
    text = "policy: {groups: {ops: []}, rules: [{name: ops, groups: [ops], send: ['#']}]}"
    policy = assembled(text).policy
    for user in ("eve", None):
        assert policy.permissions(user, None).denial(Operation.SEND, "orders") is not None


def test_engines_learn_what_holds_for_a_peer_that_has_come_in(made: list[EngineSettings]) -> None:
    (listener,) = assembled(POLICY).listener_settings.values()
    listener.make_engine(Protocol.AMQP_1_0, CLEAR)
    terms = made[0].terms
    assert terms is not None
    assert terms("dc2", None) == PeerTerms(is_router=True, sessions=11, channels=11)
    assert terms("app-1", "east") == PeerTerms(is_router=False, sessions=2, channels=2)


VHOSTS = """
routes: [{address: a, vhost: east}, {address: a}]
policy:
  rules:
    - {name: west, vhosts: ["west*"], send: [a]}
    - {name: all, send: [a]}
listeners: [{bind: '127.0.0.1:0'}]
"""


def test_a_virtual_host_is_known_if_a_route_or_a_rule_names_it_or_it_is_the_usual_one(
    made: list[EngineSettings],
) -> None:
    (listener,) = assembled(VHOSTS).listener_settings.values()
    listener.make_engine(Protocol.AMQP_1_0, CLEAR)
    terms = made[0].terms
    assert terms is not None
    known = {vhost: terms("app", vhost).knows_vhost for vhost in ("east", "western", "/", "", None)}
    assert set(known.values()) == {True}
    assert not terms("app", "eas").knows_vhost
    assert not terms("app", "nowhere").knows_vhost


def test_where_no_route_names_a_virtual_host_there_is_one_with_any_name(
    made: list[EngineSettings],
) -> None:
    (listener,) = assembled(POLICY).listener_settings.values()
    listener.make_engine(Protocol.AMQP_1_0, CLEAR)
    terms = made[0].terms
    assert terms is not None
    assert terms("app-1", "nowhere").knows_vhost


def test_clients_of_0_9_1_have_as_many_channels_as_they_are_built_for(
    made: list[EngineSettings],
) -> None:
    (listener,) = assembled("listeners: [{bind: '127.0.0.1:0'}]").listener_settings.values()
    listener.make_engine(Protocol.AMQP_1_0, CLEAR)
    settings = made[0]
    assert (settings.channel_max, settings.basic_channel_max) == (255, 2047)
    assert settings.terms is not None
    assert settings.terms("app", "/").channels == 2047


def test_terms_of_containers_are_those_of_the_file() -> None:
    terms = assembled(
        "containers: {east: {url: 'amqp://east', link_credit: 6, retry_seconds: 2s,"
        " retry_limit_seconds: 9s, failover_seconds: forever}}"
    ).terms
    assert terms["east"] == ContainerTerms(
        resumes=False,
        link_credit=6,
        retry_seconds=2,
        retry_limit_seconds=9,
        failover_seconds=None,
    )


def test_users_may_be_kept_in_a_file(made: list[EngineSettings], tmp_path: Path) -> None:
    write_users(tmp_path / "users", {"app": hash_password("pencil")})
    text = "listeners: [{bind: '127.0.0.1:0', sasl: {users: users}}]"
    (listener,) = assembled(text, tmp_path).listener_settings.values()
    listener.make_engine(Protocol.AMQP_1_0, CLEAR)
    assert sasl_server(made[0]).mechanisms == ("SCRAM-SHA-256", "PLAIN")
    assert sasl_server(made[0]).start("PLAIN", b"\0app\0pencil") == Success("app")
    (tmp_path / "users").write_text("app nonsense\n")
    with pytest.raises(UserFileError, match="users: line 1: "):
        assembled(text, tmp_path)


def test_a_token_of_a_container_is_used(made: list[EngineSettings]) -> None:
    [endpoint] = assembled(
        "containers: {east: {url: 'amqp://east', sasl: {user: me, token: abc}}}"
    ).endpoints["east"]
    endpoint.make_engine()
    assert made[0].sasl_client is not None
    choice = made[0].sasl_client().choose(["PLAIN", "XOAUTH2"])
    assert choice == ("XOAUTH2", b"user=me\x01auth=Bearer abc\x01\x01")


def test_routes_of_a_virtual_host_have_inner_addresses() -> None:
    (route,) = config("routes: [{address: orders, vhost: east.example}]").routes
    assert (route.vhost, route.address) == ("east.example", inside("east.example", "orders"))
    with pytest.raises(ConfigError, match="keeps for itself"):
        config("routes: [{address: $vhost/east/orders}]")
