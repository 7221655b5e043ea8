"""Targets that refuse a delivery because nothing is bound: ``unroutable`` decides what follows.

A broker whose exchange has no binding for a message rejects it with amqp:not-found; over AMQP 1.0
it may release it instead. If the source of a pulled message got that outcome, it would drop the
message, or deliver it again at once. So outcomes are changed here before the ledger and the settler
handle them::

    unroutable      pulled by the route          sent by a client
    release, hold   put off (``postponing``)     the client gets the outcome
    reject          rejected at the source       the client gets the outcome
    dead-letter     to the dead letters          to the dead letters
    drop            accepted                     accepted

A pulled delivery that a container releases for another reason (it is busy, or shuts down) is put
off, too: it is never dropped or sent to the dead letters for that. All this holds while the source
is away as well: it may resume the delivery, or has settled it, so that nobody else has it. Only
what a source will deliver again itself is freed.
"""

from collections.abc import Sequence
from typing import Final

import attrs

from router.core.node import Node, feed_of, in_custody
from router.core.reach import is_sibling
from router.core.settle import Settler
from router.core.state import State
from router.links import life
from router.links.link import IncomingLink, OutgoingLink
from router.links.pairing import Pairing
from router.model.condition import NOT_FOUND, Condition
from router.model.events import DeliveriesUpdated
from router.model.identity import DeliveryNumber
from router.model.outcome import ACCEPTED, RELEASED, DeliveryState, Rejected, Released
from router.routes.route import Route, Unroutable

_RELEASED: Final = Condition(NOT_FOUND, "released by the target")

_PUT_OFF: Final = (Unroutable.RELEASE, Unroutable.HOLD)


class Refusals:
    """Changes the outcomes of deliveries that containers refuse, as their routes require."""

    def __init__(self, state: State, settler: Settler) -> None:
        self._settler = settler
        self._registry = state.registry
        self._notices = state.notices

    def read(self, link: OutgoingLink, event: DeliveriesUpdated) -> Sequence[DeliveriesUpdated]:
        """Returns a receiver's update, with the outcomes that the route makes of it."""
        state, connection = event.state, link.connection
        if not isinstance(state, Rejected | Released):
            return (event,)
        if connection is None or connection.configured is None:
            return (event,)
        node = self._registry.node_of(link)
        reason = _reason(link, event)
        if node is None or (reason is None and not isinstance(state, Released)):
            return (event,)
        return self._read(link, node, event, reason)

    def _read(
        self, link: OutgoingLink, node: Node, event: DeliveriesUpdated, reason: Condition | None
    ) -> Sequence[DeliveriesUpdated]:
        runs: list[tuple[DeliveryState | None, list[DeliveryNumber]]] = []
        fresh: dict[IncomingLink, list[Pairing]] = {}
        for number in event.numbers:
            pairing = link.unsettled.get(number)
            if pairing is None or pairing.outcome is not None:
                continue
            if reason is not None and pairing.tried is None:
                fresh.setdefault(pairing.incoming, []).append(pairing)
            state = _read_one(pairing, node.route, event.state, is_refused=reason is not None)
            if not runs or runs[-1][0] is not state:
                runs.append((state, []))
            runs[-1][1].append(number)
        if reason is not None and not is_sibling(link.connection):  # else it has been counted
            container = None if link.connection is None else link.connection.configured
            for incoming, pairings in fresh.items():
                self.note(incoming, pairings, reason, container=container)
        known = {number for _, numbers in runs for number in numbers}
        rest = [number for number in event.numbers if number not in known]
        if rest:
            runs.append((event.state, rest))
        return [attrs.evolve(event, numbers=numbers, state=state) for state, numbers in runs]

    def strand(self, pairing: Pairing, reason: Condition) -> None:
        """Handles a delivery, pulled by a pattern, that nobody receives."""
        if pairing.tried is None:
            self.note(pairing.incoming, (pairing,), reason)
        match feed_of(pairing).node.route.vacant:
            case Unroutable.DROP:
                self._settler.answer(pairing, ACCEPTED)
            case Unroutable.REJECT:
                self._settler.answer(pairing, Rejected(reason))
            case Unroutable.DEAD_LETTER:
                self._settler.bury(pairing)
            case _:
                self._settler.postpone(pairing)

    def note(
        self,
        incoming: IncomingLink,
        pairings: Sequence[Pairing],
        reason: Condition,
        container: str | None = None,
    ) -> None:
        """Counts and logs deliveries that a container refuses, or that nobody receives."""
        first, route = pairings[0], feed_of(pairings[0]).node.route
        incoming.tally.unroutable += len(pairings)
        self._notices.add(
            "delivery.unroutable",
            route=route.name,
            container=container,
            link=incoming.key.name,
            address=first.delivery.address or incoming.address,
            condition=str(reason),
            count=len(pairings),
            unroutable=route.unroutable.value,
        )


def is_pulled(pairing: Pairing) -> bool:
    """Returns whether a delivery was pulled from a source that has it still, or has settled it."""
    incoming = pairing.incoming
    if incoming.is_gone and not in_custody(pairing):
        return False
    return incoming.is_pulled or incoming.scatters


def _reason(link: OutgoingLink, event: DeliveriesUpdated) -> Condition | None:
    """Returns why a container refuses deliveries; None: it does not, or for another reason."""
    assert link.connection is not None
    match event.state:
        case Rejected(error=error) if error is not None and error.name == NOT_FOUND:
            return error
        case Released() if not (event.is_unsent or is_sibling(link.connection)):
            capabilities = link.connection.capabilities
            is_refusal = capabilities.releases_unroutable and not capabilities.traces
            return _RELEASED if is_refusal else None
        case _:
            return None


def _read_one(
    pairing: Pairing, route: Route, state: DeliveryState | None, *, is_refused: bool
) -> DeliveryState | None:
    """Returns what becomes of the outcome of one delivery."""
    policy, is_ours = route.unroutable, is_pulled(pairing)
    if not is_refused:
        if is_ours:
            life.put_off(pairing)
        return state
    match policy:
        case Unroutable.DROP if is_ours or isinstance(state, Rejected):
            return ACCEPTED
        case Unroutable.DEAD_LETTER if is_ours or isinstance(state, Rejected):
            life.refuse(pairing)
            return RELEASED
        case Unroutable.REJECT if is_ours and isinstance(state, Released):
            return Rejected(_RELEASED)
        case _ if is_ours and policy in _PUT_OFF:
            life.refuse(pairing)
            return RELEASED
        case _:
            return state
