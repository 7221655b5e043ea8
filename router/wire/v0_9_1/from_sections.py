"""From AMQP 1.0 to 0-9-1: message sections become a content (1.0 §3.2).

Each field of each section is mapped to a property, or else to a header (``marks``). Delivery
annotations are for one hop and are dropped; so is ``first-acquirer``, which concerns the link.
"""

import uuid
from typing import Any, Final

from router.errors import MisuseError, TranslationError
from router.model.text import decode_text, encode_text
from router.wire import trace_context
from router.wire.v0_9_1 import content as contents
from router.wire.v0_9_1 import marks
from router.wire.v0_9_1.content import Properties
from router.wire.v0_9_1.types import Seconds, Table
from router.wire.v0_9_1.values import from_v1_0, name_from_v1_0, table_from_v1_0
from router.wire.v1_0 import sections
from router.wire.v1_0.sections import NO_VALUE, AnnotatedMessage, MessageId
from router.wire.v1_0.types import Uint, Ulong

_NO_PROPERTIES: Final = sections.Properties()


def from_message(message: AnnotatedMessage) -> bytes:
    """Translates sections into a content (see ``router.wire.v0_9_1.content``).

    Exchange and routing key are taken from the message's annotations, if present.

    Raises:
        TranslationError: a part of the message cannot be expressed in 0-9-1; names the part.
    """
    from_sections = _FromSections(trace_context.in_headers(message))
    properties = from_sections.properties()
    exchange, routing_key = from_sections.route
    header = message.header
    redelivered = header is not None and header.delivery_count > 0
    try:
        encoded = contents.encode_properties(properties)
    except MisuseError as error:
        raise TranslationError("properties", error.reason) from error
    return b"".join(
        (
            contents.content_prefix(exchange, routing_key, redelivered=redelivered),
            contents.encode_content_header(len(from_sections.body), encoded),
            from_sections.body,
        )
    )


def _octets(value: Any) -> bytes | None:
    """Returns the octets of a value that may be a string or, if it was no text, a binary."""
    if isinstance(value, str):
        return encode_text(value)
    return value if isinstance(value, bytes) else None


class _FromSections:
    """One translation: collects properties and headers.

    Attributes:
        route: exchange and routing key of the annotations; empty if absent.
        body: octets of the body.
    """

    def __init__(self, message: AnnotatedMessage) -> None:
        self._from = message
        self._source = message.properties or _NO_PROPERTIES
        self._annotations: dict[str, Any] = {}
        self._wrapped: Table = {}
        self._look_alikes: Table = {}
        self._other_headers: Any = {}
        self._headers: Table = {}
        self._app_id: str | None = None
        self.route: tuple[bytes, bytes] = (b"", b"")
        self.body = b""

    def properties(self) -> Properties:
        """Returns the properties with headers, and sets route and body."""
        self._read_annotations()
        self._read_application_properties()
        made = Properties(type=self._read_body())
        self._place_header(made)
        self._place_ids(made)
        self._place_texts(made)
        self._place_times(made)
        self._place_groups()
        self._restore(made)
        if self._from.footer:
            self._headers[marks.FOOTER] = table_from_v1_0(dict(self._from.footer.items()), "footer")
        if self._look_alikes:
            self._headers[marks.APPLICATION_PROPERTIES] = self._look_alikes
        if self._wrapped:
            self._headers[marks.ANNOTATIONS] = self._wrapped
        for key, value in self._other_headers.items():
            name = name_from_v1_0(key, marks.HEADERS)
            self._headers[name] = from_v1_0(value, f"{marks.HEADERS}[{name}]")
        made.headers = self._headers or None
        return made

    # --- sections that are maps -------------------------------------------------------------------

    def _read_annotations(self) -> None:
        section = self._from.message_annotations
        if not section:
            return
        field = "message-annotations"
        for key, value in section.items():
            name = name_from_v1_0(key, field)
            if name in marks.RESERVED_ANNOTATIONS:
                self._annotations[name] = value
            elif marks.needs_wrapping(name):
                self._wrapped[name] = from_v1_0(value, f"{field}[{name}]")
            else:
                self._headers[name] = from_v1_0(value, f"{field}[{name}]")
        other_headers = self._annotations.get(marks.HEADERS)
        if hasattr(other_headers, "items"):
            self._other_headers = other_headers
        self.route = (
            (_octets(self._annotations.get(marks.EXCHANGE)) or b"")[:255],
            (_octets(self._annotations.get(marks.ROUTING_KEY)) or b"")[:255],
        )

    def _read_application_properties(self) -> None:
        section = self._from.application_properties
        if not section:
            return
        field = "application-properties"
        for key, value in section.items():
            name = name_from_v1_0(key, field)
            if name == marks.APP_ID and type(value) is str and marks.fits_shortstr(value):
                self._app_id = value
            elif name == marks.APP_ID or marks.is_look_alike(name):
                self._look_alikes[name] = from_v1_0(value, f"{field}[{name}]", 2)
            else:
                self._headers[name] = from_v1_0(value, f"{field}[{name}]")

    # --- body -------------------------------------------------------------------------------------

    def _read_body(self) -> str | None:
        """Sets the body's octets; returns the content type that they require."""
        message = self._from
        value = message.value
        if type(value) is str:
            self.body = value.encode()
            is_plain = self._source.content_type is None
            self._headers[marks.BODY] = marks.BODY_PLAIN_STRING if is_plain else marks.BODY_STRING
            return None
        if type(value) is bytes:
            self.body = value
            self._headers[marks.BODY] = marks.BODY_BINARY
            return None
        if value is not NO_VALUE or message.sequences:
            self.body = sections.encode_message(
                AnnotatedMessage(sequences=message.sequences, value=value)
            )
            return marks.TYPE_OF_SECTIONS
        self.body = message.data[0] if len(message.data) == 1 else b"".join(message.data)
        return None

    # --- header and properties --------------------------------------------------------------------

    def _place_header(self, made: Properties) -> None:
        header = self._from.header
        if header is None:
            return
        made.delivery_mode = contents.PERSISTENT if header.durable else 1
        made.priority = header.priority
        if header.ttl_ms is not None:
            made.expiration = str(header.ttl_ms)
        if header.delivery_count > 1:
            self._headers[marks.DELIVERY_COUNT] = int(header.delivery_count)

    def _place_ids(self, made: Properties) -> None:
        source = self._source
        made.message_id = self._id(source.message_id, marks.MESSAGE_ID)
        made.correlation_id = self._id(source.correlation_id, marks.CORRELATION_ID)
        if source.user_id is not None:
            if len(source.user_id) <= 255:
                made.user_id = decode_text(source.user_id)
            else:
                self._headers[marks.USER_ID] = source.user_id

    def _id(self, value: MessageId | None, header: str) -> str | None:
        if value is None:
            return None
        if isinstance(value, uuid.UUID):
            return value.urn
        if isinstance(value, bytes):
            self._headers[header] = value
            return None
        if isinstance(value, Ulong):
            self._headers[f"{header}-type"] = "ulong"
            return str(int(value))
        return self._short(value, header)

    def _short(self, text: str | None, header: str) -> str | None:
        """Returns a text that fits a short string; a longer one becomes a header."""
        if text is None or marks.fits_shortstr(text):
            return text
        self._headers[header] = text
        return None

    def _place_texts(self, made: Properties) -> None:
        source = self._source
        if source.to is not None:
            self._headers[marks.TO] = source.to
        made.reply_to = self._short(source.reply_to, marks.REPLY_TO)
        made.content_type = self._short(_plain(source.content_type), marks.CONTENT_TYPE)
        made.content_encoding = self._short(_plain(source.content_encoding), marks.CONTENT_ENCODING)
        if self._headers.get(marks.BODY) == marks.BODY_PLAIN_STRING:
            made.content_type = marks.PLAIN_TEXT
        subject = source.subject
        if subject is None:
            return
        if made.type is None and marks.TYPE not in self._annotations:
            if subject != marks.TYPE_OF_SECTIONS:
                made.type = self._short(subject, marks.SUBJECT)
                return
        self._headers[marks.SUBJECT] = subject

    def _place_times(self, made: Properties) -> None:
        source = self._source
        if source.absolute_expiry_time is not None:
            self._headers[marks.ABSOLUTE_EXPIRY_TIME] = int(source.absolute_expiry_time)
        created = source.creation_time
        if created is None:
            return
        if created >= 0:
            made.timestamp = Seconds(created // 1000)
        if created < 0 or created % 1000:
            self._headers[marks.CREATION_TIME] = int(created)

    def _place_groups(self) -> None:
        source = self._source
        if source.group_id is not None:
            self._headers[marks.GROUP_ID] = source.group_id
        if source.group_sequence is not None:
            self._headers[marks.GROUP_SEQUENCE] = Uint(source.group_sequence)
        if source.reply_to_group_id is not None:
            self._headers[marks.REPLY_TO_GROUP_ID] = source.reply_to_group_id

    # --- what only 0-9-1 has ----------------------------------------------------------------------

    def _restore(self, made: Properties) -> None:
        """Restores what ``to_sections`` had put into annotations."""
        found = self._annotations
        made.app_id = self._app_id
        for name in marks.TEXT_PROPERTIES:
            self._restore_text(made, name, marks.ANNOTATION_OF[name])
        if made.type is None:
            self._restore_text(made, "type", marks.TYPE)
        if made.expiration is None or _ttl_of(found.get(marks.EXPIRATION)) == made.expiration:
            self._restore_text(made, "expiration", marks.EXPIRATION)
        mode = found.get(marks.DELIVERY_MODE, 1)
        if mode is None:
            made.delivery_mode = None
        elif isinstance(mode, int) and mode != 1 and 0 <= mode <= 255:
            made.delivery_mode = int(mode)
        seconds = found.get(marks.TIMESTAMP)
        if made.timestamp is None and isinstance(seconds, int) and 0 <= seconds < 1 << 64:
            made.timestamp = Seconds(seconds)

    def _restore_text(self, made: Properties, name: str, annotation: str) -> None:
        octets = _octets(self._annotations.get(annotation))
        if octets is not None and len(octets) <= 255:
            setattr(made, name, decode_text(octets))


def _plain(symbol: str | None) -> str | None:
    return None if symbol is None else str(symbol)


def _ttl_of(expiration: Any) -> str | None:
    """Reads the ttl of an expiration that is not in the form that we write."""
    octets = _octets(expiration)
    ttl = contents.ttl_of(Properties(expiration=decode_text(octets or b"")))
    return None if ttl is None else str(ttl)
