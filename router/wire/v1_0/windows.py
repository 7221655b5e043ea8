"""Flow control: session windows and link credit (§2.5.6, §2.6.7).

Theory of operation. Everything here is arithmetic on ``SessionState`` and ``LinkState``. Serial
numbers wrap at 2^32 and are compared by distance (RFC 1982); windows and credits are ordinary
numbers kept at 0 or above, although the formulas can give negative results for some peers' values.

The incoming window is renewed to its full size when half of it is used, so that a steady sender
never waits; while a link of the session holds it, it is not renewed, and the peer stops when it is
used up. Every flow that we send carries the current window.

A window counts frames, and what waits here for a receiver are octets. So it is narrow at first and
behind a large frame, and wide after as many small ones as half of a narrow one: then a sender far
away goes on while flows are under way. A large message that follows small ones may meet a wide
window: when that is held behind large frames, the peer is told that it is narrower. What the peer
has sent before it hears that is within the wide one, and breaks no rule. But it must not be more
than it is told: many compute what is left as an unsigned number, which becomes huge below 0, so
that they send on and break the wide one, too. Under way may be as many deliveries as it has credit
for, and of large frames as many as buffers on the way hold, which is less than 32 MiB.
"""

from collections.abc import Mapping
from typing import Final

from router.model import serial
from router.wire.v1_0.performatives import Flow, encode, encode_flow
from router.wire.v1_0.state import NARROW_FRAMES, LinkState, SessionState

LARGE_OCTETS: Final = 8192
"""A payload of a transfer that is longer is large."""

HELD_OCTETS: Final = 32 << 20
"""Of large frames as many more are let come while a window is held."""


def count(session: SessionState, frames: int, octets: int) -> None:
    """Counts transfers that were received, with so many octets of payload in all (§2.5.6)."""
    session.next_incoming_id = serial.add(session.next_incoming_id, frames)
    session.incoming_window -= frames
    session.remote_outgoing_window = max(0, session.remote_outgoing_window - frames)
    if octets > frames * LARGE_OCTETS:
        session.small_frames = 0
        session.large_octets = octets // frames
    else:
        session.small_frames += frames


def must_renew(session: SessionState) -> bool:
    """Returns whether half of the window is used, and it is not held."""
    return session.incoming_window * 2 <= session.window and not session.is_held


def hold(session: SessionState, is_held: bool) -> bool:
    """Stops or resumes renewing a window.

    Returns:
        The peer is to be told of its window now.
    """
    session.is_held = is_held
    before, session.withheld = session.withheld, 0
    if is_held:
        session.withheld = max(before, session.incoming_window - _least(session))
    return session.withheld != before or must_renew(session)


def _least(session: SessionState) -> int:
    """Returns the narrowest window that a peer may be told of while it is held."""
    if _is_behind_small(session):
        return session.incoming_window
    frames = HELD_OCTETS // max(session.large_octets, LARGE_OCTETS)
    return frames + sum([max(0, link.allowance) for link in session.links.values()])


def _is_behind_small(session: SessionState) -> bool:
    return session.small_frames * 2 >= NARROW_FRAMES


def renewed(session: SessionState) -> int:
    """Returns the window for a flow, renewed unless it is held."""
    if not session.is_held:
        session.window = session.window_frames
        if not _is_behind_small(session):
            session.window = min(session.window, NARROW_FRAMES)
        session.incoming_window = max(session.incoming_window, session.window)
    return max(0, session.incoming_window - session.withheld)


def take_session_flow(session: SessionState, flow: Flow, initial_outgoing_id: int) -> None:
    """Handles the session's half of a flow (§2.5.6, receiving a flow)."""
    session.next_incoming_id = flow.next_outgoing_id
    session.remote_outgoing_window = flow.outgoing_window
    received = flow.next_incoming_id
    if received is None:
        received = initial_outgoing_id
    # Transfers that the peer had not received yet when it sent this flow.
    under_way = max(0, serial.distance(received, session.next_outgoing_id))
    session.remote_incoming_window = max(0, flow.incoming_window - under_way)


def credit_of_sender(link: LinkState, flow: Flow, initial_delivery_count: int) -> int:
    """Computes the credit that a flow of the receiver leaves us (§2.6.7).

    credit of sender := delivery-count of receiver + credit of receiver - delivery-count of sender.
    """
    counted = flow.delivery_count
    if counted is None:
        counted = initial_delivery_count
    under_way = max(0, serial.distance(counted, link.delivery_count))
    return max(0, (flow.link_credit or 0) - under_way)


def take_sender_count(link: LinkState, delivery_count: int) -> int:
    """Applies a sending peer's delivery-count (§2.6.7).

    Beyond the deliveries that have arrived it can only have advanced by returning credit. A lower
    count
    is ignored: some senders count a delivery at its last transfer, we at its first.

    Returns:
        the number of credits returned.
    """
    advance = serial.distance(link.delivery_count, delivery_count)
    returned = max(0, min(advance, link.allowance))
    if returned:
        link.delivery_count = serial.add(link.delivery_count, returned)
        link.allowance -= returned
        link.credit = max(0, link.credit - returned)
    return returned


def session_flow(session: SessionState) -> bytes:
    """Builds a flow of the session alone, renewing its window unless that is held."""
    return encode_flow(
        session.next_incoming_id,
        renewed(session),
        session.next_outgoing_id,
        session.outgoing_window,
    )


def link_flow(
    link: LinkState,
    available: int | None,
    drain: bool,
    echo: bool = False,
    properties: Mapping[object, object] | None = None,
) -> bytes:
    """Builds a flow of a link, renewing its session's window unless that is held.

    Args:
        link: an attached link, so that the delivery-count is known on both sides.
        available: deliveries waiting, if we send (§2.6.7).
        drain: as we want it, or as the peer wants it.
        echo: the peer is to answer with a flow of its own.
        properties: the link state's properties, for a peer that reads them.
    """
    session = link.session
    fields = (
        session.next_incoming_id,
        renewed(session),
        session.next_outgoing_id,
        session.outgoing_window,
        link.handle,
        link.delivery_count,
        link.credit,
        available,
        drain,
        echo,
    )
    return encode_flow(*fields) if properties is None else encode(Flow(*fields, properties))
