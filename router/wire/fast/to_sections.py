"""From AMQP/Fast to AMQP 1.0: head and body become message sections (1.0 §3.2).

Every valid message has a translation; docs/translation-fast.md is the table for people.
"""

from typing import Any, Final

import attrs

from router.errors import DecodeError, TranslationError
from router.wire import trace_context
from router.wire.fast import marks
from router.wire.fast.message import DELIVERY_COUNT, TTL, Head, decode_head, layout_of
from router.wire.fast.types import Seconds, TableValue
from router.wire.fast.values import to_v1_0
from router.wire.v1_0 import sections
from router.wire.v1_0.sections import NO_VALUE, AnnotatedMessage

_NO_PROPERTIES: Final = sections.Properties()


def to_message(payload: bytes) -> AnnotatedMessage:
    """Translates a payload, in the format of ``router.wire.fast.message``, into sections.

    Raises:
        TranslationError: the payload is invalid; names the part.
    """
    try:
        layout = layout_of(payload)
        head, _ = decode_head(payload, layout.head_start, layout.body_start)
        name = payload[2 : layout.head_start].decode()
    except (DecodeError, UnicodeDecodeError) as error:
        raise TranslationError("head", str(error)) from error
    to_sections = _ToSections(head, redelivered=layout.redelivered)
    if name:
        to_sections.annotations[marks.DESTINATION] = name
    to_sections.place_headers()
    to_sections.place_body(payload[layout.body_start :])
    return trace_context.from_headers(to_sections.message())


class _ToSections:
    """One translation.

    Attributes:
        annotations: message annotations so far.
    """

    def __init__(self, head: Head, *, redelivered: bool) -> None:
        self._head = head
        self._redelivered = redelivered
        self._message = AnnotatedMessage()
        self._fields: dict[str, Any] = {}
        self._exact = AnnotatedMessage()
        self._application_properties: dict[Any, Any] = {}
        self._other_headers: dict[str, Any] = {}
        self._ttl: int | None = None
        self._count = 0
        self._body: bytes | None = None
        self.annotations: dict[Any, Any] = {}

    # --- headers ----------------------------------------------------------------------------------

    def place_headers(self) -> None:
        """Maps each header to its section."""
        for name, value in self._head.headers.items():
            if name not in marks.RESERVED:
                self._application_properties[name] = to_v1_0(value)
            elif not self._read_mark(name, value):
                self._other_headers[name] = to_v1_0(value)

    def _read_mark(self, name: str, value: TableValue) -> bool:
        """Reads a reserved header; returns whether it has its reserved meaning."""
        if isinstance(value, bytes):
            return self._read_octets(name, value)
        if name == marks.CREATION_TIME and isinstance(value, Seconds):
            self._fields["creation_time"] = value * 1000
            return True
        if type(value) is not int or value < 0:
            return False
        if name == marks.GROUP_SEQUENCE:
            self._fields["group_sequence"] = value
        elif name == TTL:
            self._ttl = value
        elif name == DELIVERY_COUNT and value > 1 and self._redelivered:
            self._count = value
        else:
            return False
        return True

    def _read_octets(self, name: str, value: bytes) -> bool:
        if name == marks.USER_ID:
            self._fields["user_id"] = value
            return True
        if name == marks.SECTIONS:
            return self._read_sections(value)
        if name == marks.BODY:
            self._body = value
            return True  # ``place_body`` checks whether it is true
        text = to_v1_0(value)
        if type(text) is not str:
            return False
        field = _TEXT_FIELDS.get(name)
        if field is None:
            return False
        self._fields[field] = text
        return True

    def _read_sections(self, octets: bytes) -> bool:
        try:
            found = sections.decode_message(octets)
        except DecodeError:
            return False
        has_body = found.data or found.sequences or found.value is not NO_VALUE
        if has_body or found.delivery_annotations is not None or found.header is not None:
            return False
        self._exact = found
        return True

    # --- body -------------------------------------------------------------------------------------

    def place_body(self, body: bytes) -> None:
        """Sets the body's sections; a header may name their kind."""
        if self._body is not None and not self._place_marked(self._body, body):
            self._other_headers[marks.BODY] = to_v1_0(self._body)
            self._body = None
        if self._body is None:
            self._message.data = [body]

    def _place_marked(self, kind: bytes, body: bytes) -> bool:
        message = self._message
        if kind == marks.BODY_BINARY:
            message.value = body
        elif kind in (marks.BODY_STRING, marks.BODY_PLAIN_STRING):
            if kind == marks.BODY_PLAIN_STRING and self._head.mime_type != marks.PLAIN_TEXT:
                return False
            try:
                message.value = body.decode()
            except UnicodeDecodeError:
                return False
        elif kind == marks.BODY_SECTIONS:
            try:
                found = sections.decode_message(body)
            except DecodeError:
                return False
            message.sequences, message.value = found.sequences, found.value
            return bool(found.sequences) or found.value is not NO_VALUE
        else:
            return False
        return True

    # --- the whole --------------------------------------------------------------------------------

    def message(self) -> AnnotatedMessage:
        """Returns the message; exact parts take precedence."""
        message, exact = self._message, self._exact
        head = self._head
        message.header = sections.Header(
            durable=head.persistent,
            priority=head.priority,
            ttl_ms=self._ttl,
            delivery_count=max(self._count, 1) if self._redelivered else 0,
        )
        self._place_fixed()
        properties = sections.Properties(**self._fields)
        if exact.properties is not None:
            said = attrs.asdict(exact.properties, recurse=False)
            said = {name: value for name, value in said.items() if value is not None}
            properties = attrs.evolve(properties, **said)
        message.properties = None if properties == _NO_PROPERTIES else properties
        if exact.application_properties:
            self._application_properties.update(exact.application_properties.items())
        message.application_properties = self._application_properties or None
        annotations = dict((exact.message_annotations or {}).items())
        annotations.update(self.annotations)
        if self._other_headers:
            annotations[marks.HEADERS] = self._other_headers
        message.message_annotations = annotations or None
        message.footer = exact.footer
        return message

    def _place_fixed(self) -> None:
        head = self._head
        fields, annotations = self._fields, self.annotations
        if head.identifier:
            fields["message_id"] = head.identifier
        if head.mime_type and self._body != marks.BODY_PLAIN_STRING:
            if head.mime_type.isascii():
                fields["content_type"] = head.mime_type
            else:
                annotations[marks.MIME_TYPE] = head.mime_type
        if head.encoding:
            if head.encoding.isascii():
                fields["content_encoding"] = head.encoding
            else:
                annotations[marks.ENCODING] = head.encoding
        if head.expiration:
            fields["absolute_expiry_time"] = head.expiration * 1000


_TEXT_FIELDS: Final = {
    **{header: field for field, header in marks.TEXTS.items()},
    marks.CORRELATION_ID: "correlation_id",
}
"""Header → field of the properties section."""
