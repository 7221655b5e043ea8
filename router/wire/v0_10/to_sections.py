"""From 0-10 to AMQP 1.0: a content becomes message sections (1.0 §3.2).

Each property is mapped to a section. Where that would not restore it exactly, it is also an
annotation, ``x-amqp-0-10.<property>``; each header becomes an application property, an annotation,
a mark (``marks``), or an entry of ``x-amqp-0-10.headers``. Every valid content has a translation.

Dropped are: discard-unroutable, immediate, resume-id, resume-ttl and fragment-properties, which
concern one transfer; content-length, which is redundant.
"""

from typing import Any, Final

from router.errors import DecodeError, TranslationError
from router.model.text import encode_text, is_text
from router.wire import trace_context
from router.wire.v0_10 import marks, restore
from router.wire.v0_10 import message as messages
from router.wire.v0_10.message import Message
from router.wire.v0_10.types import LIST, MAP, Table, decode_typed
from router.wire.v0_10.values import to_v1_0
from router.wire.v1_0 import sections
from router.wire.v1_0.sections import NO_VALUE, AnnotatedMessage, MessageId
from router.wire.v1_0.types import Symbol, Ubyte, Ulong

_NO_PROPERTIES: Final = sections.Properties()


def to_message(content: bytes) -> AnnotatedMessage:
    """Translates a content, in the format of ``router.wire.v0_10.message``, into sections.

    Raises:
        TranslationError: the content is invalid; names the property.
    """
    try:
        found = messages.read_content(content)
    except DecodeError as error:
        raise TranslationError("header-segment", error.rule) from error
    return translated(found)


def translated(found: Message) -> AnnotatedMessage:
    """Translates a decoded content into sections."""
    return trace_context.from_headers(_ToSections(found).message())


def _string_or_binary(text: str) -> str | bytes:
    return text if is_text(text) else encode_text(text)


class _ToSections:
    """One translation: takes a message apart, piece by piece.

    Attributes:
        annotations: message annotations so far.
        marks: headers that represent parts that only AMQP 1.0 has.
        other_headers: headers for ``x-amqp-0-10.headers``.
    """

    def __init__(self, found: Message) -> None:
        self._from = found
        self._delivery, self._source = found.delivery, found.message
        self._made = AnnotatedMessage()
        self._application_properties: dict[Any, Any] = {}
        self.annotations: dict[Any, Any] = {}
        self.marks: Table = {}
        self.other_headers: dict[Any, Any] = {}

    def message(self) -> AnnotatedMessage:
        """Returns the message."""
        made = self._made
        self._place_route()
        self._place_headers()
        self._place_body()
        made.header = self._header()
        properties = self._properties()
        made.properties = None if properties == _NO_PROPERTIES else properties
        if marks.FOOTER in self.marks:
            made.footer = {
                Symbol(name): to_v1_0(each) for name, each in self.marks[marks.FOOTER].items()
            }
        for name, value in self.marks.get(marks.ANNOTATIONS, {}).items():
            self.annotations[Symbol(name)] = to_v1_0(value)
        for name, value in self.marks.get(marks.APPLICATION_PROPERTIES, {}).items():
            self._application_properties[name] = to_v1_0(value)
        if self._from.others:
            self._annotate("others", self._from.others)
        if self.other_headers:
            self.annotations[marks.HEADERS] = self.other_headers
        made.message_annotations = self.annotations or None
        made.application_properties = self._application_properties or None
        return made

    def _annotate(self, name: str, value: Any) -> None:
        self.annotations[marks.annotation_of(name)] = value

    def _place_route(self) -> None:
        """Sets exchange and routing key."""
        exchange = self._delivery.exchange or self._from.exchange
        if exchange:
            self.annotations[marks.EXCHANGE] = _string_or_binary(exchange)
        key = self._delivery.routing_key
        if key:
            self.annotations[marks.ROUTING_KEY] = _string_or_binary(key)

    # --- headers ----------------------------------------------------------------------------------

    def _place_headers(self) -> None:
        """Maps each header to its section."""
        headers = self._source.application_headers or {}
        for name, value in headers.items():
            if (marks.is_mark(name, value) and self._fits(name, value)) or (
                name == marks.DELIVERY_COUNT and restore.is_count(self._delivery, value)
            ):
                self.marks[name] = value
            elif marks.is_reserved(name) or not is_text(name):
                self.other_headers[_string_or_binary(name)] = to_v1_0(value)
            elif name.startswith("x-"):
                if name.isascii():
                    self.annotations[Symbol(name)] = to_v1_0(value)
                else:
                    self.other_headers[name] = to_v1_0(value)
            elif type(value) in (list, dict):
                self.other_headers[name] = to_v1_0(value)
            else:
                self._application_properties[name] = to_v1_0(value)

    def _fits(self, name: str, value: Any) -> bool:
        """Returns whether a mark agrees with the property that it refines."""
        source, delivery = self._source, self._delivery
        match name:
            case marks.MESSAGE_ID:
                return source.message_id is None
            case marks.CORRELATION_ID:
                octets = restore.correlation_octets(value)
                needed = octets is None or restore.text_or_octets(octets) != value
                return needed and source.correlation_id == octets
            case marks.REPLY_TO:
                return source.reply_to is None and restore.reply_to_of(value) is None
            case marks.CONTENT_TYPE:
                return source.content_type is None
            case marks.CONTENT_ENCODING:
                return source.content_encoding is None
            case marks.CREATION_TIME:
                return restore.is_inexact(value) and delivery.timestamp == restore.datetime_of(
                    value
                )
            case marks.ABSOLUTE_EXPIRY_TIME:
                return restore.is_inexact(value) and delivery.expiration == restore.datetime_of(
                    value
                )
            case marks.PRIORITY:
                return delivery.priority == messages.MAX_PRIORITY
            case marks.ANNOTATIONS:
                return all(map(restore.needs_wrapping, value)) and all(map(str.isascii, value))
            case marks.APPLICATION_PROPERTIES:
                return all(map(restore.is_wrapped_property, value))
            case marks.FOOTER:
                return all(map(str.isascii, value))
            case _:
                return True

    # --- body -------------------------------------------------------------------------------------

    def _place_body(self) -> None:
        """Sets the body's sections, by the mark or the content-type."""
        made, body = self._made, self._from.body
        kind = self.marks.get(marks.BODY)
        if kind is None:
            value = _value_of(self._source.content_type, body)
            if value is NO_VALUE:
                made.data = [body]
            else:
                made.value = value
            return
        found = self._marked_body(kind, body)
        if found is not None:
            made.sequences, made.value = found.sequences, found.value
            return
        self.other_headers[marks.BODY] = self.marks.pop(marks.BODY)
        made.data = [body]

    def _marked_body(self, kind: str, body: bytes) -> AnnotatedMessage | None:
        """Decodes a body by its mark; None if the mark is not one that we would have written."""
        content_type = self._source.content_type
        if kind == marks.BODY_BINARY:
            return AnnotatedMessage(value=body)
        if kind == marks.BODY_SECTIONS:
            return _sections_in(body, is_typed=self._has_content_type)
        is_plain = kind == marks.BODY_PLAIN_STRING
        fits = content_type == marks.PLAIN_TEXT if is_plain else self._has_content_type
        if not fits:
            return None
        try:
            return AnnotatedMessage(value=body.decode())
        except UnicodeDecodeError:
            return None

    @property
    def _has_content_type(self) -> bool:
        content_type = self._source.content_type
        return marks.CONTENT_TYPE in self.marks or (
            content_type is not None and content_type.isascii()
        )

    # --- header -----------------------------------------------------------------------------------

    def _header(self) -> sections.Header | None:
        delivery = self._delivery
        mode, ttl = delivery.delivery_mode, messages.milliseconds_left(delivery)
        priority = self.marks.get(marks.PRIORITY, delivery.priority)
        count = int(self.marks.get(marks.DELIVERY_COUNT, delivery.redelivered))
        if mode is None and priority is None and ttl is None and not count:
            return None
        if mode is None:
            self._annotate("delivery_mode", None)
        elif mode not in (messages.NON_PERSISTENT, messages.PERSISTENT):
            self._annotate("delivery_mode", Ubyte(mode))
        if delivery.ttl is not None and delivery.ttl != ttl:
            self._annotate("ttl", Ulong(delivery.ttl))
        if delivery.priority is not None and delivery.priority > messages.MAX_PRIORITY:
            self._annotate("priority", Ubyte(delivery.priority))
        return sections.Header(
            durable=mode == messages.PERSISTENT,
            priority=None if priority is None else int(priority),
            ttl_ms=ttl,
            delivery_count=count,
        )

    # --- properties -------------------------------------------------------------------------------

    def _properties(self) -> sections.Properties:
        source, found, delivery = self._source, self.marks, self._delivery
        content_type = self._text("content_type")
        if found.get(marks.BODY) == marks.BODY_PLAIN_STRING:
            content_type = None
        elif self._made.value is not NO_VALUE and marks.BODY not in found:
            content_type = None  # implied by the section's type
        if source.app_id is not None:
            app_id = restore.text_or_octets(source.app_id)
            self._application_properties[marks.APP_ID] = app_id
        return sections.Properties(
            message_id=found.get(marks.MESSAGE_ID, source.message_id),
            user_id=source.user_id,
            to=found.get(marks.TO),
            subject=found.get(marks.SUBJECT),
            reply_to=found.get(marks.REPLY_TO, self._reply_to()),
            correlation_id=self._correlation_id(),
            content_type=found.get(marks.CONTENT_TYPE, content_type),
            content_encoding=found.get(marks.CONTENT_ENCODING, self._text("content_encoding")),
            absolute_expiry_time=self._time(
                "expiration", delivery.expiration, found.get(marks.ABSOLUTE_EXPIRY_TIME)
            ),
            creation_time=self._time(
                "timestamp", delivery.timestamp, found.get(marks.CREATION_TIME)
            ),
            group_id=found.get(marks.GROUP_ID),
            group_sequence=marks.count_of(found.get(marks.GROUP_SEQUENCE)),
            reply_to_group_id=found.get(marks.REPLY_TO_GROUP_ID),
        )

    def _text(self, name: str) -> str | None:
        text: str | None = getattr(self._source, name)
        if text is None or text.isascii():
            return text
        self._annotate(name, _string_or_binary(text))
        return None

    def _correlation_id(self) -> MessageId | None:
        exact: MessageId | None = self.marks.get(marks.CORRELATION_ID)
        octets = self._source.correlation_id
        if exact is not None or octets is None:
            return exact
        return restore.text_or_octets(octets)

    def _reply_to(self) -> str | None:
        reply_to = self._source.reply_to
        if reply_to is None:
            return None
        exchange, key = reply_to.exchange or "", reply_to.routing_key or ""
        has_both = bool(exchange) and reply_to.routing_key is not None
        address = f"{exchange}/{key}" if has_both else exchange or key
        if not is_text(address):
            address = ""
        if restore.reply_to_of(address) != reply_to:
            parts = (("exchange", reply_to.exchange), ("routing-key", reply_to.routing_key))
            exact = {name: _string_or_binary(text) for name, text in parts if text is not None}
            self._annotate("reply_to", exact)
        return address

    def _time(self, name: str, value: int | None, exact: int | None) -> int | None:
        """Reads a datetime in seconds, or in the milliseconds that Qpid for Java writes."""
        if exact is not None or value is None:
            return exact
        milliseconds = restore.milliseconds_of(value)
        if milliseconds is None or restore.datetime_of(milliseconds) != value:
            self._annotate(name, Ulong(value))
        return milliseconds


def _value_of(content_type: str | None, body: bytes) -> Any:
    """Decodes a body that is a map or list of 0-10; NO_VALUE if it is neither."""
    code = {marks.MAP_TYPE: MAP, marks.LIST_TYPE: LIST}.get(content_type or "")
    if code is None:
        return NO_VALUE
    try:
        value, after = decode_typed(code, body, 0, len(body))
    except DecodeError:
        return NO_VALUE
    return to_v1_0(value) if after == len(body) else NO_VALUE


def _sections_in(body: bytes, *, is_typed: bool) -> AnnotatedMessage | None:
    """Decodes a body of sections; None if ``from_sections`` does not write such a body."""
    try:
        message = sections.decode_message(body)
    except DecodeError:
        return None
    decoded = AnnotatedMessage(sequences=message.sequences, value=message.value)
    if sections.encode_message(decoded) != body or not body:
        return None
    is_plain = type(decoded.value) in (str, bytes) or (
        not is_typed and restore.is_simple(decoded.value)
    )
    return None if is_plain else decoded
