"""The table of all methods, and the codec that uses it (0-9-1 §4.2.4).

A method on the wire, inside a method frame::

    class(2) method(2) fields

Fields follow each other without tags; neighboring bits share an octet, the first one in its
lowest bit (§4.2.5.1). ``SPECS`` gives each record of ``router.wire.v0_9_1.methods`` its numbers
and says who may send it; the records' annotations give the fields.

A client's short string is a name, which must be UTF-8; a broker's is carried unchecked, so that no
message of its makes us close the connection; a text for people is decoded as words in both
directions (``router.model.text``).

0-9 is served as 0-9-1 (the methods in use are the same octets); 0-8 differs in a few methods,
which ``CODEC_0_8`` knows.
"""

import enum
import struct
import typing
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import attrs

from router.errors import DecodeError, MisuseError
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.types import (
    TABLES,
    TableFormat,
    decode_longstr,
    decode_short_name,
    decode_short_words,
    decode_shortstr,
    encode_longstr,
    encode_shortstr,
)


class Sender(enum.Flag):
    """Which side may send a method."""

    CLIENT = 1
    SERVER = 2
    EITHER = 3


@attrs.frozen
class Spec:
    """A method's row.

    Attributes:
        class_id, method_id: its numbers.
        record: its Python form, whose fields are those on the wire.
        sender: who may send it.
        has_content: a content header and body follow it.
        omitted: fields that this version of the protocol lacks.
    """

    class_id: int
    method_id: int
    record: Any
    sender: Sender
    has_content: bool = False
    omitted: tuple[str, ...] = ()


_C, _S, _E = Sender.CLIENT, Sender.SERVER, Sender.EITHER

SPECS: Final = (
    Spec(10, 10, m.ConnectionStart, _S),
    Spec(10, 11, m.ConnectionStartOk, _C),
    Spec(10, 20, m.ConnectionSecure, _S),
    Spec(10, 21, m.ConnectionSecureOk, _C),
    Spec(10, 30, m.ConnectionTune, _S),
    Spec(10, 31, m.ConnectionTuneOk, _C),
    Spec(10, 40, m.ConnectionOpen, _C),
    Spec(10, 41, m.ConnectionOpenOk, _S),
    Spec(10, 42, m.ConnectionRedirect, _S),
    Spec(10, 50, m.ConnectionClose, _E),
    Spec(10, 51, m.ConnectionCloseOk, _E),
    Spec(10, 60, m.ConnectionBlocked, _S),
    Spec(10, 61, m.ConnectionUnblocked, _S),
    Spec(10, 70, m.ConnectionUpdateSecret, _C),
    Spec(10, 71, m.ConnectionUpdateSecretOk, _S),
    Spec(20, 10, m.ChannelOpen, _C),
    Spec(20, 11, m.ChannelOpenOk, _S),
    Spec(20, 20, m.ChannelFlow, _E),
    Spec(20, 21, m.ChannelFlowOk, _E),
    Spec(20, 40, m.ChannelClose, _E),
    Spec(20, 41, m.ChannelCloseOk, _E),
    Spec(30, 10, m.AccessRequest, _C),
    Spec(30, 11, m.AccessRequestOk, _S),
    Spec(40, 10, m.ExchangeDeclare, _C),
    Spec(40, 11, m.ExchangeDeclareOk, _S),
    Spec(40, 20, m.ExchangeDelete, _C),
    Spec(40, 21, m.ExchangeDeleteOk, _S),
    Spec(40, 30, m.ExchangeBind, _C),
    Spec(40, 31, m.ExchangeBindOk, _S),
    Spec(40, 40, m.ExchangeUnbind, _C),
    Spec(40, 51, m.ExchangeUnbindOk, _S),
    Spec(50, 10, m.QueueDeclare, _C),
    Spec(50, 11, m.QueueDeclareOk, _S),
    Spec(50, 20, m.QueueBind, _C),
    Spec(50, 21, m.QueueBindOk, _S),
    Spec(50, 50, m.QueueUnbind, _C),
    Spec(50, 51, m.QueueUnbindOk, _S),
    Spec(50, 30, m.QueuePurge, _C),
    Spec(50, 31, m.QueuePurgeOk, _S),
    Spec(50, 40, m.QueueDelete, _C),
    Spec(50, 41, m.QueueDeleteOk, _S),
    Spec(60, 10, m.BasicQos, _C),
    Spec(60, 11, m.BasicQosOk, _S),
    Spec(60, 20, m.BasicConsume, _C),
    Spec(60, 21, m.BasicConsumeOk, _S),
    Spec(60, 30, m.BasicCancel, _E),
    Spec(60, 31, m.BasicCancelOk, _E),
    Spec(60, 40, m.BasicPublish, _C, has_content=True),
    Spec(60, 50, m.BasicReturn, _S, has_content=True),
    Spec(60, 60, m.BasicDeliver, _S, has_content=True),
    Spec(60, 70, m.BasicGet, _C),
    Spec(60, 71, m.BasicGetOk, _S, has_content=True),
    Spec(60, 72, m.BasicGetEmpty, _S),
    Spec(60, 80, m.BasicAck, _E),
    Spec(60, 90, m.BasicReject, _C),
    Spec(60, 100, m.BasicRecoverAsync, _C),
    Spec(60, 110, m.BasicRecover, _C),
    Spec(60, 111, m.BasicRecoverOk, _S),
    Spec(60, 120, m.BasicNack, _E),
    Spec(85, 10, m.ConfirmSelect, _C),
    Spec(85, 11, m.ConfirmSelectOk, _S),
    Spec(90, 10, m.TxSelect, _C),
    Spec(90, 11, m.TxSelectOk, _S),
    Spec(90, 20, m.TxCommit, _C),
    Spec(90, 21, m.TxCommitOk, _S),
    Spec(90, 30, m.TxRollback, _C),
    Spec(90, 31, m.TxRollbackOk, _S),
)
"""Every method of 0-9-1 and of RabbitMQ's extensions, and others that 0-9 and 0-8 clients send."""

_CHANGED_IN_0_8: Final = (
    Spec(10, 50, m.ConnectionRedirect, _S),
    Spec(10, 60, m.ConnectionClose, _E),
    Spec(10, 61, m.ConnectionCloseOk, _E),
    Spec(20, 11, m.ChannelOpenOk, _S, omitted=("reserved_1",)),
    Spec(60, 20, m.BasicConsume, _C, omitted=("arguments",)),
)
"""Rows that replace those of the same record or the same numbers in 0-8."""


# --- codec ----------------------------------------------------------------------------------------

_FIXED: Final = {"octet": "B", "short": "H", "long": "I", "longlong": "Q"}
_INDEX = struct.Struct(">HH")

_Reader: TypeAlias = Callable[[bytes, int, int], tuple[Any, int]]


def _fixed_reader(kind: str) -> _Reader:
    reader = struct.Struct(">" + _FIXED[kind])
    unpack, width = reader.unpack_from, reader.size

    def read(octets: bytes, at: int, end: int) -> tuple[Any, int]:
        after = at + width
        if after > end:
            raise DecodeError(at, "the field ends beyond its frame")
        return unpack(octets, at)[0], after

    return read


_READERS: Final[dict[str, _Reader]] = {
    **{kind: _fixed_reader(kind) for kind in _FIXED},
    "shortstr": decode_shortstr,
    "words": decode_short_words,
    "longstr": decode_longstr,
}

_WRITERS: Final[dict[str, Callable[[Any], bytes]]] = {
    **{kind: struct.Struct(">" + code).pack for kind, code in _FIXED.items()},
    "shortstr": encode_shortstr,
    "words": encode_shortstr,
    "longstr": encode_longstr,
}


@attrs.frozen
class _Row:
    """A method, prepared for the codec.

    Attributes:
        spec: its row in the table.
        groups: (wire type, names): one name, or up to eight neighboring bits.
    """

    spec: Spec
    groups: tuple[tuple[str, tuple[str, ...]], ...]


def _row(spec: Spec) -> _Row:
    hints = typing.get_type_hints(spec.record, include_extras=True)
    groups: list[tuple[str, tuple[str, ...]]] = []
    for attribute in attrs.fields(spec.record):
        if attribute.name in spec.omitted:
            continue
        kind = hints[attribute.name].__metadata__[0]
        if kind == "bit" and groups and groups[-1][0] == "bit" and len(groups[-1][1]) < 8:
            groups[-1] = ("bit", (*groups[-1][1], attribute.name))
        else:
            groups.append((kind, (attribute.name,)))
    return _Row(spec, tuple(groups))


class MethodCodec:
    """Encodes and decodes methods of one version of the protocol.

    Attributes:
        has_booleans: its field tables have booleans, so extensions can be announced in them.
    """

    def __init__(
        self, specs: tuple[Spec, ...], tables: TableFormat = TABLES, *, has_booleans: bool = True
    ) -> None:
        self.has_booleans = has_booleans
        self._readers = {**_READERS, "table": tables.decode}
        self._client_readers = {**self._readers, "shortstr": decode_short_name}
        self._writers = {**_WRITERS, "table": tables.encode}
        rows = [_row(spec) for spec in specs]
        self._by_index = {(row.spec.class_id, row.spec.method_id): row for row in rows}
        self._by_record = {row.spec.record: row for row in rows}

    def spec_of(self, record: type) -> Spec:
        """Finds a record's row."""
        return self._by_record[record].spec

    def spec_at(self, class_id: int, method_id: int) -> Spec | None:
        """Finds the row of a class and method number."""
        row = self._by_index.get((class_id, method_id))
        return row.spec if row else None

    def decode(
        self, octets: bytes, at: int, end: int, *, from_client: bool = False
    ) -> m.Method | None:
        """Decodes the payload of a method frame; None if no method has its numbers.

        Args:
            octets: the buffer that holds the payload.
            at: the offset where it begins.
            end: the offset where it ends.
            from_client: a client sent it, so its short strings are names.

        Raises:
            DecodeError: names the invalid field.
        """
        if at + 4 > end:
            raise DecodeError(at, "the frame is too short for class and method")
        index: tuple[int, int] = _INDEX.unpack_from(octets, at)
        row = self._by_index.get(index)
        if row is None:
            return None
        at += 4
        values: dict[str, Any] = {}
        readers = self._client_readers if from_client else self._readers
        for kind, names in row.groups:
            try:
                if kind == "bit":
                    if at >= end:
                        raise DecodeError(at, "the field ends beyond its frame")
                    bits = octets[at]
                    at += 1
                    for place, name in enumerate(names):
                        values[name] = bool(bits >> place & 1)
                else:
                    values[names[0]], at = readers[kind](octets, at, end)
            except DecodeError as error:
                raise DecodeError(
                    error.offset, f"{row.spec.record.__name__}.{names[0]}: {error.rule}"
                ) from None
        if at != end:
            raise DecodeError(at, f"octets follow the last field of {row.spec.record.__name__}")
        method: m.Method = row.spec.record(**values)
        return method

    def encode(self, method: m.Method) -> bytes:
        """Encodes a method as the payload of its frame.

        Raises:
            MisuseError: a field does not fit its type.
        """
        row = self._by_record[type(method)]
        parts = [_INDEX.pack(row.spec.class_id, row.spec.method_id)]
        for kind, names in row.groups:
            if kind == "bit":
                bits = sum(getattr(method, name) << place for place, name in enumerate(names))
                parts.append(bytes((bits,)))
                continue
            try:
                parts.append(self._writers[kind](getattr(method, names[0])))
            except struct.error as error:
                raise MisuseError(f"{type(method).__name__}.{names[0]}: {error}") from error
        return b"".join(parts)


CODEC: Final = MethodCodec(SPECS)
"""0-9-1, with RabbitMQ's extensions; also serves 0-9."""

_NUMBERS_OF_0_8 = {(spec.class_id, spec.method_id) for spec in _CHANGED_IN_0_8}
_RECORDS_OF_0_8 = {spec.record for spec in _CHANGED_IN_0_8}

CODEC_0_8: Final = MethodCodec(
    (
        *(
            spec
            for spec in SPECS
            if spec.record not in _RECORDS_OF_0_8
            and (spec.class_id, spec.method_id) not in _NUMBERS_OF_0_8
        ),
        *_CHANGED_IN_0_8,
    ),
    has_booleans=False,
)
"""0-8: connection.close has other numbers, two methods lack a field."""
