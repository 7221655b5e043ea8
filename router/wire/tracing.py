"""A hop joins the trace of a message, by the draft's rules for a middleware (``trace_context``).

The hop's own context goes into the message annotations; the application properties are never
touched. A message of another protocol is translated to AMQP 1.0 for that, and back at its exit.

The first part of a message whose rest has not come yet is kept as it is, because positions that its
sender is told (§3.4.1) count octets as they were received. The context goes into what leaves, as a
``Splice``. Positions of receivers count octets as they were sent, so each transfer of the message
must have the same context: the splice depends only on the hop's identity, and on sections that the
first part contains completely. A longer beginning of the message gives the same. A first part that
may lack the sections that decide has a span, but no splice.
"""

from collections.abc import Mapping
from typing import Any, Final

import attrs

from router.errors import RouterError, TranslationError
from router.model.capabilities import Protocol
from router.model.trace import SPAN_OCTETS, TRACE_OCTETS, Hop, Joined
from router.wire import hub
from router.wire.trace_context import PARENT, SAMPLED, STATE, Context, read
from router.wire.v1_0.sections import (
    Annotations,
    peek,
    replace_annotations,
    splice_annotations,
)
from router.wire.v1_0.types import Symbol

_FIELD: Final = PARENT.encode()
_PARENT_ANNOTATION: Final = Symbol(PARENT)
_STATE_ANNOTATION: Final = Symbol(STATE)


def join(
    protocol: Protocol, payload: bytes, identity: bytes, *, always: bool, is_whole: bool
) -> Joined | None:
    """Has a hop join the trace of a message.

    Args:
        protocol: the payload's encoding.
        payload: a message, or a first part.
        identity: of the hop: its span-id, then the trace-id that it takes if it begins a trace.
        always: the trace is recorded whatever its sender says.
        is_whole: the payload is complete.

    Returns:
        None: nobody records the trace, or the message is invalid.
    """
    if not always and _FIELD not in payload:
        return None
    try:
        octets, annotations, properties = _fields(protocol, payload, is_whole=is_whole)
        creator = read(properties)
        base = read(annotations) or creator
        if not always and (base is None or not base.is_sampled):
            return None
        own = _own(base, identity)
        hop = _hop(own, base, creator)
        if not isinstance(annotations, Mapping):
            return Joined(hop, protocol, payload)
        made = _with_context(annotations, own)
        if is_whole:
            return Joined(hop, Protocol.AMQP_1_0, replace_annotations(octets, made))
        seen = peek(octets, partial=True)
        is_decided = base is not None or seen.is_whole
        splice = splice_annotations(seen, made) if is_decided else None
        return Joined(hop, protocol, payload, splice)
    except RouterError:
        return None


def _fields(
    protocol: Protocol, payload: bytes, *, is_whole: bool
) -> tuple[bytes, Annotations, Annotations]:
    """Returns a message as AMQP 1.0, its message annotations and its application properties."""
    if protocol is not Protocol.AMQP_1_0 and not is_whole:
        raise TranslationError("payload", "only messages of AMQP 1.0 come in parts")
    octets = hub.translate(payload, protocol, Protocol.AMQP_1_0)
    seen = peek(octets, partial=not is_whole)
    return octets, seen.message_annotations, seen.application_properties


def _with_context(annotations: Mapping[Any, Any], own: Context) -> dict[Any, Any]:
    made = dict(annotations)
    made.pop(_STATE_ANNOTATION, None)
    made[_PARENT_ANNOTATION] = own.encoded()
    if own.state is not None:
        made[_STATE_ANNOTATION] = own.state
    return made


def _own(base: Context | None, identity: bytes) -> Context:
    """Returns the context that a hop passes on."""
    span, trace = identity[:SPAN_OCTETS], identity[SPAN_OCTETS : SPAN_OCTETS + TRACE_OCTETS]
    if base is None:
        return Context(trace, span, SAMPLED)
    return attrs.evolve(base, span=span, flags=base.flags | SAMPLED)


def _hop(own: Context, base: Context | None, creator: Context | None) -> Hop:
    is_other = creator is not None and base is not None and creator.span != base.span
    return Hop(
        trace=own.trace,
        span=own.span,
        parent=b"" if base is None else base.span,
        flags=own.flags,
        creator=creator.trace + creator.span if creator is not None and is_other else b"",
        state=own.state if isinstance(own.state, str) else "",
    )
