"""``router check --connect``: dials every container and looks for the addresses of the routes.

Theory of operation. One task for each container, a few at a time, dials its URLs in order, as the
router would: TCP, TLS, SASL, open. At the first that opens it looks for the addresses that the
routes name there (``net.client.probe``): nothing is sent, received or made. Each URL has a limit of
time. The router's own container-id and link names are not used, because the router may be running
and its peers may take a second connection of the same name for its return.

What is found is a list of findings, each with its place in the file: containers in the order of
the file, then the addresses, in the order of the routes.
"""

import contextlib
import math
import secrets
from collections.abc import Iterator
from typing import Final

import attrs
import trio

from router.links.trail import RefusedDiversionError, Trail
from router.model.condition import NOT_FOUND
from router.model.events import ConnectionOpened
from router.model.identity import LinkId
from router.model.terminus import Role
from router.net.client.conversation import Conversation, Dialing, UnreachableError
from router.net.client.probe import Probe, Sought, passive_name
from router.net.connector import Endpoint
from router.net.dialing import Line, Wait, become_websocket, connect_through, open_tcp
from router.net.diversion import read_redirect
from router.net.proxy import ProxyError
from router.net.upgrade import UpgradeError
from router.net.websocket import Frames, WebSocketEngine
from router.routes.match import Wildcard, parse_pattern, split
from router.routes.route import Endpoint as RouteEnd
from router.routes.route import Position, Route
from router.service.advice import connection_advice, container_words, link_advice
from router.service.assembly import Shared, trial_endpoints
from router.service.config import RouterConfig
from router.service.config.addresses import ContainerUrl
from router.service.config.containers import Container
from router.service.config.references import Secret
from router.wire.engine import Engine

SECONDS: Final = 10.0
"""Limit for each URL, unless another is asked for."""

HTTP_SECONDS: Final = 2.0
"""Limit for the question whether something that does not answer speaks HTTP."""

_SILENCE: Final = ("without a close", "was lost", "reset")
"""Reasons of a peer that leaves without a word."""

_AT_A_TIME: Final = 64
"""Containers that are dialed at a time."""


@attrs.frozen(kw_only=True)
class Finding:
    """One thing that was found.

    Attributes:
        text: what was found, and what to do about it.
        is_problem: the router would fail here.
    """

    position: Position
    text: str
    is_problem: bool = False

    def __str__(self) -> str:
        return f"{self.position}: {self.text}"


@attrs.frozen(kw_only=True)
class _End:
    """One end of a route in a container.

    Attributes:
        sought: None: its addresses are not known before they are used.
    """

    route: Route
    end: RouteEnd
    role: Role
    sought: Sought | None

    @property
    def words(self) -> str:
        preposition = "to" if self.role is Role.SENDER else "from"
        return f"route {self.route.name}: {preposition} {self.end}"


@attrs.define(eq=False)
class _Visit:
    """What came of dialing one container.

    Attributes:
        findings: about its URLs.
        probe: of the URL that opened; None: none did.
    """

    findings: list[Finding] = attrs.field(factory=list)
    probe: Probe | None = None


async def inquire(config: RouterConfig, seconds: float = SECONDS) -> list[Finding]:
    """Dials every container and looks for what the routes name there.

    Args:
        config: as loaded.
        seconds: limit for each URL.

    Raises:
        TlsError: a certificate cannot be used.
    """
    token = secrets.token_hex(4)
    shared = Shared(map(LinkId, iter(range(1, 1 << 62))), None)
    endpoints = trial_endpoints(config, shared, f"{config.router.id}.check-{token}")
    ends = [each for route in config.routes for each in _ends(route, config)]
    visits = {name: _Visit() for name in config.containers}
    room = trio.CapacityLimiter(_AT_A_TIME)

    async def visit(name: str, container: Container) -> None:
        sought = {each.sought for each in ends if each.end.container == name and each.sought}
        dialer = _Dialer(name, container, sorted(sought, key=str), shared, seconds)
        async with room:
            await dialer.visit(endpoints[name], visits[name])

    async with trio.open_nursery() as nursery:
        for name, container in config.containers.items():
            if container.is_here:
                continue
            if container.dials_in or container.is_mesh:
                visits[name].findings.append(_unvisited(name, container))
            else:
                nursery.start_soon(visit, name, container)
    found = [finding for each in visits.values() for finding in each.findings]
    if config.router.journal.store is not None:
        found += await trio.to_thread.run_sync(inquire_store, config, config.router.journal.store)
    for each in ends:
        probe = visits[each.end.container].probe
        if probe is not None:
            found.append(_judge(each, probe))
    return found


def inquire_store(config: RouterConfig, url: Secret) -> list[Finding]:
    """Looks at the database of the journal, and says what is survived with it."""
    from router.journal.postgres.mark import Mark  # noqa: PLC0415  needs the extra
    from router.journal.postgres.storage import durability  # noqa: PLC0415

    position, name = config.router.journal.where.of("store"), "router.journal.store"
    try:
        mark = Mark(config.router.state, config.router.id)
        found = durability(url.reveal(), config.router.id, mark.check)
    except OSError as error:
        return [
            Finding(position=position, text=f"{name}: {error.strerror or error}", is_problem=True)
        ]
    if found.missing:
        text = f"its role lacks {', '.join(found.missing)}"
        advice = "run `router journal init --role` as the owner of the database"
        return [Finding(position=position, text=f"{name}: {text}; {advice}", is_problem=True)]
    if not (found.flushes and found.full_pages):
        setting = "full_page_writes" if found.flushes else "fsync"
        text = f"the server has {setting} off: what is committed does not survive its host's crash"
        return [Finding(position=position, text=f"{name}: {text}", is_problem=True)]
    text = "survives this process and this machine, and"
    if not found.standbys:
        text = f"{text} not the loss of the database's host: synchronous_standby_names is empty"
    elif not found.answers:
        text = f"{text} commits wait: no synchronous standby of {found.standbys} acknowledges them"
        return [Finding(position=position, text=f"{name}: {text}", is_problem=True)]
    else:
        text = f"{text} the database's host: commits wait for {found.standbys}"
    return [Finding(position=position, text=f"{name}: {text}")]


def _unvisited(name: str, container: Container) -> Finding:
    if container.is_mesh:
        text = "not dialed, because it admits routers alone; see `router mesh` while it runs"
        return Finding(position=container.where.section, text=f"{name}: {text}")
    text = "not looked at, because it dials in; see `router status` while the router runs"
    return Finding(position=container.where.of("dials_in"), text=f"containers.{name}: {text}")


def _ends(route: Route, config: RouterConfig) -> Iterator[_End]:
    named = [(route.from_, Role.RECEIVER)] if route.from_ is not None else []
    named += [(end, Role.SENDER) for end in route.to]
    if route.dead_letter is not None:
        named.append((route.dead_letter, Role.SENDER))
    if route.fallback is not None:
        named += [(route.fallback, Role.SENDER), (route.fallback, Role.RECEIVER)]
    for end, role in named:
        address = _address_at(route, end, config)
        sought = None if address is None else Sought(address, role, end.terms.capabilities)
        yield _End(route=route, end=end, role=role, sought=sought)


def _address_at(route: Route, end: RouteEnd, config: RouterConfig) -> str | None:
    """Returns the one address of a route at one of its ends; None: there may be several."""
    if parse_pattern(route.address).is_literal:
        match = config.table.lookup(route.address)
        return None if match is None else match.address_at(end)
    wildcards = {each.value for each in Wildcard}
    if end.address is None or wildcards & set(split(end.address)):
        return None
    return end.address


def _judge(each: _End, probe: Probe) -> Finding:
    """Says whether an address of a route is there."""
    position = each.route.position or Position("", 1, 1)
    if each.sought is None:
        text = "not looked for, because its addresses are known only when they are used"
        return Finding(position=position, text=f"{each.words}: {text}")
    address = each.sought.address
    if each.sought not in probe.found:
        text = f"no answer about '{address}' in time; see the log of {each.end.container}"
        return Finding(position=position, text=f"{each.words}: {text}", is_problem=True)
    condition = probe.found[each.sought]
    opened = probe.opened
    assert opened is not None, "it has answered"
    if condition is None:
        text = f"found '{address}'"
        passive = passive_name(address, opened)
        if passive is not None:
            looked = "not looked for" if each.role is Role.SENDER else text
            text = (
                f"{looked}: over amqp-1.0 RabbitMQ declares '{address}' as a transient queue, and"
                f" refuses that if it is durable; write {passive} in the route"
            )
            return Finding(position=position, text=f"{each.words}: {text}", is_problem=True)
        if not opened.capabilities.learns_outcomes:
            text = f"may attach to '{address}'; the peer tells only of messages whether it is there"
        return Finding(position=position, text=f"{each.words}: {text}")
    declares = opened.capabilities.declares
    if condition.name == NOT_FOUND and each.route.declare is not None and declares:
        text = f"'{address}' is not there yet; the route declares it when it is used"
        return Finding(position=position, text=f"{each.words}: {text}")
    advice = link_advice(str(condition), address, f"see the log of {each.end.container}")
    text = f"{each.words}: {condition}; {advice}"
    return Finding(position=position, text=text, is_problem=True)


def _line(stream: trio.abc.Stream) -> Line:
    async def receive() -> bytes:
        return bytes(await stream.receive_some())

    return Line(stream.send_all, receive)


async def _upgrade(stream: trio.abc.Stream, endpoint: Endpoint, path: str) -> None:
    """Has the peer upgrade to WebSocket; it has nothing to say before AMQP begins."""
    is_tls = endpoint.tls is not None
    early = await become_websocket(endpoint.host, endpoint.port, path, _line(stream), is_tls=is_tls)
    if early:
        raise UpgradeError("the peer sends frames before it is asked for any")


async def _secure(stream: trio.abc.Stream, endpoint: Endpoint) -> trio.abc.Stream:
    assert endpoint.tls is not None, "it is dialed with TLS"
    secured = trio.SSLStream(
        stream,
        endpoint.tls(),
        server_hostname=endpoint.server_name or endpoint.host,
        https_compatible=True,
    )
    try:
        await secured.do_handshake()
    except BaseException:
        await trio.aclose_forcefully(secured)
        raise
    return secured


async def _speaks_http(endpoint: Endpoint) -> bool:
    """Returns whether HTTP is served at a URL; many such servers wait for a whole line first."""
    answer = b""
    with trio.move_on_after(HTTP_SECONDS), contextlib.suppress(OSError, trio.BrokenResourceError):
        stream: trio.abc.Stream = await trio.open_tcp_stream(endpoint.host, endpoint.port)
        if endpoint.tls is not None:
            stream = await _secure(stream, endpoint)
        async with stream:
            await stream.send_all(b"HEAD / HTTP/1.0\r\n\r\n")
            answer = bytes(await stream.receive_some(16))
    return answer.startswith(b"HTTP/")


@attrs.define(eq=False)
class _Dialer:
    """Dials one container."""

    name: str
    container: Container
    sought: list[Sought]
    shared: Shared
    seconds: float
    _is_connected: bool = attrs.field(default=False, init=False)

    async def visit(self, endpoints: tuple[Endpoint, ...], visit: _Visit) -> None:
        """Dials the URLs in order until one opens, and looks for the addresses there."""
        failures: list[tuple[ContainerUrl, str]] = []
        opened: str | None = None
        for url, endpoint in zip(self.container.url, endpoints, strict=True):
            way, probe, reason = await self._follow(endpoint, Trail((str(endpoint),)))
            if probe.opened is not None and probe.failure is None:
                visit.probe = probe
                onward = f" redirects to {' -> '.join(way.visited[1:])}" if way.visited[1:] else ""
                opened = f"{url}:{onward} {self._describe(url, probe.opened)}"
                break
            failures.append((url, reason))
        for url, reason in failures:
            words = container_words(self.name, [str(url)], [url.port])
            words = attrs.evolve(words, otherwise=f"read the log of what listens at {url}")
            text = f"{url}: {reason}; {connection_advice(reason, words)}"
            if opened is not None:
                text += " (no problem as long as a later URL opens)"
            visit.findings.append(self._finding(text, is_problem=opened is None))
        if opened is not None:
            visit.findings.append(self._finding(opened))

    def _finding(self, text: str, *, is_problem: bool = False) -> Finding:
        position = self.container.where.of("url")
        text = f"containers.{self.name}: {text}"
        return Finding(position=position, text=text, is_problem=is_problem)

    async def _follow(self, endpoint: Endpoint, trail: Trail) -> tuple[Trail, Probe, str]:
        """Dials a place, and where it redirects to, as a connector does.

        Returns:
            The places on the way, what the last one has said, and why it did not open, if it
            did not.
        """
        probe = Probe(self.sought, self.shared.link_ids, f"check-{secrets.token_hex(4)}")
        reason = await self._try(endpoint, probe)
        listed = read_redirect(probe.failure)
        for other in () if listed is None else listed.alternatives:
            try:
                if endpoint.divert is None:
                    continue
                following = endpoint.divert(other)
                onward = trail.onward(str(following))
            except RefusedDiversionError as error:
                reason = f"redirected to {other}, which is not dialed: {error}"
                continue
            way, found, reason = await self._follow(following, onward)
            if found.opened is not None and found.failure is None:
                return way, found, reason
        return trail, probe, reason

    async def _try(self, endpoint: Endpoint, probe: Probe) -> str:
        """Converses with one URL; returns why it did not open, if it did not."""
        wait = Wait(self.seconds)
        self._is_connected = False
        lost: list[str] = []

        def make_engine(link_ids: Iterator[LinkId]) -> Engine:
            engine = endpoint.make_engine()
            if endpoint.path is None:
                return engine
            return WebSocketEngine(engine, Frames(is_client=True))

        dialing = Dialing(
            dial=lambda: self._dial(endpoint, wait),
            make_engine=make_engine,
            patience_seconds=0.0,
            open_seconds=math.inf,
            on_lost=lost.append,
        )
        conversation = Conversation(dialing, probe)
        with trio.move_on_after(self.seconds) as limit:
            try:
                await conversation.run()
            except UnreachableError as error:
                lost.append(str(error))
        if probe.failure is not None:
            return str(probe.failure)
        reason = (lost or ["the connection was lost"])[-1]
        if limit.cancelled_caught:
            reason = str(wait)
        is_silent = limit.cancelled_caught or any(sign in reason for sign in _SILENCE)
        is_plain = endpoint.path is None and endpoint.proxy is None
        if self._is_connected and is_silent and is_plain and await _speaks_http(endpoint):
            return "the peer speaks HTTP"
        return reason

    async def _dial(self, endpoint: Endpoint, wait: Wait) -> trio.abc.Stream:
        wait.begin(endpoint.proxy)
        stream: trio.abc.Stream | None = None
        try:
            stream = await open_tcp(endpoint.host, endpoint.port, endpoint.proxy)
            if endpoint.proxy is not None:
                wait.ask(endpoint.proxy)
                await connect_through(endpoint.proxy, endpoint.host, endpoint.port, _line(stream))
            if endpoint.tls is not None:
                wait.secure()
                stream = await _secure(stream, endpoint)
            if endpoint.path is not None:
                wait.upgrade()
                await _upgrade(stream, endpoint, endpoint.path)
        except (ProxyError, UpgradeError) as error:
            if stream is not None:
                await trio.aclose_forcefully(stream)
            raise UnreachableError(str(error)) from None
        self._is_connected = True
        wait.greet(self.container.protocol.value)
        return stream

    def _describe(self, url: ContainerUrl, opened: ConnectionOpened) -> str:
        """Says who answers, and who we are there."""
        told = opened.properties
        peer = " ".join(str(told[key]) for key in ("product", "version") if told.get(key))
        user = url.user or self.container.sasl.user
        who = "as nobody (ANONYMOUS)" if user is None else f"as {user}"
        if user is None and self.container.tls.cert is not None and url.is_tls:
            who = "with our certificate"
        named = f" ({peer})" if peer else ""
        return f"open over {self.container.protocol.value} {who}; it is {opened.container}{named}"
