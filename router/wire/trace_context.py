"""The trace context of a message: where it is carried, and in which form (W3C draft for AMQP).

The draft *Trace Context: AMQP protocol* has two fields, ``traceparent`` and ``tracestate``, at two
places of an AMQP 1.0 message::

    application-properties   of the message's creator; immutable, part of the bare message
    message-annotations      of the last middleware that takes part; read first, if present

The draft encodes ``traceparent`` as a binary of 29 octets; the libraries in use write the text of
the HTTP header instead. Both are read, and a hop writes the form that it has read::

    text     00-<trace-id, 32 hex digits>-<parent-id, 16 digits>-<flags, 2 digits>
    binary   0x00 | 0x00 trace-id, 16 octets | 0x01 parent-id, 8 octets | 0x02 flags, 1 octet

The protocols before 1.0 have one place, the headers, which their libraries read. Without context
in the message annotations that is simply where application properties go. With one, the header is
what a reader of the draft would take, and the creator's context goes into annotations of the
router (``in_headers``, and ``from_headers`` back again)::

    x-opt-creator-traceparent   the creator's; an empty string: it had none
    x-opt-creator-tracestate    the creator's; absent: it had none

Whoever changes the header of such a message has begun a span of its own: on the way back to
AMQP 1.0 its context counts, and the annotations are dropped.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

import attrs

from router.wire.v1_0.sections import AnnotatedMessage
from router.wire.v1_0.types import Symbol

PARENT: Final = "traceparent"
STATE: Final = "tracestate"
NAMES: Final = (PARENT, STATE)

CREATOR: Final = {name: Symbol(f"x-opt-creator-{name}") for name in NAMES}
"""Field → annotation that keeps the creator's in protocols with one place."""

SAMPLED: Final = 0x01
"""The trace flag that asks everybody to record the trace (Trace Context §3.2.2.5.1)."""

_TEXT: Final = re.compile(r"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_BINARY_OCTETS: Final = 29
_FORBIDDEN_VERSION: Final = "ff"


@attrs.frozen
class Context:
    """A span's place in a trace.

    Attributes:
        trace: trace-id, 16 octets.
        span: parent-id: the span that the message was sent in, 8 octets.
        flags: trace flags.
        is_binary: it was read from the draft's binary form.
        state: the tracestate that belongs to it, as it was read; None: none.
    """

    trace: bytes
    span: bytes
    flags: int
    is_binary: bool = False
    state: object = None

    @property
    def is_sampled(self) -> bool:
        """Whether the sender records the trace."""
        return bool(self.flags & SAMPLED)

    @property
    def text(self) -> str:
        """The traceparent as text, in version 00."""
        return f"00-{self.trace.hex()}-{self.span.hex()}-{self.flags:02x}"

    def encoded(self) -> str | bytes:
        """Returns the traceparent in the form in which it was read."""
        if not self.is_binary:
            return self.text
        return b"".join(
            (b"\x00\x00", self.trace, b"\x01", self.span, b"\x02", bytes((self.flags,)))
        )


def read(fields: object) -> Context | None:
    """Returns the context in a section; None: there is none, or an invalid one (ignored)."""
    if not isinstance(fields, Mapping):
        return None
    found = parse(fields.get(PARENT))
    state = fields.get(STATE)
    if found is None or not isinstance(state, str):
        return found
    return attrs.evolve(found, state=state)


def parse(value: object) -> Context | None:
    """Reads a traceparent, text or binary; None: it is not valid."""
    if isinstance(value, str):
        return _from_text(value)
    if isinstance(value, bytes):
        return _from_binary(value) or _from_octets_of_text(value)
    return None


def _from_text(text: str) -> Context | None:
    found = _TEXT.fullmatch(text)
    if found is None:
        return None
    version, trace, span, flags, more = found.groups()
    if version == _FORBIDDEN_VERSION or (more and version == "00"):
        return None
    return _valid(bytes.fromhex(trace), bytes.fromhex(span), int(flags, 16), is_binary=False)


def _from_binary(octets: bytes) -> Context | None:
    if len(octets) != _BINARY_OCTETS or octets[:2] != b"\x00\x00":
        return None
    if octets[18] != 1 or octets[27] != 2:
        return None
    return _valid(octets[2:18], octets[19:27], octets[28], is_binary=True)


def _from_octets_of_text(octets: bytes) -> Context | None:
    return _from_text(octets.decode()) if octets.isascii() else None


def _valid(trace: bytes, span: bytes, flags: int, *, is_binary: bool) -> Context | None:
    return Context(trace, span, flags, is_binary) if any(trace) and any(span) else None


def in_headers(message: AnnotatedMessage) -> AnnotatedMessage:
    """Prepares a message for a protocol whose only place for a context is its headers.

    Returns:
        The message itself if its message annotations have no context. Otherwise one whose
        application properties have that context, as text, and whose annotations keep the creator's.
    """
    annotations, properties = message.message_annotations, message.application_properties or {}
    if not isinstance(annotations, Mapping) or not isinstance(properties, Mapping):
        return message
    found = read(annotations)
    if found is None:
        return message
    kept = {**annotations, CREATOR[PARENT]: ""}
    for name in NAMES:
        if name in properties:
            kept[CREATOR[name]] = properties[name]
    rest = {name: value for name, value in properties.items() if name not in NAMES}
    return attrs.evolve(
        message, message_annotations=kept, application_properties={**rest, **_as_read(annotations)}
    )


def from_headers(message: AnnotatedMessage) -> AnnotatedMessage:
    """Undoes ``in_headers``; a message without its annotations is returned unchanged."""
    annotations, properties = message.message_annotations, message.application_properties or {}
    if not isinstance(annotations, Mapping) or CREATOR[PARENT] not in annotations:
        return message
    if not isinstance(properties, Mapping) or read(annotations) is None:
        return message
    kept = {name: value for name, value in annotations.items() if name not in CREATOR.values()}
    rest = {name: value for name, value in properties.items() if name not in NAMES}
    if {name: properties[name] for name in NAMES if name in properties} != _as_read(annotations):
        kept = {name: value for name, value in kept.items() if name not in NAMES}
        rest = dict(properties)  # somebody has sent the message on in a span of its own
    else:
        creators = {name: annotations.get(CREATOR[name]) for name in NAMES}
        rest |= {name: value for name, value in creators.items() if value not in (None, "")}
    return attrs.evolve(
        message, message_annotations=kept or None, application_properties=rest or None
    )


def _as_read(annotations: Mapping[Any, Any]) -> dict[str, Any]:
    """Returns the context of message annotations as headers have it."""
    found = read(annotations)
    assert found is not None
    parent = found.text if found.is_binary else annotations[PARENT]
    return {PARENT: parent} | ({} if found.state is None else {STATE: found.state})
