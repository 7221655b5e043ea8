"""What we ask of a container when we attach a link to it: by its route, and by what it can do."""

from collections.abc import Callable
from typing import Final

import attrs

from router.core.dead_letters import DEAD_LETTERS
from router.core.mesh.chains import vouch
from router.core.mesh.names import FRAME_OCTETS_LEAST, chain_properties, is_neighbor
from router.core.node import Direction
from router.core.reach import introduction, is_sibling, is_sibling_name
from router.core.reducing import Reducer
from router.core.settings import ContainerTerms, container_of
from router.core.state import State
from router.core.stored import FORWARDED, STORED, is_store
from router.core.uplink import Uplink
from router.links.attaches import AttachNumber, properties_of
from router.links.link import Connection, OutgoingLink
from router.model.capabilities import Capabilities
from router.model.commands import AttachLink
from router.model.condition import NOT_IMPLEMENTED, Condition
from router.model.identity import LinkId, LinkName
from router.model.terminus import (
    ADDRESSES,
    ALL_OUTCOMES,
    SUBSCRIPTION,
    ExpiryPolicy,
    ReceiverSettleMode,
    Role,
    SenderSettleMode,
    Source,
    Target,
)
from router.routes.mesh.bodies import Notary
from router.routes.route import Guarantee, Route
from router.wire.v1_0.types import decode_value

_CHAIN_TERMS: Final = ContainerTerms(
    retry_seconds=0.1, retry_limit_seconds=2.0, failover_seconds=None
)
"""For another site by a chain: routers on the way may learn of a changed path a little later."""

_CHAIN_FRAME_OCTETS: Final = FRAME_OCTETS_LEAST - 1024
"""What an attach of a chain has to fit if another worker has the neighbor, and signs it."""


class AttachRequests:
    """Knows what may be asked of which container."""

    def __init__(
        self, state: State, reducer: Reducer, find_notary: Callable[[], Notary | None]
    ) -> None:
        self._find_notary = find_notary
        self._reducer = reducer
        self._settings = state.settings
        self._registry = state.registry
        self._ledger = state.ledger

    def attach(self, uplink: Uplink, link: LinkId, connection: Connection) -> AttachLink:
        """Returns the attach of an uplink; notes in it what it says of unsettled deliveries."""
        attach = _attach_sender if uplink.role is Role.SENDER else _attach_receiver
        second = self.wants_second(uplink, connection)
        command = attach(uplink, link, connection.capabilities, second=second)
        uplink.is_cut = False
        ours = introduction(uplink.node.stop, connection)
        if ours:
            command = attrs.evolve(command, properties={**command.properties, **ours})
        if is_store(connection):
            name = uplink.node.route.name
            command = attrs.evolve(command, properties={**command.properties, STORED: name})
        if self.is_kept(uplink, connection) and self.resumes(uplink, connection) is not False:
            number = self._draw_number(uplink, connection)
            properties = {**command.properties, **properties_of(number)}
            command = attrs.evolve(command, properties=properties)
            if uplink.roams and number is not None:
                command = self._vouched(uplink, command, number)
            if uplink.node.is_exact and uplink.role is Role.SENDER:
                self._ledger.show_map(uplink)
            return self._with_map(uplink, command, _frame_octets(uplink, connection))
        return command

    def _draw_number(self, uplink: Uplink, connection: Connection) -> AttachNumber | None:
        """Numbers an attach to another router whose map the journal answers for."""
        is_exact = uplink.node.route.guarantee is Guarantee.EXACTLY_ONCE
        if not is_exact or not (uplink.roams or connection.capabilities.is_router):
            return None
        return self._ledger.draw_number(uplink)

    def _vouched(self, uplink: Uplink, command: AttachLink, number: AttachNumber) -> AttachLink:
        """Signs the attach of a chain to another site, if this worker has the mesh's connections.

        On the wire it has a name of its own: the attach before may still be on its way.
        """
        chain, notary = uplink.terms.chain, self._find_notary()
        assert chain is not None
        signed = vouch(notary, chain, uplink.address_there, number)
        return attrs.evolve(
            command,
            name=LinkName(f"{uplink.name}#{number.n}"),
            properties={**command.properties, **signed},
        )

    def is_kept(self, uplink: Uplink, connection: Connection | None) -> bool:
        """Returns whether a link is to outlive its connection, with what is unsettled on it."""
        if connection is None or not uplink.there.resumes:
            return False
        if is_sibling(connection) or is_neighbor(connection):
            # a sibling that is gone comes back knowing nothing, and from a neighbor what is
            # unsettled takes another way; but a chain is kept by its egress, far behind either
            return uplink.roams
        is_asked_for = uplink.node.route.guarantee is Guarantee.EXACTLY_ONCE
        return is_asked_for or self.resumes(uplink, connection) is True

    def resumes(self, uplink: Uplink, connection: Connection) -> bool | None:
        """Returns whether a container resumes links; None: unknown; False: do not ask it to."""
        if uplink.roams or connection.capabilities.resumes_links:
            return True
        return self.of(uplink).resumes

    def wants_second(self, uplink: Uplink, connection: Connection) -> bool:
        """Returns whether the receiver of a link is to settle second.

        A source that forgets with its connection what it has not settled sends that again, as
        something new: then nothing is gained, and it is known by its id instead.
        """
        is_asked_for = uplink.node.route.guarantee is Guarantee.EXACTLY_ONCE
        if not is_asked_for or not connection.capabilities.settles_second:
            return False
        return uplink.role is Role.SENDER or self.resumes(uplink, connection) is not False

    def of(self, uplink: Uplink) -> ContainerTerms:
        """Returns what holds for the container of an uplink."""
        known = self._registry.terms.get(container_of(uplink.container))
        if known is not None:
            return known
        settings = self._settings
        if uplink.roams:
            return _CHAIN_TERMS
        return ContainerTerms(
            retry_seconds=settings.retry_seconds,
            retry_limit_seconds=settings.retry_limit_seconds,
            failover_seconds=settings.failover_seconds,
        )

    def find_ignored(self, uplink: Uplink, source: Source | None) -> Condition | None:
        """Returns why a link is given up whose container leaves out filters of ours (§3.5.3)."""
        names = uplink.terms.filter_names
        if uplink.role is Role.SENDER or not names or is_sibling_name(uplink.container):
            return None
        applied = {str(name) for name in (source and source.filters) or ()}
        ignored = [name for name in names if name not in applied]
        if not ignored:
            return None
        return Condition(NOT_IMPLEMENTED, f"the filter {', '.join(ignored)} is not applied")

    def _with_map(self, uplink: Uplink, command: AttachLink, frame_octets: int) -> AttachLink:
        """Asks for a terminus that outlives connections, and returns what is unsettled."""
        policy, seconds = ExpiryPolicy.CONNECTION_CLOSE, self._settings.expiry_seconds
        source, target = command.source, command.target
        assert source is not None
        assert isinstance(target, Target)
        command = attrs.evolve(
            command,
            source=attrs.evolve(source, expiry_policy=policy, expiry_seconds=seconds),
            target=attrs.evolve(target, expiry_policy=policy, expiry_seconds=seconds),
        )
        uplink.has_map = uplink.there.was_attached or uplink.kept is not None
        if uplink.kept is not None:
            command = self._reducer.add_map(uplink.kept, command, frame_octets)
            uplink.is_cut = command.incomplete_unsettled
            if isinstance(uplink.kept, OutgoingLink):
                uplink.kept.is_resuming = True
            return command
        if uplink.has_map:
            return attrs.evolve(command, unsettled={})  # null would say that we keep no state
        return command


def _frame_octets(uplink: Uplink, connection: Connection) -> int:
    """Returns the size of the largest frame that an attach of ours has to fit."""
    if uplink.roams and is_sibling(connection):
        return _CHAIN_FRAME_OCTETS
    return connection.capabilities.frame_octets


def _attach_sender(
    uplink: Uplink, link: LinkId, capabilities: Capabilities, *, second: bool
) -> AttachLink:
    route = uplink.node.route
    settled = route.guarantee is Guarantee.AT_MOST_ONCE
    return AttachLink(
        link=link,
        name=uplink.name,
        role=Role.SENDER,
        source=Source(address=uplink.node.key.address, outcomes=ALL_OUTCOMES),
        target=Target(
            address=uplink.address_there if uplink.names is None else None,
            capabilities=uplink.terms.capabilities,
        ),
        sender_settle_mode=SenderSettleMode.SETTLED if settled else SenderSettleMode.MIXED,
        receiver_settle_mode=ReceiverSettleMode(int(second)),
        properties=_declaring(route, capabilities)
        | _announcing(uplink)
        | _spreading(uplink)
        | _asked(uplink),
    )


def _attach_receiver(
    uplink: Uplink, link: LinkId, capabilities: Capabilities, *, second: bool
) -> AttachLink:
    route = uplink.node.route
    settled = route.guarantee is Guarantee.AT_MOST_ONCE
    is_spread = route.pulls_many or uplink.scatters
    return AttachLink(
        link=link,
        name=uplink.name,
        role=Role.RECEIVER,
        source=Source(
            address=uplink.address_there,
            outcomes=ALL_OUTCOMES,
            filters=_filters(uplink, applies_all=capabilities.filters),
            capabilities=uplink.terms.capabilities,
        ),
        target=Target(address=None if is_spread else uplink.node.key.address),
        # asked for plainly: some brokers take "mixed" as leave to settle everything
        sender_settle_mode=SenderSettleMode.SETTLED if settled else SenderSettleMode.UNSETTLED,
        receiver_settle_mode=ReceiverSettleMode(int(second)),
        properties=_declaring(route, capabilities)
        | _subscribing(uplink, capabilities)
        | _asked(uplink),
    )


def _spreading(uplink: Uplink) -> dict[object, object]:
    """Returns the link property with the pattern of the addresses that a link carries."""
    return {} if uplink.names is None else {ADDRESSES: uplink.address}


def _subscribing(uplink: Uplink, capabilities: Capabilities) -> dict[object, object]:
    """Returns the link property that has a broker keep the queue of an exchange."""
    if uplink.subscription is None or not capabilities.subscribes:
        return {}
    return {SUBSCRIPTION: uplink.subscription}


def _announcing(uplink: Uplink) -> dict[object, object]:
    """Returns the link properties that tell a sibling what a link brings."""
    if not is_sibling_name(uplink.container):
        return {}
    if uplink.node.key.direction is Direction.STORED:
        return {FORWARDED: True}
    return {} if uplink.node.key.container is None else {DEAD_LETTERS: True}


def _filters(uplink: Uplink, *, applies_all: bool) -> dict[object, object] | None:
    """Returns the filters of an uplink; its route's go before its receiver's.

    A container that does not apply all of them has those of its route that its protocol knows.
    """
    clients = uplink.node.filters if applies_all else None
    return {**(clients or {}), **_map_in(uplink.terms.filters)} or None


def _asked(uplink: Uplink) -> dict[object, object]:
    """Returns the link properties that the route's endpoint names."""
    return _map_in(uplink.terms.properties) | chain_properties(uplink.terms.chain)


def _map_in(octets: bytes) -> dict[object, object]:
    found: dict[object, object] = decode_value(octets)[0] if octets else {}
    return found


def _declaring(route: Route, capabilities: Capabilities) -> dict[object, object]:
    """Returns the link properties that have a broker make what is not there."""
    declare = route.declare
    if declare is None or not capabilities.declares:
        return {}
    queue = {} if declare.queue is None else {"x-queue-type": declare.queue.value}
    asked = {
        "durable": declare.durable,
        "auto-delete": declare.auto_delete,
        "type": declare.exchange.value,
        "arguments": queue,
    }
    return {"declare": asked}
