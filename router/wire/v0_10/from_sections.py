"""From AMQP 1.0 to 0-10: message sections become a content (1.0 §3.2).

Each field of each section is mapped to a property, or else to a header (``marks``). Delivery
annotations are for one hop and are dropped; so is ``first-acquirer``, which concerns the link.
"""

import uuid
from typing import Any, Final

import attrs

from router.errors import DecodeError, MisuseError, TranslationError
from router.model.text import decode_text, encode_text
from router.wire import trace_context
from router.wire.v0_10 import marks, restore
from router.wire.v0_10 import message as messages
from router.wire.v0_10 import records as r
from router.wire.v0_10.types import Seconds, Table, encode_list, encode_map
from router.wire.v0_10.values import from_v1_0, name_from_v1_0, table_from_v1_0
from router.wire.v1_0 import sections
from router.wire.v1_0.sections import NO_VALUE, AnnotatedMessage, MessageId
from router.wire.v1_0.types import Pairs, Ulong

_NO_PROPERTIES: Final = sections.Properties()
_NO_HEADER: Final = sections.Header()


def from_message(message: AnnotatedMessage) -> bytes:
    """Translates sections into a content (see ``router.wire.v0_10.message``).

    Exchange and routing key are taken from the message's annotations, if present.

    Raises:
        TranslationError: a part of the message cannot be expressed in 0-10; names the part.
    """
    from_sections = _FromSections(trace_context.in_headers(message))
    try:
        delivery, described = from_sections.properties()
        header = messages.write_header(delivery, described, from_sections.others)
    except MisuseError as error:
        raise TranslationError("properties", error.reason) from error
    return messages.make_content(b"", header, from_sections.body)


def _octets(value: Any) -> bytes | None:
    """Returns the octets of a value that may be a string or, if it was no text, a binary."""
    if isinstance(value, str):
        return encode_text(value)
    return value if isinstance(value, bytes) else None


class _FromSections:
    """One translation: collects properties and headers.

    Attributes:
        body: octets of the body.
        others: further structs of the header segment.
    """

    def __init__(self, message: AnnotatedMessage) -> None:
        self._from = message
        self._source = message.properties or _NO_PROPERTIES
        self._found: dict[str, Any] = {}
        self._headers: Table = {}
        self._other_headers: Any = {}
        self._app_id: bytes | None = None
        self.body = b""
        self.others = b""

    def properties(self) -> tuple[r.DeliveryProperties | None, r.MessageProperties | None]:
        """Returns both kinds of properties, with the headers, and sets the body."""
        self._read_annotations()
        self._read_application_properties()
        content_type = self._read_body()
        delivery = self._delivery()
        described = self._described(content_type)
        if self._from.footer:
            self._headers[marks.FOOTER] = table_from_v1_0(self._from.footer, "footer")
        for key, value in self._other_headers.items():
            name = name_from_v1_0(key, marks.HEADERS)
            self._headers[name] = from_v1_0(value, f"{marks.HEADERS}[{name}]")
        self.others = _octets(self._found.get("others")) or b""
        try:
            messages.read_header(self.others)
        except DecodeError:
            self.others = b""
        described = attrs.evolve(described, application_headers=self._headers or None)
        return (
            None if delivery == r.DeliveryProperties() else delivery,
            None if described == r.MessageProperties() else described,
        )

    # --- sections that are maps -------------------------------------------------------------------

    def _read_annotations(self) -> None:
        wrapped: dict[Any, Any] = {}
        for key, value in (self._from.message_annotations or {}).items():
            name = name_from_v1_0(key, "message-annotations")
            if key in (marks.EXCHANGE, marks.ROUTING_KEY):
                self._found[name] = value
            elif key == marks.HEADERS and isinstance(value, dict | Pairs):
                self._other_headers = value
            elif key in marks.ANNOTATIONS_KEPT:
                self._found[name.removeprefix(marks.PREFIX)] = value
            elif restore.needs_wrapping(name):
                wrapped[name] = value
            else:
                self._headers[name] = from_v1_0(value, f"message-annotations[{name}]")
        if wrapped:
            self._headers[marks.ANNOTATIONS] = table_from_v1_0(wrapped, "message-annotations")

    def _read_application_properties(self) -> None:
        wrapped: dict[Any, Any] = {}
        for key, value in (self._from.application_properties or {}).items():
            name = name_from_v1_0(key, "application-properties")
            octets = _octets(value) if type(value) in (str, bytes) else None
            if name == marks.APP_ID and octets is not None and len(octets) <= 0xFFFF:
                self._app_id = octets
            elif marks.is_reserved(name):
                wrapped[name] = value
            elif name in self._headers:
                raise TranslationError("application-properties", f"{name!r} is an annotation, too")
            else:
                self._headers[name] = from_v1_0(value, f"application-properties[{name}]")
        if wrapped:
            self._headers[marks.APPLICATION_PROPERTIES] = table_from_v1_0(
                wrapped, "application-properties"
            )

    # --- body -------------------------------------------------------------------------------------

    def _read_body(self) -> str | None:
        """Sets the body's octets; returns its content-type."""
        message = self._from
        value = message.value
        declared = self._source.content_type
        content_type = None if declared is None else str(declared)
        if value is NO_VALUE and not message.sequences:
            data = message.data
            self.body = data[0] if len(data) == 1 else b"".join(data)
        elif type(value) is str:
            self.body = encode_text(value)
            is_plain = content_type is None
            self._headers[marks.BODY] = marks.BODY_PLAIN_STRING if is_plain else marks.BODY_STRING
            return marks.PLAIN_TEXT if is_plain else content_type
        elif type(value) is bytes:
            self.body = value
            self._headers[marks.BODY] = marks.BODY_BINARY
        elif content_type is None and restore.is_simple(value):
            plain = from_v1_0(value, "amqp-value")
            is_map = type(value) is dict
            self.body = encode_map(plain) if is_map else encode_list(plain)
            return marks.MAP_TYPE if is_map else marks.LIST_TYPE
        else:
            self.body = sections.encode_message(
                AnnotatedMessage(sequences=message.sequences, value=value)
            )
            self._headers[marks.BODY] = marks.BODY_SECTIONS
        return content_type

    # --- delivery-properties ----------------------------------------------------------------------

    def _delivery(self) -> r.DeliveryProperties:
        header, found = self._from.header, self._found
        source = header or _NO_HEADER
        count = int(source.delivery_count)
        if count > 1:
            self._headers[marks.DELIVERY_COUNT] = count
        mode: int | None = None
        if header is not None:
            mode = messages.PERSISTENT if source.durable else messages.NON_PERSISTENT
            if not source.durable and "delivery-mode" in found:
                mode = _small(found["delivery-mode"])
        priority = source.priority
        if priority is not None and priority > messages.MAX_PRIORITY:
            if _small(found.get("priority")) != priority:
                self._headers[marks.PRIORITY] = int(priority)
                priority = messages.MAX_PRIORITY
        ttl = source.ttl_ms
        exact = found.get("ttl")
        if ttl == 0xFFFF_FFFF and type(exact) is Ulong:
            ttl = int(exact)
        return r.DeliveryProperties(
            redelivered=count > 0,
            priority=priority,
            delivery_mode=mode,
            ttl=ttl,
            timestamp=self._time("timestamp", self._source.creation_time, marks.CREATION_TIME),
            expiration=self._time(
                "expiration", self._source.absolute_expiry_time, marks.ABSOLUTE_EXPIRY_TIME
            ),
            exchange=self._route(marks.EXCHANGE),
            routing_key=self._route(marks.ROUTING_KEY),
        )

    def _route(self, name: str) -> str | None:
        octets = _octets(self._found.get(name))
        return decode_text(octets) if octets and len(octets) <= 255 else None

    def _time(self, name: str, milliseconds: int | None, mark: str) -> Seconds | None:
        exact = self._found.get(name)
        if type(exact) is Ulong and restore.milliseconds_of(int(exact)) == milliseconds:
            return Seconds(exact)
        if milliseconds is None:
            return None
        made = restore.datetime_of(milliseconds)
        if restore.is_inexact(milliseconds):
            self._headers[mark] = int(milliseconds)
        return made

    # --- message-properties -----------------------------------------------------------------------

    def _described(self, content_type: str | None) -> r.MessageProperties:
        source = self._source
        encoding = None if source.content_encoding is None else str(source.content_encoding)
        self._place_texts()
        user_id = source.user_id
        if user_id is not None and len(user_id) > 0xFFFF:
            self._headers[marks.USER_ID] = user_id
            user_id = None
        return r.MessageProperties(
            content_length=len(self.body) or None,
            message_id=self._message_id(source.message_id),
            correlation_id=self._correlation_id(source.correlation_id),
            reply_to=self._reply_to(source.reply_to),
            content_type=self._short(content_type, marks.CONTENT_TYPE, "content-type"),
            content_encoding=self._short(encoding, marks.CONTENT_ENCODING, "content-encoding"),
            user_id=user_id,
            app_id=self._app_id,
        )

    def _place_texts(self) -> None:
        source = self._source
        for mark, value in (
            (marks.TO, source.to),
            (marks.SUBJECT, source.subject),
            (marks.GROUP_ID, source.group_id),
            (marks.REPLY_TO_GROUP_ID, source.reply_to_group_id),
        ):
            if value is not None:
                self._headers[mark] = str(value)
        if source.group_sequence is not None:
            self._headers[marks.GROUP_SEQUENCE] = int(source.group_sequence)

    def _message_id(self, value: MessageId | None) -> uuid.UUID | None:
        if value is None or isinstance(value, uuid.UUID):
            return value
        self._headers[marks.MESSAGE_ID] = value
        return None

    def _correlation_id(self, value: MessageId | None) -> bytes | None:
        if value is None:
            return None
        octets = restore.correlation_octets(value)
        if octets is None or restore.text_or_octets(octets) != value:
            self._headers[marks.CORRELATION_ID] = value
        return octets

    def _reply_to(self, address: str | None) -> r.ReplyTo | None:
        exact = self._found.get("reply-to")
        if address is not None and isinstance(exact, dict):
            octets_of = {name: _octets(exact.get(name)) for name in ("exchange", "routing-key")}
            if all(len(octets or b"") <= 255 for octets in octets_of.values()):
                texts = [None if each is None else decode_text(each) for each in octets_of.values()]
                return r.ReplyTo(*texts)
        if address is None:
            return None
        made = restore.reply_to_of(address)
        if made is None:
            self._headers[marks.REPLY_TO] = address
        return made

    def _short(self, text: str | None, mark: str, name: str) -> str | None:
        """Returns a text that fits a short string; a longer one becomes a header."""
        if text is None:
            octets = _octets(self._found.get(name))
            return decode_text(octets) if octets is not None and len(octets) <= 255 else None
        if len(encode_text(text)) <= 255:
            return text
        self._headers[mark] = text
        return None


def _small(value: Any) -> int | None:
    """Reads an 8-bit number."""
    return int(value) if isinstance(value, int) and 0 <= value <= 255 else None
