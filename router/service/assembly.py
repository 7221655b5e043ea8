"""Builds the settings that net/ and core/ are made with from the configuration.

Nothing is opened or dialed here. Settings that cannot be built, because a certificate cannot be
read for example, raise an error before anything changes.
"""

import itertools
import secrets
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Final

import attrs

from router import __version__
from router.core.mesh.control import Plan
from router.core.mesh.names import EDGE, FRAME_OCTETS_LEAST
from router.core.policy import NOBODY, PeerLimits, Policy, PolicyRule, fits_any
from router.core.settings import ContainerTerms, CoreSettings, DialIn
from router.model.capabilities import Protocol
from router.model.identity import LinkId
from router.model.place import Alternative, TcpAddress, is_host
from router.net.cbs import JWT_TYPE, SAS_TYPE, CbsEngine, Claims, sas_token, token_from_file
from router.net.connector import Endpoint
from router.net.diversion import DiversionPolicy
from router.net.reception import Admission, ListenerSettings, MakeEngine, Transport
from router.net.rotation import Rotation
from router.net.tls_files import TlsContext, TlsFiles
from router.net.tls_stream import why_slower
from router.service.config import RouterConfig
from router.service.config.addresses import DEFAULT_PORTS, WEBSOCKET_SCHEMES, ContainerUrl
from router.service.config.containers import Container, ContainerCbs, Failover, Several
from router.service.config.listeners import (
    Listener,
    ListenerSasl,
    ListenerWebSocket,
    ServerMechanism,
)
from router.service.config.load import MANAGEMENT
from router.service.config.policy import RuleLimits
from router.service.credentials import client_files, server_files
from router.service.login_key import keep_key
from router.service.mesh import make_judge, make_plan
from router.service.users import UserFile, WrittenUsers
from router.wire.detect import Door, TlsOffer, WebSocketOffer
from router.wire.engine import Engine, EngineSettings, PeerTerms
from router.wire.mechanisms import Mechanism, MechanismClient, MechanismServer
from router.wire.protocols import PROTOCOLS, ROOT_VHOST, vhost_to_ask_for
from router.wire.sasl import SaslServer
from router.wire.v1_0.engine import Engine10
from router.wire.v1_0.express import Express, make_express

SESSIONS: Final = 256
"""Sessions that a peer may have on one connection, unless the file says otherwise."""

BASIC_CHANNELS: Final = 2047
"""Channels of 0-9-1 and its draft on one connection: as many as RabbitMQ offers."""


@attrs.frozen
class Shared:
    """What all engines and the core of a worker share.

    Attributes:
        management_identity: identity of the management agent; nobody can log in with it.
        link_ids: allocates link ids that are unique in the worker.
        express: the express lane; None: it is off.
        tickets: secret with which clients resume TLS sessions at any worker; empty: there is none.
        memory: state that engines keep for peers that reconnect.
        life: unique identifier of this run of the worker.
    """

    link_ids: Iterator[LinkId]
    express: Express | None
    tickets: bytes = attrs.field(default=b"", repr=False)
    memory: dict[str, object] = attrs.field(factory=dict, repr=False)
    life: str = attrs.field(factory=lambda: f"{secrets.token_hex(4)}.")
    management_identity: str = attrs.field(
        factory=lambda: f"{MANAGEMENT} {secrets.token_hex(8)}", repr=False
    )


@attrs.frozen(kw_only=True)
class Assembly:
    """All settings that follow from one configuration.

    Attributes:
        policy: the access rules.
        terms: the core's settings for each container, by container name.
        listener_settings: settings of each listener, by listener name.
        endpoints: where each container is dialed, by container name.
        rotations: certificate rotations, by the name of the listener or container that uses TLS.
        mesh: what the mesh is made with; None: there is none.
    """

    config: RouterConfig
    core: CoreSettings
    policy: Policy
    terms: Mapping[str, ContainerTerms]
    admission: Admission
    listener_settings: Mapping[str, ListenerSettings]
    endpoints: Mapping[str, tuple[Endpoint, ...]]
    rotations: Mapping[str, Rotation]
    mesh: Plan | None


def share(config: RouterConfig, tickets: bytes = b"") -> Shared:
    """Makes the objects that a worker's engines and core share.

    Raises:
        MisuseError: the environment asks for an express lane or TLS streams that were not built.
    """
    why_slower()
    limits = config.limits
    express = make_express(
        octet_budget=limits.process_octets, connection_budget=limits.connection_octets
    )
    return Shared(map(LinkId, itertools.count(1)), express, tickets)


def assemble(config: RouterConfig, shared: Shared) -> Assembly:
    """Builds all settings that follow from ``config``.

    Args:
        config: as loaded.
        shared: objects that all engines and the core of the worker share.

    Raises:
        TlsError: a certificate cannot be used.
        UserFileError: a file of users cannot be read.
        LoginKeyError: some listener has users, and the state directory cannot be written.
    """
    policy = make_policy(config, shared.management_identity)
    rotations = {
        **{
            name: Rotation(
                context=TlsContext(
                    attrs.evolve(
                        server_files(each.tls, number, is_mesh=each.is_mesh),
                        tickets=shared.tickets,
                    ),
                    TlsFiles.server_context,
                ),
                retire_seconds=each.tls.retire_seconds,
            )
            for number, (name, each) in enumerate(named_listeners(config).items())
            if each.tls is not None
        },
        **_client_rotations(config),
    }
    return Assembly(
        config=config,
        core=core_settings(config),
        policy=policy,
        terms={name: container_terms(each) for name, each in config.containers.items()},
        admission=Admission(
            connections=config.limits.connections,
            per_source=config.limits.connections_per_source,
        ),
        listener_settings=_judged_listeners(
            config, _listener_settings(config, shared, policy, rotations)
        ),
        endpoints=_judged_endpoints(
            config,
            _all_endpoints(
                config, engine_settings(config, shared, is_server=False), shared, rotations
            ),
        ),
        rotations=rotations,
        mesh=make_plan(config),
    )


def _judged_listeners(
    config: RouterConfig, settings: Mapping[str, ListenerSettings]
) -> Mapping[str, ListenerSettings]:
    """Returns the settings of listeners; that of the mesh asks who has issued a certificate."""
    judge, listeners = make_judge(config), named_listeners(config)
    return {
        name: attrs.evolve(each, judge=judge)
        if name in listeners and listeners[name].is_mesh
        else each
        for name, each in settings.items()
    }


def _judged_endpoints(
    config: RouterConfig, endpoints: Mapping[str, tuple[Endpoint, ...]]
) -> Mapping[str, tuple[Endpoint, ...]]:
    """Returns where containers are dialed; the same is asked of neighbors of the mesh."""
    judge = make_judge(config)
    return {
        name: tuple(attrs.evolve(each, judge=judge) for each in places)
        if config.containers[name].is_mesh
        else places
        for name, places in endpoints.items()
    }


def trial_endpoints(
    config: RouterConfig, shared: Shared, container: str
) -> Mapping[str, tuple[Endpoint, ...]]:
    """Returns where each container is dialed, by its name, for connections that carry nothing.

    Args:
        config: as loaded.
        shared: gives the engines their link ids.
        container: the container-id to dial with.

    Raises:
        TlsError: a certificate cannot be used.
    """
    settings = attrs.evolve(
        engine_settings(config, shared, is_server=False), container=container, is_router=False
    )
    return _all_endpoints(config, settings, shared, _client_rotations(config))


def _client_rotations(config: RouterConfig) -> dict[str, Rotation]:
    return {
        name: Rotation(
            context=TlsContext(client_files(each, name), TlsFiles.client_context),
            retire_seconds=each.tls.retire_seconds,
        )
        for name, each in config.containers.items()
        if any(url.is_tls for url in each.url)
    }


def _listener_settings(
    config: RouterConfig, shared: Shared, policy: Policy, rotations: Mapping[str, Rotation]
) -> dict[str, ListenerSettings]:
    settings = attrs.evolve(
        engine_settings(config, shared, is_server=True),
        terms=partial(_peer_terms, policy, _known_vhosts(config)),
    )
    listener_settings = {
        name: _settings_of(
            config,
            listener,
            name,
            rotations.get(name),
            _server_engines(
                listener,
                _for_mesh(settings)
                if listener.is_mesh
                else attrs.evolve(settings, alternatives=_other_places(listener)),
                shared.express,
                _users(listener.sasl, config.router.state),
            ),
        )
        for name, listener in named_listeners(config).items()
    }
    return {**listener_settings, **_management_settings(config, shared)}


def _for_mesh(settings: EngineSettings) -> EngineSettings:
    """Returns the settings for routers of the mesh: the access policy is for clients."""
    return attrs.evolve(
        settings,
        is_mesh=True,
        peer_is_trusted_router=True,
        max_frame_octets=max(settings.max_frame_octets, FRAME_OCTETS_LEAST),
        terms=None,
    )


def named_listeners(config: RouterConfig) -> dict[str, Listener]:
    """Names listeners by the address they bind; several with a system-chosen port are numbered."""
    named: dict[str, Listener] = {}
    for listener in config.listeners:
        name = str(listener.bind)
        if name in named:
            name = f"{name}#{len(named)}"
        named[name] = listener
    return named


def core_settings(config: RouterConfig) -> CoreSettings:
    """Returns the core's settings."""
    limits = config.limits
    return CoreSettings(
        router_id=config.router.id,
        link_credit=limits.link_credit,
        hop_limit=limits.hop_limit,
        max_message_octets=limits.max_message_octets or 0,
        connection_octets=limits.connection_octets,
        process_octets=limits.process_octets,
        expiry_seconds=int(limits.expiry_seconds),
        suspended_links=limits.suspended_links,
        linger_seconds=limits.linger_seconds,
        attempts=limits.attempts,
    )


def make_policy(config: RouterConfig, management_identity: str | None = None) -> Policy:
    """Returns the access policy, with the groups that its rules name replaced by their members.

    Args:
        config: as loaded.
        management_identity: identity of the management agent, if the file enables management.
    """
    rules = tuple(
        PolicyRule(
            name=rule.name,
            users=_fitting(config.policy.identities(rule)),
            vhosts=rule.vhosts,
            send=rule.send,
            receive=rule.receive,
            is_router=rule.is_router,
            limits=_peer_limits(rule.limits),
        )
        for rule in config.policy.rules
    )
    limits = config.limits
    behind = PeerLimits(
        connections=limits.connections_per_identity,
        sessions_per_connection=limits.sessions_per_connection,
        links_per_connection=limits.links_per_connection,
        unsettled_per_link=limits.unsettled_per_link,
        messages_per_second=limits.messages_per_second,
    )
    agent = management_identity if config.router.management else None
    if agent is not None and config.policy.rules:
        own = PolicyRule(name=MANAGEMENT, users=(agent,), send=("#",), receive=(MANAGEMENT,))
        rules = (own, *rules)
    return Policy(rules, behind, {"connections": "limits.connections_per_identity"}, agent)


def _fitting(identities: tuple[str, ...] | None) -> tuple[str, ...]:
    """Returns the identities that a rule fits, by the rules of the core: if it names none, none."""
    if identities is None:
        return ()
    return identities or (NOBODY,)


def _peer_limits(limits: RuleLimits) -> PeerLimits:
    return PeerLimits(**{name: getattr(limits, name) for name in attrs.fields_dict(PeerLimits)})


def container_terms(container: Container) -> ContainerTerms:
    """Returns the core's settings for a container."""
    return ContainerTerms(
        resumes=container.resumes or container.is_router,
        link_credit=container.link_credit,
        retry_seconds=container.retry_seconds,
        retry_limit_seconds=container.retry_limit_seconds,
        failover_seconds=container.failover_seconds,
        takes_addresses=container.protocol in _TAKING_ADDRESSES,
        dials_in=_dial_in(container),
    )


def _dial_in(container: Container) -> DialIn | None:
    if not container.dials_in:
        return None
    is_shared = container.several is Several.BALANCE
    return DialIn(
        identity=container.identity, container_id=container.container_id, is_shared=is_shared
    )


_TAKING_ADDRESSES: Final = (Protocol.AMQP_0_9_1, Protocol.AMQP_0_10, Protocol.AMQP_0_9R1)
"""What is published by these names exchange and key of each message."""


def engine_settings(config: RouterConfig, shared: Shared, *, is_server: bool) -> EngineSettings:
    """Returns the settings that all engines of one side (server or client) share."""
    limits = config.limits
    return EngineSettings(
        is_server=is_server,
        container=config.router.id,
        link_ids=shared.link_ids,
        life=shared.life,
        max_frame_octets=limits.max_frame_octets,
        channel_max=(limits.sessions_per_connection or SESSIONS) - 1,
        basic_channel_max=limits.sessions_per_connection or BASIC_CHANNELS,
        handle_max=limits.links_per_session - 1,
        idle_seconds=limits.idle_seconds,
        handshake_seconds=limits.handshake_seconds,
        session_window_frames=limits.session_window_frames,
        output_high_octets=limits.output_octets,
        output_low_octets=limits.output_octets // 4,
        properties={"version": __version__},
        is_router=True,
        memory=shared.memory,
        expiry_seconds=int(limits.expiry_seconds),
    )


def _settings_of(
    config: RouterConfig,
    listener: Listener,
    name: str,
    rotation: Rotation | None,
    make_engine: MakeEngine,
) -> ListenerSettings:
    tls = listener.tls
    offer = TlsOffer.NONE
    if tls is not None:
        offer = TlsOffer.REQUIRED if tls.required else TlsOffer.OFFERED
    websocket = listener.websocket
    return ListenerSettings(
        listener=name,
        door=Door(
            protocols=PROTOCOLS.keys() & set(listener.protocols),
            header_1_1_9_1=listener.header_1_1_9_1,
            tls=offer,
            websocket=_websocket_offer(websocket),
            sasl_required=listener.sasl is not None,
        ),
        make_engine=make_engine,
        tls=None if rotation is None else rotation.context.current,
        origins=frozenset() if websocket is None else frozenset(websocket.origins),
        identity_field="common-name" if tls is None else tls.identity_field.value,
        handshake_seconds=config.limits.handshake_seconds,
    )


def _other_places(listener: Listener) -> tuple[Alternative, ...]:
    """Returns where else clients of a listener are told to go, with ports, which many insist on."""
    bind = listener.bind
    port = bind.port if isinstance(bind, TcpAddress) else 0
    usual = port or DEFAULT_PORTS["amqp"]
    return tuple(attrs.evolve(each, port=each.port or usual) for each in listener.failover)


def _websocket_offer(websocket: ListenerWebSocket | None) -> WebSocketOffer:
    if websocket is None:
        return WebSocketOffer.NONE
    return WebSocketOffer.REQUIRED if websocket.required else WebSocketOffer.OFFERED


def _management_settings(config: RouterConfig, shared: Shared) -> dict[str, ListenerSettings]:
    """Returns the settings for the management agent's connection, a socket pair of our own."""
    if not config.router.management:
        return {}
    sasl_server = partial(
        MechanismServer,
        offer=(Mechanism.EXTERNAL,),
        external_user=shared.management_identity,
    )
    settings = attrs.evolve(
        engine_settings(config, shared, is_server=True),
        sasl_required=True,
        sasl_server=sasl_server,
    )
    return {
        MANAGEMENT: ListenerSettings(
            listener=MANAGEMENT,
            door=Door(
                protocols=frozenset({Protocol.AMQP_1_0}), tls=TlsOffer.NONE, sasl_required=True
            ),
            make_engine=lambda protocol, transport: Engine10(settings, shared.express),
        )
    }


def _peer_terms(
    policy: Policy, vhosts: frozenset[str], user: str | None, vhost: str | None
) -> PeerTerms:
    """Returns an engine's terms for a peer that has authenticated.

    Args:
        policy: the access rules.
        vhosts: those that routes or rules name, if a route names one; empty: there is only one.
        user: the peer's identity.
        vhost: the virtual host that the peer asks for.
    """
    permissions = policy.permissions(user, vhost)
    sessions = permissions.limits.sessions_per_connection
    return PeerTerms(
        is_router=permissions.is_router,
        sessions=sessions or SESSIONS,
        channels=sessions or BASIC_CHANNELS,
        knows_vhost=not (vhosts and vhost) or vhost == ROOT_VHOST or fits_any(vhosts, vhost),
    )


def _known_vhosts(config: RouterConfig) -> frozenset[str]:
    """Returns the virtual hosts other than the default one, if routes name any."""
    routed = {route.vhost for route in config.routes if route.vhost}
    ruled = {vhost for rule in config.policy.rules for vhost in rule.vhosts}
    return frozenset(routed | ruled) if routed else frozenset()


def _server_engines(
    listener: Listener,
    settings: EngineSettings,
    express: Express | None,
    users: WrittenUsers | UserFile | None,
) -> MakeEngine:
    """Returns a factory of engines for a listener's connections, which differ only in SASL."""
    sasl = listener.sasl

    def settings_for(transport: Transport) -> EngineSettings:
        is_private = listener.bind.is_loopback or transport.is_tls
        passwords_allowed = sasl is None or is_private or sasl.allow_plain_without_tls
        offer = _offer(sasl, passwords_allowed)

        def make_login() -> SaslServer:
            login = MechanismServer(
                offer=offer,
                verifier=users,
                find_secret=None if users is None else users.find_secret,
                external_user=transport.identity,
            )
            return login if transport.login is None else transport.login(login)

        return attrs.evolve(
            settings,
            sasl_required=sasl is not None,
            passwords_allowed=passwords_allowed,
            sasl_server=make_login,
        )

    # Connections without a client certificate share their settings: there may be thousands.
    usual = {
        transport: settings_for(transport)
        for transport in (Transport(False, None), Transport(True, None))
    }

    def make(protocol: Protocol, transport: Transport) -> Engine:
        return PROTOCOLS[protocol].make(usual.get(transport) or settings_for(transport), express)

    return make


def _users(sasl: ListenerSasl | None, state: Path) -> WrittenUsers | UserFile | None:
    if sasl is None or not sasl.users:
        return None
    key = keep_key(state)
    if isinstance(sasl.users, Path):
        return UserFile(sasl.users, key)
    return WrittenUsers(sasl.users, key)


def _offer(sasl: ListenerSasl | None, passwords_allowed: bool) -> tuple[str, ...]:
    """Returns the mechanisms to offer; PLAIN only where a password may be sent."""
    if sasl is None:
        return (Mechanism.EXTERNAL, Mechanism.ANONYMOUS)
    return tuple(
        each.value
        for each in sasl.mechanisms
        if each is not ServerMechanism.PLAIN or passwords_allowed
    )


def _all_endpoints(
    config: RouterConfig,
    settings: EngineSettings,
    shared: Shared,
    rotations: Mapping[str, Rotation],
) -> dict[str, tuple[Endpoint, ...]]:
    """Returns where each container is dialed, by its name."""
    return {
        name: _endpoints(container, settings, shared, rotations.get(name))
        for name, container in config.containers.items()
    }


def _endpoints(
    container: Container,
    settings: EngineSettings,
    shared: Shared,
    rotation: Rotation | None,
) -> tuple[Endpoint, ...]:
    if container.is_here:
        return (_here(settings, shared),)
    context = None if rotation is None else rotation.context
    return tuple(
        _endpoint(container, url, settings, context, shared.express) for url in container.url
    )


def _here(settings: EngineSettings, shared: Shared) -> Endpoint:
    """Returns how a worker sends to itself, as a client does: links resume, and keys are new."""
    client = attrs.evolve(settings, container=f"{settings.container}/local", is_router=False)
    server = attrs.evolve(settings, is_server=True, is_router=False)
    return Endpoint(
        host="this router",
        port=0,
        make_engine=lambda: Engine10(client, shared.express),
        make_other_engine=lambda: Engine10(server, shared.express),
    )


def _endpoint(
    container: Container,
    url: ContainerUrl,
    settings: EngineSettings,
    context: TlsContext | None,
    express: Express | None,
    *,
    other_name: str | None = None,
) -> Endpoint:
    """Returns where and how a URL is dialed.

    Args:
        container: the container that it belongs to.
        url: the place, and the credentials for it.
        settings: those of all dialing engines.
        context: TLS of the container, if any of its URLs has it.
        express: the express lane.
        other_name: what a peer that names this place calls it (``hostname`` of a redirect).
    """
    idle = container.idle_seconds
    policy = diversion_policy(container)
    if container.is_mesh:
        settings = _for_mesh(settings)
    vhost = container.vhost or url.vhost or other_name
    own = attrs.evolve(
        settings,
        hostname=vhost_to_ask_for(container.protocol, vhost, url.host),
        is_redirectable=policy.is_obeyed,
        idle_seconds=settings.idle_seconds if idle is None else idle,
        max_frame_octets=container.max_frame_octets or settings.max_frame_octets,
        own_sessions=container.sessions,
        sasl_client=_client_mechanisms(container, url),
        properties={**settings.properties, **({EDGE: True} if container.is_hub else {})},
        peer_is_trusted_router=container.is_router,
    )
    factory = PROTOCOLS[container.protocol].make
    cbs = None if container.cbs is None else _claims(container.cbs)

    def make_engine() -> Engine:
        engine = factory(own, express)
        return engine if cbs is None else CbsEngine(engine, cbs, lambda: next(own.link_ids))

    def divert(other: Alternative) -> Endpoint:
        policy.check(other, is_tls=url.is_tls)
        place = _url_of(other, url)
        return _endpoint(container, place, settings, context, express, other_name=other.hostname)

    has_name = other_name is not None and is_host(other_name) and policy.allows(other_name)
    return Endpoint(
        host=url.host,
        port=url.port,
        make_engine=make_engine,
        tls=context.current if url.is_tls and context is not None else None,
        server_name=container.tls.server_name or (other_name if has_name else None),
        path=url.path,
        proxy=container.proxy,
        divert=divert,
    )


def _url_of(other: Alternative, url: ContainerUrl) -> ContainerUrl:
    """Returns the URL of another place, with the credentials of the one whose peer names it."""
    is_websocket = url.path is not None
    if other.scheme is not None:
        is_websocket = other.scheme in WEBSOCKET_SCHEMES
    path = (other.path or url.path or "/") if is_websocket else None
    scheme = ("ws" if is_websocket else "amqp") + ("s" if url.is_tls else "")
    return attrs.evolve(url, host=other.host, port=other.port or DEFAULT_PORTS[scheme], path=path)


def diversion_policy(container: Container) -> DiversionPolicy:
    """Returns which places are dialed because a container names them."""
    own = (url.host.lower().rstrip(".") for url in container.url)
    return DiversionPolicy(
        is_obeyed=container.failover is Failover.OBEY,
        hosts=tuple(dict.fromkeys((*own, *container.failover_hosts))),
    )


def _claims(cbs: ContainerCbs) -> Claims:
    """Returns the tokens that are sent to a container's ``$cbs`` node."""
    if cbs.token_file is not None:
        kind, make_token = JWT_TYPE, token_from_file(cbs.token_file)
    else:
        assert cbs.sas_name is not None, "the file is checked for that"
        assert cbs.sas_key is not None, "the file is checked for that"
        name, key = cbs.sas_name, cbs.sas_key.reveal()
        kind = SAS_TYPE

        def make_token(now: float) -> str:
            return sas_token(cbs.audience, name, key, int(now + 2 * cbs.renew_seconds))

    return Claims(
        audience=cbs.audience,
        kind=cbs.type or kind,
        renew_seconds=cbs.renew_seconds,
        make_token=make_token,
    )


def _client_mechanisms(container: Container, url: ContainerUrl) -> Callable[[], MechanismClient]:
    """Returns our SASL mechanisms, with the credentials of the URL or else of the ``sasl`` section.

    Without either, the router logs in as nobody (ANONYMOUS).
    """
    sasl = container.sasl
    user = sasl.user if url.user is None else url.user
    secret = sasl.password if url.password is None else url.password
    password = None if secret is None else secret.reveal()
    token = None if sasl.token is None else sasl.token.reveal()
    allowed = tuple(each.value for each in sasl.mechanisms)
    return lambda: MechanismClient(
        user=user,
        password=password,
        token=token,
        has_certificate=url.is_tls and container.tls.cert is not None,
        allowed=allowed,
    )
