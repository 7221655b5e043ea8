"""Messages of AMQP 1.0 for hypothesis: every section, every field, every type of value."""

from typing import Any

from hypothesis import strategies as st

from router.wire.v1_0.sections import NO_VALUE, AnnotatedMessage, Header, Properties
from router.wire.v1_0.types import Symbol, Ulong
from tests.support.amqp_values import values

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
_ASCII = st.text(st.characters(max_codepoint=127), max_size=10)
_SYMBOLS = _ASCII.map(Symbol)
_IDS = _TEXT | st.binary(max_size=10) | st.uuids() | st.integers(0, (1 << 64) - 1).map(Ulong)
_UINTS = st.integers(0, (1 << 32) - 1)
_TIMES = st.integers(-(1 << 63), (1 << 63) - 1)


def _maps(keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | st.dictionaries(keys, values, max_size=3)


def _maybe(of: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | of


HEADERS = st.builds(
    Header,
    durable=st.booleans(),
    priority=_maybe(st.integers(0, 255)),
    ttl_ms=_maybe(_UINTS),
    first_acquirer=st.booleans(),
    delivery_count=_UINTS,
)
PROPERTIES = st.builds(
    Properties,
    message_id=_maybe(_IDS),
    user_id=_maybe(st.binary(max_size=10)),
    to=_maybe(_TEXT),
    subject=_maybe(_TEXT),
    reply_to=_maybe(_TEXT),
    correlation_id=_maybe(_IDS),
    content_type=_maybe(_SYMBOLS),
    content_encoding=_maybe(_SYMBOLS),
    absolute_expiry_time=_maybe(_TIMES),
    creation_time=_maybe(_TIMES),
    group_id=_maybe(_TEXT),
    group_sequence=_maybe(_UINTS),
    reply_to_group_id=_maybe(_TEXT),
)


@st.composite
def messages(draw: st.DrawFn) -> AnnotatedMessage:
    """A message with any of its sections and any kind of body."""
    kind = draw(st.sampled_from(["none", "data", "sequences", "value"]))
    data = st.lists(st.binary(max_size=20) | _TEXT.map(str.encode), min_size=1, max_size=3)
    sequences = st.lists(st.lists(values, max_size=3), min_size=1, max_size=2)
    return AnnotatedMessage(
        header=draw(_maybe(HEADERS)),
        delivery_annotations=draw(_maps(_SYMBOLS)),
        message_annotations=draw(_maps(_SYMBOLS)),
        properties=draw(_maybe(PROPERTIES)),
        application_properties=draw(_maps(_TEXT)),
        data=draw(data) if kind == "data" else [],
        sequences=draw(sequences) if kind == "sequences" else [],
        value=draw(values) if kind == "value" else NO_VALUE,
        footer=draw(_maps(_SYMBOLS)),
    )
