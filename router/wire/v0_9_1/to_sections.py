"""From 0-9-1 to AMQP 1.0: a content becomes message sections (1.0 §3.2).

Each property is mapped to a section, or else to an annotation; each header becomes an application
property, an annotation, a mark (``marks``), or an entry of ``x-basic-headers``. Every valid content
has a translation.
"""

import uuid
from typing import Any, Final

from router.errors import DecodeError, TranslationError
from router.model.text import decode_text, encode_text, is_text
from router.wire import trace_context
from router.wire.v0_9_1 import content as contents
from router.wire.v0_9_1 import marks
from router.wire.v0_9_1.content import ContentLayout, Properties
from router.wire.v0_9_1.types import Seconds, Table
from router.wire.v0_9_1.values import MAX_TIMESTAMP_SECONDS, to_v1_0
from router.wire.v1_0 import sections
from router.wire.v1_0.sections import NO_VALUE, AnnotatedMessage, MessageId
from router.wire.v1_0.types import Symbol, Ubyte, Uint, Ulong

_NO_PROPERTIES: Final = sections.Properties()


def to_message(content: bytes) -> AnnotatedMessage:
    """Translates a content, as ``router.wire.v0_9_1.content`` draws it, into sections.

    Raises:
        TranslationError: the content is invalid; names the property.
    """
    try:
        layout = contents.content_layout(content)
        properties = contents.properties_of(content, layout)
    except DecodeError as error:
        raise TranslationError("content-header", error.rule) from error
    to_sections = _ToSections(properties, layout)
    to_sections.place_route(*contents.content_route(content))
    to_sections.place_headers()
    to_sections.place_body(content[layout.body_start :])
    return trace_context.from_headers(to_sections.message())


def _string_or_binary(text: str) -> str | bytes:
    return text if is_text(text) else encode_text(text)


class _ToSections:
    """One translation: takes a message apart, piece by piece.

    Attributes:
        annotations: message annotations so far.
        marks: headers that represent parts that only AMQP 1.0 has.
        other_headers: headers for ``x-basic-headers``.
    """

    def __init__(self, properties: Properties, layout: ContentLayout) -> None:
        self._from = properties
        self._layout = layout
        self._message = AnnotatedMessage()
        self._application_properties: dict[Any, Any] = {}
        self.annotations: dict[Any, Any] = {}
        self.marks: Table = {}
        self.other_headers: dict[Any, Any] = {}

    def place_route(self, exchange: bytes, routing_key: bytes) -> None:
        """Sets exchange and routing key."""
        if exchange:
            self.annotations[marks.EXCHANGE] = _string_or_binary(decode_text(exchange))
        if routing_key:
            self.annotations[marks.ROUTING_KEY] = _string_or_binary(decode_text(routing_key))

    def place_headers(self) -> None:
        """Maps each header to its section."""
        for name, value in (self._from.headers or {}).items():
            if marks.is_mark(name, value, self._from):
                self.marks[name] = value
            elif marks.is_look_alike(name) or not is_text(name):
                self.other_headers[_string_or_binary(name)] = to_v1_0(value)
            elif name.startswith("x-"):
                if name.isascii():
                    self.annotations[Symbol(name)] = to_v1_0(value)
                else:
                    self.other_headers[name] = to_v1_0(value)
            elif type(value) is list or type(value) is dict:
                self.other_headers[name] = to_v1_0(value)
            else:
                self._application_properties[name] = to_v1_0(value)

    def place_body(self, body: bytes) -> None:
        """Sets the body's sections; the type of the body may be a mark."""
        kind = self.marks.get(marks.BODY)
        if kind is not None:
            try:
                is_binary = kind == marks.BODY_BINARY
                self._message.value = body if is_binary else body.decode("utf-8")
            except UnicodeError:
                del self.marks[marks.BODY]
                self.other_headers[marks.BODY] = kind
            else:
                return
        if self._from.type == marks.TYPE_OF_SECTIONS:
            encoded = _sections_in(body)
            if encoded is not None:
                self._message.sequences = encoded.sequences
                self._message.value = encoded.value
                return
        self._message.data = [body]

    def message(self) -> AnnotatedMessage:
        """Returns the message."""
        message = self._message
        message.properties = self._properties()
        message.header = self._header()
        if marks.FOOTER in self.marks:
            message.footer = {
                Symbol(name): to_v1_0(value) for name, value in self.marks[marks.FOOTER].items()
            }
        for name, value in self.marks.get(marks.ANNOTATIONS, {}).items():
            self.annotations[Symbol(name)] = to_v1_0(value)
        for name, value in self.marks.get(marks.APPLICATION_PROPERTIES, {}).items():
            self._application_properties[name] = to_v1_0(value)
        if self.other_headers:
            self.annotations[marks.HEADERS] = self.other_headers
        message.message_annotations = self.annotations or None
        message.application_properties = self._application_properties or None
        return message

    # --- header -----------------------------------------------------------------------------------

    def _header(self) -> sections.Header | None:
        mode, priority = self._from.delivery_mode, self._from.priority
        ttl = self._ttl()
        count = self._delivery_count()
        if mode is None and priority is None and ttl is None and not count:
            return None
        if mode is None:
            self.annotations[marks.DELIVERY_MODE] = None
        elif mode not in (1, contents.PERSISTENT):
            self.annotations[marks.DELIVERY_MODE] = Ubyte(mode)
        return sections.Header(
            durable=mode == contents.PERSISTENT,
            priority=priority,
            ttl_ms=ttl,
            delivery_count=count,
        )

    def _ttl(self) -> int | None:
        text = self._from.expiration
        ttl = contents.ttl_of(self._from)
        if text is not None and (ttl is None or text != str(ttl)):
            self.annotations[marks.EXPIRATION] = _string_or_binary(text)
        return ttl

    def _delivery_count(self) -> int:
        value = (self._from.headers or {}).get(marks.DELIVERY_COUNT)
        count = marks.count_of(value) or 0
        if count > 1 and type(value) is int:
            del self.other_headers[marks.DELIVERY_COUNT]  # the section's field has the same value
        return max(count, 1) if self._layout.redelivered else count

    # --- properties -------------------------------------------------------------------------------

    def _properties(self) -> sections.Properties | None:
        source, found = self._from, self.marks
        app_id = self._text("app_id")
        if app_id is not None:
            self._application_properties[marks.APP_ID] = app_id
        if source.cluster_id is not None:
            self.annotations[marks.ANNOTATION_OF["cluster_id"]] = _string_or_binary(
                source.cluster_id
            )
        content_type = self._text("content_type", ascii_only=True)
        if found.get(marks.BODY) == marks.BODY_PLAIN_STRING:
            content_type = None
        made = sections.Properties(
            message_id=self._message_id("message_id", marks.MESSAGE_ID),
            user_id=None if source.user_id is None else encode_text(source.user_id),
            to=found.get(marks.TO),
            subject=self._subject(),
            reply_to=found.get(marks.REPLY_TO, self._text("reply_to")),
            correlation_id=self._message_id("correlation_id", marks.CORRELATION_ID),
            content_type=found.get(marks.CONTENT_TYPE, content_type),
            content_encoding=found.get(
                marks.CONTENT_ENCODING, self._text("content_encoding", ascii_only=True)
            ),
            absolute_expiry_time=found.get(marks.ABSOLUTE_EXPIRY_TIME),
            creation_time=self._creation_time(),
            group_id=found.get(marks.GROUP_ID),
            group_sequence=self._group_sequence(),
            reply_to_group_id=found.get(marks.REPLY_TO_GROUP_ID),
        )
        return None if made == _NO_PROPERTIES else made

    def _text(self, name: str, *, ascii_only: bool = False) -> str | None:
        text: str | None = getattr(self._from, name)
        if text is None:
            return None
        if text.isascii() or (not ascii_only and is_text(text)):
            return text
        self.annotations[marks.ANNOTATION_OF[name]] = _string_or_binary(text)
        return None

    def _subject(self) -> str | None:
        text = self._from.type
        subject: str | None = self.marks.get(marks.SUBJECT)
        if text is None:
            return subject
        if text == marks.TYPE_OF_SECTIONS:
            if self._message.data:
                self.annotations[marks.TYPE] = text
            return subject
        if subject is None and is_text(text):
            return text
        self.annotations[marks.TYPE] = _string_or_binary(text)
        return subject

    def _message_id(self, name: str, header: str) -> MessageId | None:
        exact: MessageId | None = self.marks.get(header)
        text: str | None = getattr(self._from, name)
        if exact is not None or text is None:
            return exact
        if f"{header}-type" in self.marks:
            return Ulong(text)
        if text.startswith("urn:uuid:") and len(text) == 45:
            try:
                identity = uuid.UUID(text[9:])
            except ValueError:
                return self._text(name)
            if identity.urn == text:
                return identity
        return self._text(name)

    def _creation_time(self) -> int | None:
        exact: int | None = self.marks.get(marks.CREATION_TIME)
        seconds: Seconds | None = self._from.timestamp
        if exact is not None or seconds is None:
            return exact
        if seconds <= MAX_TIMESTAMP_SECONDS:
            return seconds * 1000
        self.annotations[marks.TIMESTAMP] = Ulong(seconds)
        return None

    def _group_sequence(self) -> int | None:
        value = (self._from.headers or {}).get(marks.GROUP_SEQUENCE)
        if type(value) is Uint:
            del self.other_headers[marks.GROUP_SEQUENCE]  # the section's field has the same value
        return marks.count_of(value)


def _sections_in(body: bytes) -> AnnotatedMessage | None:
    """Decodes a body of type ``amqp-1.0``; None if it is neither sequences nor a value."""
    try:
        message = sections.decode_message(body)
    except DecodeError:
        return None
    is_body_only = (
        message.header is None
        and message.delivery_annotations is None
        and message.message_annotations is None
        and message.properties is None
        and message.application_properties is None
        and message.footer is None
    )
    has_more_than_data = message.sequences or message.value is not NO_VALUE
    return message if is_body_only and has_more_than_data else None
