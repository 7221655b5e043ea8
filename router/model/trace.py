"""The part of a distributed trace that one hop is (W3C Trace Context)."""

import enum

import attrs

from router.model.capabilities import Protocol

TRACE_OCTETS = 16
SPAN_OCTETS = 8


class Sampling(enum.StrEnum):
    """Which deliveries a route traces."""

    SENDER = "sender"
    """Those whose senders say that they record the trace."""
    ALWAYS = "always"
    """All; one without a context begins a trace."""


@attrs.frozen(kw_only=True)
class Hop:
    """The span of one hop: a link that a delivery came over, and what the router made of it.

    Attributes:
        trace: trace-id, 16 octets.
        span: its own id, 8 octets.
        parent: id of the span that the message was sent in; empty: it begins the trace.
        flags: trace flags.
        creator: trace-id and span-id of the message's creator if that is another span, 24 octets;
            otherwise empty.
        state: tracestate, as it came; empty: none.
    """

    trace: bytes
    span: bytes
    parent: bytes = b""
    flags: int = 1
    creator: bytes = b""
    state: str = ""


@attrs.frozen
class Splice:
    """A change of a message that is made when it leaves.

    Attributes:
        start, end: the octets of the message that are replaced.
        octets: what takes their place.
    """

    start: int
    end: int
    octets: bytes

    def of(self, payload: bytes) -> bytes:
        """Returns a message with the change made.

        Args:
            payload: the message, or its beginning up to ``end`` or further.
        """
        return b"".join((payload[: self.start], self.octets, payload[self.end :]))


@attrs.frozen
class Joined:
    """A message that a hop has joined.

    Attributes:
        hop: its span.
        protocol: encoding of the payload.
        payload: the message, with the hop's context where that may be added.
        splice: of a first part, which is left as it came: how it leaves with the hop's context;
            None: it leaves as it came.
    """

    hop: Hop
    protocol: Protocol
    payload: bytes
    splice: Splice | None = None
