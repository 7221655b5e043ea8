"""The real guarantee of a route, given the capabilities of the containers that it connects.

There is one function per end of a flow, each a small table of the requested guarantee, the
capability of the end, the result and the reason. The guarantee of a flow is that of its weaker end.
The texts are for people: ``router check`` prints them, and refuses what ``Promise.refusals`` names.

    exactly-once, towards a target that          gives
    resumes links, or runs this router           exactly-once: unsettled maps are compared
    only detects duplicates by an id             exactly-once: in doubt is sent again, same id
    does neither, route says in_doubt: hold      exactly-once: in doubt waits for a person
    does neither                                 refused
    never reports which messages it took         refused

Receivers that attach to the router are unknown until they attach, so a route is never refused
because of them. If such a receiver is lost and cannot resume, its unsettled deliveries are in
doubt: they wait for a person, unless the route says ``in_doubt: resend``.

A source that cannot resume sends messages that were not settled again, as new deliveries. The
router recognizes such a repeat by its message-id (or ``dedup``'s property). Nobody can promise that
every message has one, so such a flow gives at-least-once, unless the target drops repeats by
id. ``router check`` prints the weaker guarantee, but does not refuse the route.

On a route with ``store`` custody changes hands: from the sender to the message store, and from
there to the target. Each hand-over is made exactly once by the rules above, with one sentence for
what the sender's outcome means.

A sender that asks for no outcome (settled deliveries, no confirms) cannot resend a lost message.
Unless the route promises at-most-once, the router keeps such a message until a receiver has
accepted it: in memory, which a killed router loses, or with exactly-once in the journal, as soon as
the message has been read.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from router.model.capabilities import Protocol
from router.routes.route import Endpoint, Guarantee, InDoubt, Route

_ORDER: Final = (Guarantee.AT_MOST_ONCE, Guarantee.AT_LEAST_ONCE, Guarantee.EXACTLY_ONCE)

_ANSWERS: Final[Mapping[Protocol, str]] = {
    Protocol.AMQP_1_0: "its outcome is awaited",
    Protocol.AMQP_0_9_1: "its publisher confirm is awaited",
    Protocol.AMQP_0_10: "the completion of its command is awaited",
    Protocol.AMQP_FAST: "the reply to its confirm-tag is awaited",
    Protocol.AMQP_0_9R1: "the commit of its transaction is awaited",
}
"""How a target of each protocol reports that it has accepted a message."""


_STORED: Final = "stored until then; what is rejected, too old or dropped goes to dead_letter"

_MARKS: Final[Mapping[Protocol, str]] = {
    Protocol.AMQP_1_0: "its delivery-count raised",
    Protocol.AMQP_0_10: "marked as redelivered",
}
"""How a message that is sent to a target again shows it; in the others a publish has no mark."""


@attrs.frozen(kw_only=True)
class Peer:
    """The configured facts about a container.

    Attributes:
        resumes: it resumes links and their unsettled deliveries (§2.6.13).
        is_router: this program runs there.
        deduplicates: it drops repeats of a message by this property.
    """

    name: str
    protocol: Protocol = Protocol.AMQP_1_0
    resumes: bool = False
    is_router: bool = False
    deduplicates: str | None = None


@attrs.frozen
class End:
    """The guarantee of one end of a flow, and the reason.

    Attributes:
        aside: a remark that holds for some of the messages only.
    """

    gives: Guarantee
    reason: str
    aside: str | None = None


@attrs.frozen
class Flow:
    """One way that messages take on a route.

    Attributes:
        path: for people, e.g. ``east/orders -> west/orders``.
        gives: the guarantee of its weaker end.
        reasons: one sentence per end, or two.
    """

    path: str
    gives: Guarantee
    reasons: tuple[str, ...]


@attrs.frozen
class Refusal:
    """Why a route is refused as it is written.

    Attributes:
        key: the key of the route to point at.
    """

    key: str
    problem: str


@attrs.frozen
class Promise:
    """The whole promise of a route."""

    asked: Guarantee
    flows: tuple[Flow, ...]
    refusals: tuple[Refusal, ...]

    @property
    def gives(self) -> Guarantee:
        """The weakest of its flows."""
        return min((flow.gives for flow in self.flows), key=_ORDER.index)


def promise(route: Route, peers: Mapping[str, Peer]) -> Promise:
    """Determines the real guarantee of a route.

    Args:
        route: the route.
        peers: by name, every container that the route names in ``from_`` and ``to``.
    """
    route = with_ids(route, peers)
    targets = [(endpoint, _towards(route, peers[endpoint.container])) for endpoint in route.to]
    if route.store is not None:
        targets = [(e, attrs.evolve(end, aside=_STORED)) for e, end in targets]
    refusals = [*_contradictions(route), *_refusals(route, peers)]
    senders, receivers = _senders(route), _receivers(route)
    if route.is_direct:
        flows = [_flow("senders -> receivers", senders, receivers), *_over_fallback(route, peers)]
    elif route.from_ is None:
        flows = [_flow(f"senders -> {_at(route, e)}", senders, end) for e, end in targets]
        for endpoint in route.to:
            source = _from(route, peers[endpoint.container], ())
            flows.append(_flow(f"{_at(route, endpoint)} -> receivers", source, receivers))
    else:
        by_id = tuple(peers[endpoint.container] for endpoint in route.to)
        source, start = _from(route, peers[route.from_.container], by_id), _at(route, route.from_)
        flows = [_flow(f"{start} -> {_at(route, e)}", source, end) for e, end in targets]
        if not targets:
            flows = [_flow(f"{start} -> receivers", source, receivers)]
    return Promise(route.guarantee, tuple(flows), tuple(refusals))


def _over_fallback(route: Route, peers: Mapping[str, Peer]) -> list[Flow]:
    """Judges the way over a route's fallback, which is taken while nobody receives."""
    endpoint = route.fallback
    if endpoint is None:
        return []
    place, peer = f"{_at(route, endpoint)} (fallback)", peers[endpoint.container]
    source = _from(route, peer, ())
    if route.guarantee is Guarantee.AT_MOST_ONCE:
        source = End(Guarantee.AT_MOST_ONCE, f"from {peer.name}: settled when it has been sent")
    return [
        _flow(f"senders -> {place}", _senders(route), _towards(route, peer)),
        _flow(f"{place} -> receivers", source, _receivers(route)),
    ]


def _flow(path: str, *ends: End) -> Flow:
    weakest = min((end.gives for end in ends), key=_ORDER.index)
    said = (line for end in ends for line in (end.reason, end.aside) if line is not None)
    return Flow(path, weakest, tuple(said))


def _at(route: Route, endpoint: Endpoint) -> str:
    return f"{endpoint.container}/{endpoint.address or route.address}"


def _id_property(route: Route, peer: Peer) -> str | None:
    """Returns the property by which a target recognizes repeats of a message."""
    return route.dedup.property if route.dedup is not None else peer.deduplicates


def with_ids(route: Route, peers: Mapping[str, Peer]) -> Route:
    """Returns a route that knows by which property all its targets drop repeats, if they do."""
    names = {peers[endpoint.container].deduplicates for endpoint in route.to}
    return attrs.evolve(route, deduplicates=names.pop() if len(names) == 1 else None)


def _towards(route: Route, peer: Peer) -> End:
    """Judges a container as the target of a route."""
    answer = _ANSWERS[peer.protocol]
    if route.guarantee is Guarantee.AT_MOST_ONCE:
        return End(Guarantee.AT_MOST_ONCE, f"to {peer.name}: settled on send")
    if route.guarantee is Guarantee.AT_LEAST_ONCE:
        return End(
            Guarantee.AT_LEAST_ONCE, f"to {peer.name}: {answer}; {_doubt(route, peer.protocol)}"
        )
    return End(Guarantee.EXACTLY_ONCE, f"to {peer.name}: {_exactly_once(route, peer)}")


def _exactly_once(route: Route, peer: Peer) -> str:
    by_id = route.target_id
    if peer.is_router or peer.resumes:
        who = "it runs this router" if peer.is_router else "it resumes links"
        return f"{who}: after a lost connection both unsettled maps are compared"
    if by_id is not None and route.in_doubt is not InDoubt.HOLD:
        return f"it drops repeats by {by_id}: what is in doubt is sent again with the same id"
    return "what is in doubt waits in the journal until a person decides (in_doubt: hold)"


def _from(route: Route, peer: Peer, targets: tuple[Peer, ...]) -> End:
    """Judges a container as the source of a flow that ends in ``targets``; none: in clients."""
    if route.guarantee is Guarantee.AT_MOST_ONCE:
        return End(Guarantee.AT_MOST_ONCE, f"from {peer.name}: fetched settled")
    if route.guarantee is Guarantee.AT_LEAST_ONCE:
        why = "settled only when the outcome is known"
        if route.store is not None and route.from_ is not None:
            why = f"settled when {_kept(route)}"
        return End(Guarantee.AT_LEAST_ONCE, f"from {peer.name}: {why}", _custody(route))
    if peer.is_router or peer.resumes:
        who = "it runs this router" if peer.is_router else "it resumes links"
        why = f"from {peer.name}: {who}, and settles after us"
        if route.store is not None and route.from_ is not None:
            why = f"{why}, when {_kept(route)}"
        return End(Guarantee.EXACTLY_ONCE, why, _custody(route))
    repeats = "it cannot resume links, so what it did not hear settled comes again"
    if targets and all(_id_property(route, target) for target in targets):
        names = ", ".join(f"{t.name} by {_id_property(route, t)}" for t in targets)
        why = f"{repeats}; the repeat is dropped at {names}"
        return End(Guarantee.EXACTLY_ONCE, f"from {peer.name}: {why}", _custody(route))
    why = f"from {peer.name}: {repeats} as a new delivery"
    return End(Guarantee.AT_LEAST_ONCE, why, _custody(route))


def _senders(route: Route) -> End:
    """Judges sending clients, which the configuration does not describe."""
    if route.store is not None:
        return _senders_to_store(route)
    if route.guarantee is Guarantee.AT_MOST_ONCE:
        return End(Guarantee.AT_MOST_ONCE, "senders: what they send counts as settled")
    if route.guarantee is Guarantee.AT_LEAST_ONCE:
        why = "senders: they hear the outcome of the far end"
        return End(Guarantee.AT_LEAST_ONCE, why, _custody(route))
    why = "senders: if they resume their links, as `router send` does; else at-least-once"
    return End(Guarantee.EXACTLY_ONCE, why, _custody(route))


def _senders_to_store(route: Route) -> End:
    why = f"senders: accepted means that {_kept(route)}"
    if route.guarantee is not Guarantee.EXACTLY_ONCE:
        return End(Guarantee.AT_LEAST_ONCE, why)
    resuming = "once only from senders that resume their links, as `router send` does"
    return End(Guarantee.EXACTLY_ONCE, f"{why}; {resuming}; else at-least-once", _custody(route))


def _kept(route: Route) -> str:
    """Returns where a message is that a stored route has accepted."""
    here = "this router has it, on local disk; lost with the disk"
    return f"the target has it, or else {here}" if route.passes_through else here


def _custody(route: Route) -> str:
    """Returns what the router does with messages whose senders ask for no outcome."""
    where = "the journal" if route.guarantee is Guarantee.EXACTLY_ONCE else "memory"
    end = "ends" if route.dead_letter is None else f"goes to {route.dead_letter}"
    return f"what comes settled: kept in {where} until it is accepted; what is rejected {end}"


def _receivers(route: Route) -> End:
    """Judges clients that receive."""
    if route.guarantee is Guarantee.AT_MOST_ONCE:
        return End(Guarantee.AT_MOST_ONCE, "receivers: settled on send")
    if route.guarantee is Guarantee.AT_LEAST_ONCE:
        doubt = _doubt(route, Protocol.AMQP_1_0)
        return End(Guarantee.AT_LEAST_ONCE, f"receivers: their outcome is awaited; {doubt}")
    why = "receivers: if they resume their links, as `router receive` does; what others leave"
    if route.in_doubt is InDoubt.RESEND:
        after = "is sent again (in_doubt: resend): at-least-once"
    else:
        after = "waits in the journal until a person decides"
    return End(Guarantee.EXACTLY_ONCE, f"{why} unsettled {after}")


def _doubt(route: Route, protocol: Protocol) -> str:
    if route.in_doubt is InDoubt.HOLD:
        return "what is in doubt waits for a person"
    mark = _MARKS.get(protocol, "which a publish has no mark for")
    return f"what is in doubt is sent again, {mark}"


def _contradictions(route: Route) -> list[Refusal]:
    """Finds keys that contradict each other, independently of the containers."""
    found = []
    if route.guarantee is Guarantee.AT_MOST_ONCE and route.in_doubt is not None:
        why = "means nothing with guarantee at-most-once: settled on send, nothing is in doubt"
        found.append(Refusal("in_doubt", f"in_doubt {why}"))
    if route.dedup is not None and not route.to:
        found.append(Refusal("dedup", "dedup speaks of targets, and this route has no 'to'"))
    return found


def _refusals(route: Route, peers: Mapping[str, Peer]) -> list[Refusal]:
    """Finds targets that cannot give exactly-once (module docstring)."""
    if route.guarantee is not Guarantee.EXACTLY_ONCE:
        return []
    return [
        Refusal(key, f"exactly-once towards {peer.name}: {why}")
        for peer in (peers[endpoint.container] for endpoint in route.to)
        for key, why in _reasons_to_refuse(route, peer)
    ]


def _reasons_to_refuse(route: Route, peer: Peer) -> list[tuple[str, str]]:
    by_id = _id_property(route, peer)
    if peer.is_router or peer.resumes or by_id is not None:
        return []
    if route.in_doubt is InDoubt.RESEND:
        why = "in_doubt: resend would send twice what may have arrived; say in_doubt: hold"
        return [("in_doubt", why)]
    if route.in_doubt is None:
        why = (
            "it neither resumes links nor drops duplicates; say in_doubt: hold, or guarantee:"
            " at-least-once, or, where it is true, write resumes or deduplicates in the container,"
            " or dedup in the route"
        )
        return [("guarantee", why)]
    return []
