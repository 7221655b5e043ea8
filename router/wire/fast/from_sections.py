"""From AMQP 1.0 to AMQP/Fast: message sections become head and body (1.0 §3.2).

A part with an exact form in the head or its headers is written there; any other goes into
``x-amqp-sections`` exactly, and approximately into a header (``marks``). Delivery annotations are
for one hop and are dropped; so is ``first-acquirer``, which concerns the link.
"""

import uuid
from typing import Any, Final

from router.errors import MisuseError, TranslationError
from router.wire import trace_context
from router.wire.fast import marks
from router.wire.fast.message import DELIVERY_COUNT, TTL, Head, encode_head, payload_prefix
from router.wire.fast.types import Seconds, fits_short
from router.wire.fast.values import from_v1_0
from router.wire.v1_0 import sections
from router.wire.v1_0.sections import NO_VALUE, AnnotatedMessage, MessageId
from router.wire.v1_0.types import Pairs, Ulong

_NO_PROPERTIES: Final = sections.Properties()
_MAX_INT: Final = (1 << 31) - 1
_MAX_SECONDS: Final = (1 << 32) - 1


def from_message(message: AnnotatedMessage) -> bytes:
    """Translates sections into a payload (see ``router.wire.fast.message``).

    Raises:
        TranslationError: a part of the message cannot be expressed in AMQP/Fast; names the part.
    """
    from_sections = _FromSections(trace_context.in_headers(message))
    head = from_sections.head()
    header = message.header
    redelivered = header is not None and header.delivery_count > 0
    try:
        return b"".join(
            (
                payload_prefix(from_sections.destination, redelivered=redelivered),
                encode_head(head, len(from_sections.body)),
                from_sections.body,
            )
        )
    except (MisuseError, OverflowError) as error:
        raise TranslationError("headers", str(error)) from error


class _FromSections:
    """One translation: collects the head's fields and headers.

    Attributes:
        destination: the address in the annotations, if present.
        body: octets of the body.
    """

    def __init__(self, message: AnnotatedMessage) -> None:
        self._from = message
        self._source = message.properties or _NO_PROPERTIES
        self._made = Head()
        self._headers: dict[str, Any] = {}
        self._exact: dict[str, Any] = {}
        self._annotations: dict[Any, Any] = {}
        self._found: dict[Any, Any] = {}
        self._application_properties: dict[Any, Any] = {}
        self.destination = ""
        self.body = b""

    def head(self) -> Head:
        """Returns the head, and sets destination and body."""
        self._read_annotations()
        self._read_application_properties()
        self._read_body()
        self._place_header()
        self._place_properties()
        self._restore()
        self._place_sections()
        self._made.headers = self._headers
        return self._made

    # --- sections that are maps -------------------------------------------------------------------

    def _read_annotations(self) -> None:
        for key, value in (self._from.message_annotations or {}).items():
            if key in marks.ANNOTATIONS:
                self._found[key] = value
            else:
                self._annotations[key] = value

    def _read_application_properties(self) -> None:
        for key, value in (self._from.application_properties or {}).items():
            if type(key) is not str or key in marks.RESERVED or not fits_short(key):
                self._application_properties[key] = value
                continue
            near, is_exact = from_v1_0(value)
            if near is not None:
                self._headers[key] = near
            if near is None or not is_exact:
                self._application_properties[key] = value

    # --- body -------------------------------------------------------------------------------------

    def _read_body(self) -> None:
        message = self._from
        value = message.value
        if type(value) is str:
            self.body = value.encode()
            is_plain = self._source.content_type is None
            self._headers[marks.BODY] = marks.BODY_PLAIN_STRING if is_plain else marks.BODY_STRING
        elif type(value) is bytes:
            self.body = value
            self._headers[marks.BODY] = marks.BODY_BINARY
        elif value is not NO_VALUE or message.sequences:
            self._headers[marks.BODY] = marks.BODY_SECTIONS
            self.body = sections.encode_message(
                AnnotatedMessage(sequences=message.sequences, value=value)
            )
        else:
            self.body = message.data[0] if len(message.data) == 1 else b"".join(message.data)

    # --- header and properties --------------------------------------------------------------------

    def _place_header(self) -> None:
        header = self._from.header
        if header is None:
            return
        made = self._made
        made.persistent = header.durable
        if header.priority is not None:
            made.priority = header.priority
        if header.ttl_ms is not None:
            # A header holds up to 24 days; longer times are limited to that.
            self._headers[TTL] = min(header.ttl_ms, _MAX_INT)
        if header.delivery_count > 1:
            self._headers[DELIVERY_COUNT] = min(header.delivery_count, _MAX_INT)

    def _place_properties(self) -> None:
        source, made = self._source, self._made
        self._place_id("message_id", source.message_id)
        self._place_id("correlation_id", source.correlation_id)
        made.mime_type = self._short("content_type", source.content_type)
        made.encoding = self._short("content_encoding", source.content_encoding)
        if self._headers.get(marks.BODY) == marks.BODY_PLAIN_STRING:
            made.mime_type = marks.PLAIN_TEXT
        if source.user_id is not None:
            self._headers[marks.USER_ID] = source.user_id
        for field, header in marks.TEXTS.items():
            text = getattr(source, field)
            if text is not None:
                self._headers[header] = text.encode()
        sequence = source.group_sequence
        if sequence is not None:
            if sequence <= _MAX_INT:
                self._headers[marks.GROUP_SEQUENCE] = sequence
            else:
                self._exact["group_sequence"] = sequence
        self._place_times()

    def _short(self, field: str, text: str | None) -> str:
        """Returns a text that fits a short string; else it is kept exactly."""
        if text is None:
            return ""
        if text and fits_short(text):
            return str(text)
        self._exact[field] = text
        return ""

    def _place_id(self, field: str, value: MessageId | None) -> None:
        if value is None:
            return
        if type(value) is not str:
            self._exact[field] = value
        text = _text_of_id(value)
        if field == "message_id":
            if text and fits_short(text):
                self._made.identifier = text
            elif type(value) is str:
                self._exact[field] = value
        elif text is not None:
            self._headers[marks.CORRELATION_ID] = text.encode()

    def _place_times(self) -> None:
        source = self._source
        expires, created = source.absolute_expiry_time, source.creation_time
        if expires is not None:
            seconds = -(-expires // 1000)
            if 0 < seconds <= _MAX_SECONDS:
                self._made.expiration = seconds
            elif seconds <= 0:
                self._made.expiration = 1  # 0 would mean never
            if self._made.expiration * 1000 != expires:
                self._exact["absolute_expiry_time"] = expires
        if created is not None:
            seconds, rest = divmod(created, 1000)
            if 0 <= seconds <= _MAX_SECONDS:
                self._headers[marks.CREATION_TIME] = Seconds(seconds)
            if rest or not 0 <= seconds <= _MAX_SECONDS:
                self._exact["creation_time"] = created

    # --- what only AMQP/Fast has ------------------------------------------------------------------

    def _restore(self) -> None:
        """Restores what ``to_sections`` had put into annotations."""
        found, made = self._found, self._made
        self.destination = _short_in(found.get(marks.DESTINATION))
        made.mime_type = made.mime_type or _short_in(found.get(marks.MIME_TYPE))
        made.encoding = made.encoding or _short_in(found.get(marks.ENCODING))
        other_headers = found.get(marks.HEADERS)
        if isinstance(other_headers, dict | Pairs):
            for name, value in other_headers.items():
                if type(name) is str and fits_short(name) and name not in self._headers:
                    near, _ = from_v1_0(value)
                    if near is not None:
                        self._headers[name] = near

    def _place_sections(self) -> None:
        """Writes exactly the parts that were written approximately, or not at all."""
        exact = AnnotatedMessage(
            message_annotations=self._annotations or None,
            properties=sections.Properties(**self._exact) if self._exact else None,
            application_properties=self._application_properties or None,
            footer=self._from.footer or None,
        )
        try:
            octets = sections.encode_message(exact)
        except MisuseError as error:
            raise TranslationError("sections", error.reason) from error
        if octets:
            self._headers[marks.SECTIONS] = octets


def _text_of_id(value: MessageId) -> str | None:
    if isinstance(value, uuid.UUID):
        return value.urn
    if isinstance(value, Ulong):
        return str(int(value))
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return None
    return value


def _short_in(value: Any) -> str:
    return value if type(value) is str and fits_short(value) else ""
