"""Fitting performatives into the frames that a peer accepts (§2.4.1, §2.7.1).

A peer may accept no frame above 512 octets, and only payload can be split over several frames. To
fit the rest, these are shortened:

    error              its description and name, which are for people; its info is left out
    state              a rejection's error likewise, and annotations; one that cannot be cut is left
                       out, or replaced by a rejection that says so where it settles
    attach             the capabilities of our own terminus; in an answer also properties, and all
                       that need not be repeated to the peer: all but the address of its terminus
    unsettled map      entries: it is marked incomplete, and the rest follows (§2.6.13, §2.7.3)
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

import attrs

from router.model.commands import AttachLink
from router.model.condition import FRAME_SIZE_TOO_SMALL, Condition
from router.model.identity import DeliveryTag
from router.model.outcome import (
    DeliveryState,
    Modified,
    Received,
    Rejected,
    TransactionalState,
    is_outcome,
)
from router.model.terminus import Coordinator, Role, Source, Target
from router.wire.v1_0.frames import HEADER_OCTETS
from router.wire.v1_0.performatives import Attach, encode
from router.wire.v1_0.tables import encode_state

UNBOUNDED: Final = 0xFFFF_FFFF
"""Frame size in octets if no limit is known."""

_MAP_HEAD: Final = 20
"""Octets that attach and map may grow by: wider sizes and counts of both, and
``incomplete-unsettled``.

An empty map is ``c1 01 00``; in a large attach both lists have sizes and counts of four octets.
"""

_LEAST_STATE: Final = 64
"""Octets that every state in a map may have; states without errors or annotations have fewer."""

AT_END: Final = Received(0xFFFF_FFFF, 0)
"""The end of a message: nothing of it need be sent."""


# --- errors and states ----------------------------------------------------------------------------


def fitting(
    write: Callable[[Condition | None], bytes], condition: Condition | None, octets: int
) -> bytes:
    """Encodes a frame with an error, shortened to at most ``octets`` (§2.8.15)."""
    body = write(condition)
    if condition is None or len(body) <= octets:
        return body
    return write(shortened(condition, octets))


def shortened(condition: Condition, octets: int) -> Condition:
    """Shortens a condition, whose characters may have four octets, to far less than ``octets``."""
    description = condition.description
    return Condition(
        condition.name[: octets // 4], None if description is None else description[: octets // 8]
    )


def fit_state(state: DeliveryState | None, octets: int) -> DeliveryState | None:
    """Shortens a state to at most ``octets``; only a state that is no outcome may become None."""
    if state is None or len(encode_state(state)) <= octets:
        return state
    match state:
        case Rejected(error=error) if error is not None:
            short = Rejected(shortened(error, octets))
            return short if len(encode_state(short)) <= octets else Rejected()
        case Modified(delivery_failed=failed, undeliverable_here=undeliverable):
            return Modified(failed, undeliverable)
        case TransactionalState(txn_id=txn_id, outcome=outcome):
            fit = fit_state(outcome, octets - _LEAST_STATE)
            assert fit is None or is_outcome(fit)
            return TransactionalState(txn_id, fit)  # type: ignore[arg-type]  # as asserted
        case _:
            return None


def fit_settlement(state: DeliveryState | None, octets: int) -> DeliveryState | None:
    """Shortens a settling state; a missing state could be taken for success (§3.5.3)."""
    fit = fit_state(state, octets)
    if fit is None and state is not None:
        return Rejected(Condition(FRAME_SIZE_TOO_SMALL, "the outcome does not fit a frame"))
    return fit


# --- attach ---------------------------------------------------------------------------------------


def attach_of(command: AttachLink, handle: int, initial_delivery_count: int) -> Attach:
    """Builds the attach frame that the core has ordered (§2.7.3)."""
    return Attach(
        name=command.name,
        handle=handle,
        role=command.role,
        snd_settle_mode=command.sender_settle_mode,
        rcv_settle_mode=command.receiver_settle_mode,
        source=command.source,
        target=command.target,
        unsettled=command.unsettled,  # type: ignore[arg-type]  # a tag is bytes there
        incomplete_unsettled=command.incomplete_unsettled,
        initial_delivery_count=initial_delivery_count if command.role is Role.SENDER else None,
        max_message_size=command.max_message_octets or None,
        offered_capabilities=command.offered_capabilities,
        desired_capabilities=command.desired_capabilities,
        properties=command.properties or None,
    )


def fit_attach(command: AttachLink, octets: int, *, is_answer: bool) -> AttachLink | None:
    """Leaves out optional parts of an attach until it fits a frame.

    Args:
        command: the attach; its unsettled map is not shortened.
        octets: largest frame body.
        is_answer: the peer has requested the link, and knows its own terminus.

    Returns:
        the shortened attach; None: it does not fit even so.
    """
    for fit in _trimmed(command, is_answer=is_answer):
        if _octets_of(fit) <= octets:
            return fit
    return None


def with_map(
    command: AttachLink,
    entries: Iterable[tuple[DeliveryTag, DeliveryState | None]],
    frame_octets: int,
    *,
    is_answer: bool,
) -> AttachLink:
    """Puts as much of an unsettled map into an attach as fits a frame (§2.6.13).

    The rest of the attach is trimmed where that leaves space for much more of the map.

    Args:
        command: the attach; its own map is replaced.
        entries: the map, most important entries first.
        frame_octets: the largest frame that the peer accepts; 0: any.
        is_answer: as with ``fit_attach``.

    Returns:
        the attach, marked as incomplete if entries are left.
    """
    most = (frame_octets or UNBOUNDED) - HEADER_OCTETS
    bare = attrs.evolve(command, unsettled={}, incomplete_unsettled=False)
    for fit in _trimmed(bare, is_answer=is_answer):
        map_octets = most - _octets_of(fit) - _MAP_HEAD
        if map_octets * 2 >= most:
            break
    states: dict[DeliveryTag, DeliveryState | None] = {}
    largest = max(_LEAST_STATE, map_octets // 8)
    for tag, state in entries:
        reported = _reported_state(state, largest, command.role)
        octets = 2 + len(tag) + (1 if reported is None else len(encode_state(reported)))
        if octets > map_octets:
            if not states:  # the link cannot be attached: the engine will report it
                states[tag] = reported
            return attrs.evolve(fit, unsettled=states, incomplete_unsettled=True)
        map_octets -= octets
        states[tag] = reported
    whole = attrs.evolve(command, unsettled=states)
    return whole if _octets_of(whole) <= most else attrs.evolve(fit, unsettled=states)


def _reported_state(state: DeliveryState | None, octets: int, role: Role) -> DeliveryState | None:
    """Returns the state to report in a map for a state that may be too large for it.

    A receiver that does not report its outcome here does so when the delivery is resumed, in a
    frame of its own; of a sender's state the peer only needs whether there is an outcome.
    """
    if state is None or len(encode_state(state)) <= octets:
        return state
    if role is Role.RECEIVER and is_outcome(state):
        return AT_END
    return fit_state(state, octets)


def _octets_of(command: AttachLink) -> int:
    """Returns the largest size of an attach in octets, for any handle and count."""
    return len(encode(attach_of(command, 0xFFFF_FFFF, 0xFFFF_FFFF)))


def _trimmed(command: AttachLink, *, is_answer: bool) -> Iterator[AttachLink]:
    """Yields an attach, then shorter and shorter versions of it."""
    is_sender = command.role is Role.SENDER
    yield command
    if is_answer:
        fit = attrs.evolve(command, properties={}, offered_capabilities=(), desired_capabilities=())
        if is_sender:
            command = attrs.evolve(fit, target=_plain_target(fit.target))
        else:
            command = attrs.evolve(fit, source=_plain_source(fit.source))
        yield command
    if is_sender:
        command = attrs.evolve(command, source=_plain_source(command.source))
    else:
        command = attrs.evolve(command, target=_plain_target(command.target))
    yield command
    if is_answer and is_sender:
        yield attrs.evolve(command, target=target_address(command.target))
    elif is_answer:
        yield attrs.evolve(command, source=source_address(command.source))


def _plain_source(source: Source | None) -> Source | None:
    """Leaves out the capabilities of a terminus; its node and its expiry stay."""
    if source is None:
        return None
    return Source(
        address=source.address,
        durability=source.durability,
        expiry_policy=source.expiry_policy,
        expiry_seconds=source.expiry_seconds,
        dynamic=source.dynamic,
    )


def _plain_target(target: Target | Coordinator | None) -> Target | Coordinator | None:
    if not isinstance(target, Target):
        return target
    return attrs.evolve(target, dynamic_node_properties=None, capabilities=())


def source_address(source: Source | None) -> Source | None:
    """Returns a source with the address alone."""
    return None if source is None else Source(address=source.address)


def target_address(target: Target | Coordinator | None) -> Target | Coordinator | None:
    """Returns a target with the address alone."""
    return Target(address=target.address) if isinstance(target, Target) else target


def too_small(what: str, octets: int, most: int) -> Condition:
    """Builds the condition for a performative that does not fit the peer's frames."""
    return Condition(
        FRAME_SIZE_TOO_SMALL, f"the {what} has {octets} octets, a frame room for {most}"
    )
