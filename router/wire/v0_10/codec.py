"""The table of all controls, commands and structs, and the codec that uses it (0-10).

A control's segment, a command's and a struct::

    control  class(1) code(1) packing-flags(2) fields
    command  class(1) code(1) session-header(2) packing-flags(2) fields
    struct   size(4) class(1) code(1) packing-flags(2) fields       those of a header segment

Packing flags tell which fields are present: the first field by the lowest bit of the first octet. A
``bit`` has no octets besides. The session header is a struct of size 1 with one octet of flags:
``01 01`` if the sender requests completion at once (sync), else ``01 00``.

A string in a client's control or command is a name, which must be UTF-8; one of a broker's, or in a
struct of a message's header, is carried unchecked; a text for people is decoded as words in both
directions (``router.model.text``).
"""

import enum
import struct
import typing
import uuid
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import attrs

from router.errors import DecodeError, MisuseError
from router.model.condition import INVALID_FIELD
from router.model.text import decode_name, decode_text, words
from router.wire.v0_10 import optional as o
from router.wire.v0_10 import records as r
from router.wire.v0_10.ranges import decode_ranges, encode_ranges
from router.wire.v0_10.types import (
    STR16,
    Seconds,
    decode_array,
    decode_map,
    encode_array,
    encode_map,
    encode_str8,
    encode_str16,
    sized,
    with_size,
)


class Sender(enum.Flag):
    """Which side may send a control or command."""

    CLIENT = 1
    SERVER = 2
    EITHER = 3


@attrs.frozen
class Spec:
    """A row of the table.

    Attributes:
        class_code, code: its numbers; (0, 0): a struct that occurs only inside others.
        record: its Python form, whose fields are those on the wire.
        sender: who may send it.
        has_content: header and body segments may follow it.
        required: fields that a client has to send, without those that Qpid's programs omit.
    """

    class_code: int
    code: int
    record: Any
    sender: Sender = Sender.EITHER
    has_content: bool = False
    required: tuple[str, ...] = ()


_C, _S, _E = Sender.CLIENT, Sender.SERVER, Sender.EITHER

CONTROLS: Final = (
    Spec(1, 0x1, r.ConnectionStart, _S),
    Spec(1, 0x2, r.ConnectionStartOk, _C, required=("mechanism",)),
    Spec(1, 0x3, r.ConnectionSecure, _S),
    Spec(1, 0x4, r.ConnectionSecureOk, _C),
    Spec(1, 0x5, r.ConnectionTune, _S),
    Spec(1, 0x6, r.ConnectionTuneOk, _C),
    Spec(1, 0x7, r.ConnectionOpen, _C),
    Spec(1, 0x8, r.ConnectionOpenOk, _S),
    Spec(1, 0x9, r.ConnectionRedirect, _S),
    Spec(1, 0xA, r.ConnectionHeartbeat, _E),
    Spec(1, 0xB, r.ConnectionClose, _E),
    Spec(1, 0xC, r.ConnectionCloseOk, _E),
    Spec(2, 0x1, r.SessionAttach, _E, required=("name",)),
    Spec(2, 0x2, r.SessionAttached, _E),
    Spec(2, 0x3, r.SessionDetach, _E, required=("name",)),
    Spec(2, 0x4, r.SessionDetached, _E),
    Spec(2, 0x5, r.SessionRequestTimeout, _E),
    Spec(2, 0x6, r.SessionTimeout, _E),
    Spec(2, 0x7, r.SessionCommandPoint, _E, required=("command_id", "command_offset")),
    Spec(2, 0x8, r.SessionExpected, _E),
    Spec(2, 0x9, r.SessionConfirmed, _E),
    Spec(2, 0xA, r.SessionCompleted, _E),
    Spec(2, 0xB, r.SessionKnownCompleted, _E),
    Spec(2, 0xC, r.SessionFlush, _E),
    Spec(2, 0xD, r.SessionGap, _E),
)

COMMANDS: Final = (
    Spec(3, 0x1, r.ExecutionSync, _E),
    Spec(3, 0x2, r.ExecutionResult, _E),
    Spec(3, 0x3, r.ExecutionException, _E),
    Spec(4, 0x1, r.MessageTransfer, _E, has_content=True),
    Spec(4, 0x2, r.MessageAccept, _E, required=("transfers",)),
    Spec(4, 0x3, r.MessageReject, _E, required=("transfers",)),
    Spec(4, 0x4, r.MessageRelease, _E, required=("transfers",)),
    Spec(4, 0x5, r.MessageAcquire, _C, required=("transfers",)),
    Spec(4, 0x6, r.MessageResume, _E, required=("resume_id",)),
    Spec(4, 0x7, r.MessageSubscribe, _C, required=("queue",)),
    Spec(4, 0x8, r.MessageCancel, _C, required=("destination",)),
    Spec(4, 0x9, r.MessageSetFlowMode, _E, required=("flow_mode",)),
    Spec(4, 0xA, r.MessageFlow, _E, required=("unit",)),
    Spec(4, 0xB, r.MessageFlush, _C),
    Spec(4, 0xC, r.MessageStop, _E),
    Spec(5, 0x1, r.TxSelect, _C),
    Spec(5, 0x2, r.TxCommit, _C),
    Spec(5, 0x3, r.TxRollback, _C),
    Spec(7, 0x1, r.ExchangeDeclare, _C),
    Spec(7, 0x2, r.ExchangeDelete, _C),
    Spec(7, 0x3, r.ExchangeQuery, _C),
    Spec(7, 0x4, r.ExchangeBind, _C),
    Spec(7, 0x5, r.ExchangeUnbind, _C),
    Spec(7, 0x6, r.ExchangeBound, _C),
    Spec(8, 0x1, r.QueueDeclare, _C),
    Spec(8, 0x2, r.QueueDelete, _C),
    Spec(8, 0x3, r.QueuePurge, _C),
    Spec(8, 0x4, r.QueueQuery, _C),
    Spec(9, 0x1, o.FileQos, _C),
    Spec(9, 0x2, o.FileQosOk, _S),
    Spec(9, 0x3, o.FileConsume, _C),
    Spec(9, 0x4, o.FileConsumeOk, _S),
    Spec(9, 0x5, o.FileCancel, _C),
    Spec(9, 0x6, o.FileOpen, _E),
    Spec(9, 0x7, o.FileOpenOk, _E),
    Spec(9, 0x8, o.FileStage, _E, has_content=True),
    Spec(9, 0x9, o.FilePublish, _C),
    Spec(9, 0xA, o.FileReturn, _S, has_content=True),
    Spec(9, 0xB, o.FileDeliver, _S),
    Spec(9, 0xC, o.FileAck, _C),
    Spec(9, 0xD, o.FileReject, _C),
    Spec(10, 0x1, o.StreamQos, _C),
    Spec(10, 0x2, o.StreamQosOk, _S),
    Spec(10, 0x3, o.StreamConsume, _C),
    Spec(10, 0x4, o.StreamConsumeOk, _S),
    Spec(10, 0x5, o.StreamCancel, _C),
    Spec(10, 0x6, o.StreamPublish, _C, has_content=True),
    Spec(10, 0x7, o.StreamReturn, _S, has_content=True),
    Spec(10, 0x8, o.StreamDeliver, _S, has_content=True),
)

STRUCTS: Final = (
    Spec(0, 0, r.ReplyTo),
    Spec(4, 0x1, r.DeliveryProperties),
    Spec(4, 0x2, r.FragmentProperties),
    Spec(4, 0x3, r.MessageProperties),
    Spec(4, 0x4, r.Acquired),
    Spec(4, 0x5, r.MessageResumeResult),
    Spec(7, 0x1, r.ExchangeQueryResult),
    Spec(7, 0x2, r.ExchangeBoundResult),
    Spec(8, 0x1, r.QueueQueryResult),
    Spec(9, 0x1, o.FileProperties),
    Spec(10, 0x1, o.StreamProperties),
)

UNSERVED: Final = {6: "dtx"}
"""Classes whose commands a router cannot carry out."""


# --- fields ---------------------------------------------------------------------------------------

_Reader: TypeAlias = Callable[[bytes, int, int], tuple[Any, int]]


def _number(form: str, make: Callable[[int], Any] = int) -> _Reader:
    unpacker = struct.Struct(">" + form)
    unpack, width = unpacker.unpack_from, unpacker.size

    def read(octets: bytes, at: int, end: int) -> tuple[Any, int]:
        if at + width > end:
            raise DecodeError(at, "the field ends beyond its octets")
        return make(unpack(octets, at)[0]), at + width

    return read


def _sized(width: int) -> _Reader:
    def read(octets: bytes, at: int, end: int) -> tuple[Any, int]:
        start, after = sized(octets, at, end, width)
        return octets[start:after], after

    return read


def _string(width: int, make: Callable[[str], str] | None = None) -> _Reader:
    """Returns the reader of carried strings, or of something made of them."""

    def read(octets: bytes, at: int, end: int) -> tuple[Any, int]:
        start, after = sized(octets, at, end, width)
        text = decode_text(octets[start:after])
        return (text if make is None else make(text)), after

    return read


def _name(width: int) -> _Reader:
    def read(octets: bytes, at: int, end: int) -> tuple[Any, int]:
        start, after = sized(octets, at, end, width)
        try:
            return decode_name(octets[start:after], start), after
        except DecodeError as error:
            raise DecodeError(error.offset, error.rule, INVALID_FIELD) from None

    return read


def _read_uuid(octets: bytes, at: int, end: int) -> tuple[Any, int]:
    if at + 16 > end:
        raise DecodeError(at, "the field ends beyond its octets")
    return uuid.UUID(bytes=octets[at : at + 16]), at + 16


def _read_reply_to(octets: bytes, at: int, end: int) -> tuple[Any, int]:
    start, after = sized(octets, at, end, 2)
    return _ROW_OF[r.ReplyTo].decode(octets, start, after), after


_READERS: Final[dict[str, _Reader]] = {
    "uint8": _number("B"),
    "uint16": _number("H"),
    "uint32": _number("I"),
    "uint64": _number("Q"),
    "datetime": _number("Q", Seconds),
    "str8": _string(1),
    "str16": _string(2),
    "words8": _string(1, words),
    "words16": _string(2, words),
    "vbin16": _sized(2),
    "vbin32": _sized(4),
    "map": decode_map,
    "array": decode_array,
    "commands": decode_ranges,
    "uuid": _read_uuid,
    "reply-to": _read_reply_to,
}

_CLIENT_READERS: Final = {**_READERS, "str8": _name(1), "str16": _name(2)}
"""Readers of the fields of a client's controls and commands."""

_WRITERS: Final[dict[str, Callable[[Any], bytes]]] = {
    "uint8": struct.Struct(">B").pack,
    "uint16": struct.Struct(">H").pack,
    "uint32": struct.Struct(">I").pack,
    "uint64": struct.Struct(">Q").pack,
    "datetime": struct.Struct(">Q").pack,
    "str8": encode_str8,
    "str16": encode_str16,
    "words8": encode_str8,
    "words16": encode_str16,
    "vbin16": lambda octets: with_size(octets, 2),
    "vbin32": lambda octets: with_size(octets, 4),
    "map": encode_map,
    "array": lambda items: encode_array(STR16, [encode_str16(item) for item in items]),
    "commands": encode_ranges,
    "uuid": lambda value: value.bytes,
    "reply-to": lambda value: with_size(_ROW_OF[r.ReplyTo].encode(value), 2),
}


class Row:
    """A row of the table, prepared for the codec.

    Attributes:
        spec: the row.
        head: its class and code, encoded.
    """

    __slots__ = ("_fields", "_known", "_names", "_required", "head", "spec")

    def __init__(self, spec: Spec) -> None:
        self.spec = spec
        self.head = bytes((spec.class_code, spec.code))
        hints = typing.get_type_hints(spec.record, include_extras=True)
        names = [attribute.name for attribute in attrs.fields(spec.record)]
        self._fields = [
            (1 << at, name, hints[name].__metadata__[0]) for at, name in enumerate(names)
        ]
        self._names = names
        self._known = (1 << len(names)) - 1
        self._required = sum(1 << names.index(each) for each in spec.required)

    def decode(self, octets: bytes, at: int, end: int, *, from_client: bool = False) -> Any:
        """Decodes packing flags and fields.

        Args:
            octets: what holds them.
            at: where they begin.
            end: where they end.
            from_client: a client sent them, so strings are names.

        Raises:
            DecodeError: names the invalid field.
        """
        if at + 2 > end:
            raise DecodeError(at, f"{self.spec.record.__name__}: too short for packing flags")
        flags = octets[at] | octets[at + 1] << 8
        if flags & ~self._known:
            raise DecodeError(at, f"{self.spec.record.__name__}: flags of fields it does not have")
        if from_client and self._required & ~flags:
            raise self._lacks(at, flags)
        at += 2
        values: dict[str, Any] = {}
        readers = _CLIENT_READERS if from_client else _READERS
        for bit, name, kind in self._fields:
            if kind == "bit":
                values[name] = bool(flags & bit)
            elif flags & bit:
                try:
                    values[name], at = readers[kind](octets, at, end)
                except DecodeError as error:
                    rule = f"{self.spec.record.__name__}.{name}: {error.rule}"
                    raise DecodeError(error.offset, rule, error.condition) from None
        if at != end:
            name = self.spec.record.__name__
            raise DecodeError(at, f"octets follow the last field of {name}")
        return self.spec.record(**values)

    def _lacks(self, at: int, flags: int) -> DecodeError:
        """Returns the error for a missing required field."""
        spec = self.spec
        lacking = [each for each in spec.required if not flags >> self._names.index(each) & 1]
        rule = f"{spec.record.__name__}.{lacking[0]}: a required field is left out"
        return DecodeError(at, rule, INVALID_FIELD)

    def encode(self, record: Any) -> bytes:
        """Encodes packing flags and fields.

        Raises:
            MisuseError: a field does not fit its type.
        """
        flags = 0
        parts = [b""]
        for bit, name, kind in self._fields:
            value = getattr(record, name)
            if kind == "bit":
                flags |= bit if value else 0
            elif value is not None:
                flags |= bit
                try:
                    parts.append(_WRITERS[kind](value))
                except (struct.error, MisuseError) as error:
                    raise MisuseError(f"{type(record).__name__}.{name}: {error}") from error
        parts[0] = bytes((flags & 0xFF, flags >> 8))
        return b"".join(parts)


_ROW_OF: Final[dict[type, Row]] = {
    spec.record: Row(spec) for spec in (*CONTROLS, *COMMANDS, *STRUCTS)
}
_CONTROL_AT: Final = {(each.class_code, each.code): _ROW_OF[each.record] for each in CONTROLS}
_COMMAND_AT: Final = {(each.class_code, each.code): _ROW_OF[each.record] for each in COMMANDS}
_STRUCT_AT: Final = {(each.class_code, each.code): _ROW_OF[each.record] for each in STRUCTS}

_NO_SYNC: Final = b"\x01\x00"
_SYNC: Final = b"\x01\x01"


def spec_of(record: type) -> Spec:
    """Finds a record's row of the table."""
    return _ROW_OF[record].spec


def _codes(octets: bytes, what: str) -> tuple[int, int]:
    if len(octets) < 2:
        raise DecodeError(0, f"the {what} is too short for class and code")
    return octets[0], octets[1]


def decode_control(octets: bytes, *, from_client: bool = False) -> tuple[Spec, Any] | None:
    """Reads a control's segment; None if no control has its numbers.

    Args:
        octets: the segment.
        from_client: a client sent it, so strings are names.

    Raises:
        DecodeError: it is invalid.
    """
    row = _CONTROL_AT.get(_codes(octets, "control"))
    if row is None:
        return None
    return row.spec, row.decode(octets, 2, len(octets), from_client=from_client)


@attrs.frozen
class CommandHead:
    """The head of a command, before its own fields.

    Attributes:
        class_code, code: its numbers.
        sync: the sender requests completion at once.
        row: its row; None if it is not supported.
        fields_at: offset of its packing flags.
    """

    class_code: int
    code: int
    sync: bool
    row: Row | None
    fields_at: int


def decode_command_head(octets: bytes) -> CommandHead:
    """Reads class, code and session header.

    Raises:
        DecodeError: the segment is too short for them.
    """
    codes = _codes(octets, "command")
    if len(octets) < 3 or len(octets) < 3 + octets[2] or not octets[2]:
        raise DecodeError(2, "the command is too short for its session header")
    return CommandHead(*codes, bool(octets[3] & 1), _COMMAND_AT.get(codes), 3 + octets[2])


def encode_control(control: r.Control) -> bytes:
    """Writes a control's segment, or raises ``MisuseError``."""
    row = _ROW_OF[type(control)]
    return row.head + row.encode(control)


def encode_command(command: r.Command | o.OptionalCommand, *, sync: bool = False) -> bytes:
    """Writes a command's segment, or raises ``MisuseError``."""
    row = _ROW_OF[type(command)]
    return b"".join((row.head, _SYNC if sync else _NO_SYNC, row.encode(command)))


def decode_struct(octets: bytes, at: int, end: int) -> Any:
    """Decodes a struct after its size; None if the table lacks it.

    Raises:
        DecodeError: it is invalid.
    """
    if at + 2 > end:
        raise DecodeError(at, "the struct is too short for class and code")
    row = _STRUCT_AT.get((octets[at], octets[at + 1]))
    return None if row is None else row.decode(octets, at + 2, end)


def encode_struct(record: r.Struct | o.FileProperties | o.StreamProperties) -> bytes:
    """Writes a struct without its size, or raises ``MisuseError``."""
    row = _ROW_OF[type(record)]
    return row.head + row.encode(record)
