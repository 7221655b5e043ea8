"""The table of all 28 commands (RFC 006 §3.1.1), and the codec that uses it.

A command on the wire, inside its frame::

    number(1) fields 0xCE

Fields follow each other without tags. ``COMMANDS`` gives each record its number, the sides that may
send it, and its fields by letters: ``o`` octet, ``h`` short integer, ``l`` long integer, ``b`` bit,
``s`` short string, ``c`` one that is carried, ``w`` one for people, ``x`` long string, ``t`` field
table. Neighboring bits share an octet, the first one in its lowest bit; the specification says only
that they are packed, so the order is *inferred* (0.8's documents have it so).

HANDLE BROWSE has a confirm-tag in the text (§3.5.9) but not in the grammar; it has one here.
"""

import enum
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import attrs

from router.errors import DecodeError
from router.wire.fast.types import (
    Table,
    decode_carried,
    decode_long,
    decode_short,
    decode_table,
    decode_words,
    encode_carried,
    encode_long,
    encode_short,
    encode_table,
)


@attrs.frozen
class ConnectionChallenge:
    """The server requests authentication (§3.2.3)."""

    version: int
    mechanisms: str
    challenges: Table = attrs.field(factory=dict, repr=False)


@attrs.frozen
class ConnectionResponse:
    """The client authenticates (§3.2.4)."""

    mechanism: str
    responses: Table = attrs.field(factory=dict, repr=False)


@attrs.frozen
class ConnectionTune:
    """Either side's limits (§3.2.5); 0 is no limit, except for ``frame_max``.

    Attributes:
        heartbeat: seconds between heartbeats that the sender of this wants; 0: none.
    """

    frame_max: int
    channel_max: int
    handle_max: int
    heartbeat: int
    options: Table = attrs.field(factory=dict)


@attrs.frozen
class ConnectionOpen:
    """The client selects a virtual host (§3.2.6)."""

    confirm_tag: int = 0
    virtual_path: str = ""
    client_name: str = ""
    options: Table = attrs.field(factory=dict)


@attrs.frozen
class ConnectionPing:
    """A heartbeat (§3.2.7)."""

    respond: bool = False


@attrs.frozen
class ConnectionReply:
    """The server confirms CONNECTION OPEN (§3.2.8)."""

    confirm_tag: int
    reply_code: int
    reply_text: str = ""


@attrs.frozen
class ConnectionClose:
    """Either side ends the connection, or confirms its end (§3.2.9)."""

    reply_code: int
    reply_text: str = ""


@attrs.frozen
class ChannelOpen:
    """The client opens a channel (§3.3.2)."""

    channel_id: int
    confirm_tag: int = 0
    transacted: bool = False
    restartable: bool = False
    options: Table = attrs.field(factory=dict)
    out_of_band: str = ""


@attrs.frozen
class ChannelAck:
    """The client acknowledges all messages up to a number (§3.3.3)."""

    channel_id: int
    confirm_tag: int
    message_nbr: int


@attrs.frozen
class ChannelCommit:
    """The client commits (§3.3.4)."""

    channel_id: int
    confirm_tag: int = 0
    options: Table = attrs.field(factory=dict)


@attrs.frozen
class ChannelRollback:
    """The client rolls back (§3.3.5)."""

    channel_id: int
    confirm_tag: int = 0
    options: Table = attrs.field(factory=dict)


@attrs.frozen
class ChannelReply:
    """The server confirms a command on a channel (§3.3.6)."""

    channel_id: int
    confirm_tag: int
    reply_code: int
    reply_text: str = ""


@attrs.frozen
class ChannelClose:
    """Either side ends a channel, or confirms its end (§3.3.7)."""

    channel_id: int
    reply_code: int
    reply_text: str = ""


@attrs.frozen
class HandleOpen:
    """The client opens a handle on a destination, or on a prefix of names (§3.5.2)."""

    channel_id: int
    handle_id: int
    service_type: int
    confirm_tag: int = 0
    producer: bool = False
    consumer: bool = False
    browser: bool = False
    temporary: bool = False
    dest_name: str = ""
    mime_type: str = ""
    encoding: str = ""
    options: Table = attrs.field(factory=dict)


@attrs.frozen
class HandleSend:
    """The client sends a message, or a fragment of one (§3.5.3)."""

    handle_id: int
    confirm_tag: int
    fragment_size: int
    partial: bool = False
    out_of_band: bool = False
    recovery: bool = False
    streaming: bool = False
    dest_name: str = ""


@attrs.frozen
class HandleConsume:
    """The client requests messages (§3.5.4)."""

    handle_id: int
    confirm_tag: int = 0
    prefetch: int = 1
    no_local: bool = False
    unreliable: bool = False
    dest_name: str = ""
    identifier: str = ""
    selector: bytes = b""
    mime_type: str = ""


@attrs.frozen
class HandleCancel:
    """The client ends a durable subscription (§3.5.5)."""

    handle_id: int
    confirm_tag: int = 0
    dest_name: str = ""
    identifier: str = ""


@attrs.frozen
class HandleFlow:
    """The client stops or starts messages (§3.5.6)."""

    handle_id: int
    confirm_tag: int
    flow_pause: bool


@attrs.frozen
class HandleUnget:
    """The client returns a message (§3.5.7)."""

    handle_id: int
    confirm_tag: int
    message_nbr: int


@attrs.frozen
class HandleQuery:
    """The client asks which messages are at a destination (§3.5.8)."""

    handle_id: int
    message_nbr: int = 0
    dest_name: str = ""
    selector: bytes = b""
    mime_type: str = ""


@attrs.frozen
class HandleBrowse:
    """The client requests a message without removing it (§3.5.9)."""

    handle_id: int
    confirm_tag: int
    message_nbr: int


@attrs.frozen
class HandleCreated:
    """The server names a temporary destination (§3.5.10)."""

    handle_id: int
    dest_name: str


@attrs.frozen
class HandleNotify:
    """The server sends a message, or a fragment of one (§3.5.11)."""

    handle_id: int
    message_nbr: int
    fragment_size: int
    partial: bool = False
    out_of_band: bool = False
    recovery: bool = False
    delivered: bool = False
    redelivered: bool = False
    streaming: bool = False
    dest_name: str = ""


@attrs.frozen
class HandleIndex:
    """The server lists messages (§3.5.12)."""

    handle_id: int
    message_nbr: int
    message_list: bytes


@attrs.frozen
class HandlePrepare:
    """Either side announces a large message, head first (§3.5.13)."""

    handle_id: int
    fragment_size: int
    content_hash: str = ""


@attrs.frozen
class HandleReady:
    """Either side reports how much of an announced message it has (§3.5.14)."""

    handle_id: int
    message_size: int


@attrs.frozen
class HandleReply:
    """The server confirms a command on a handle (§3.5.15)."""

    handle_id: int
    confirm_tag: int
    reply_code: int
    reply_text: str = ""


@attrs.frozen
class HandleClose:
    """Either side ends a handle, or confirms its end (§3.5.16)."""

    handle_id: int
    reply_code: int
    reply_text: str = ""


Command: TypeAlias = (
    ConnectionChallenge
    | ConnectionResponse
    | ConnectionTune
    | ConnectionOpen
    | ConnectionPing
    | ConnectionReply
    | ConnectionClose
    | ChannelOpen
    | ChannelAck
    | ChannelCommit
    | ChannelRollback
    | ChannelReply
    | ChannelClose
    | HandleOpen
    | HandleSend
    | HandleConsume
    | HandleCancel
    | HandleFlow
    | HandleUnget
    | HandleQuery
    | HandleBrowse
    | HandleCreated
    | HandleNotify
    | HandleIndex
    | HandlePrepare
    | HandleReady
    | HandleReply
    | HandleClose
)


class Sender(enum.Flag):
    """Which side may send a command."""

    CLIENT = 1
    SERVER = 2
    EITHER = 3


@attrs.frozen
class Spec:
    """A command's row.

    Attributes:
        number: the first octet of the command.
        record: its Python form, whose fields are those on the wire.
        sender: who may send it.
        letters: one for each field (see the module).
        has_fragment: message octets follow its frame.
    """

    number: int
    record: Any
    sender: Sender
    letters: str
    has_fragment: bool = False

    @property
    def name(self) -> str:
        """The specification's name for it."""
        shown: str = self.record.__name__
        for level in ("Connection", "Channel", "Handle"):
            if shown.startswith(level):
                return f"{level.upper()} {shown[len(level) :].upper()}"
        return shown


_C, _S, _E = Sender.CLIENT, Sender.SERVER, Sender.EITHER

SPECS: Final = (
    Spec(10, ConnectionChallenge, _S, "ost"),
    Spec(11, ConnectionResponse, _C, "st"),
    Spec(12, ConnectionTune, _E, "lhhht"),
    Spec(13, ConnectionOpen, _C, "hsst"),
    Spec(14, ConnectionPing, _E, "b"),
    Spec(18, ConnectionReply, _S, "hhw"),
    Spec(19, ConnectionClose, _E, "hw"),
    Spec(20, ChannelOpen, _C, "hhbbts"),
    Spec(21, ChannelAck, _C, "hhl"),
    Spec(22, ChannelCommit, _C, "hht"),
    Spec(23, ChannelRollback, _C, "hht"),
    Spec(28, ChannelReply, _S, "hhhw"),
    Spec(29, ChannelClose, _E, "hhw"),
    Spec(30, HandleOpen, _C, "hhhhbbbbssst"),
    Spec(31, HandleSend, _C, "hhlbbbbs", has_fragment=True),
    Spec(32, HandleConsume, _C, "hhhbbssxs"),
    Spec(33, HandleCancel, _C, "hhss"),
    Spec(34, HandleFlow, _C, "hhb"),
    Spec(35, HandleUnget, _C, "hhl"),
    Spec(36, HandleQuery, _C, "hlsxs"),
    Spec(37, HandleBrowse, _C, "hhl"),
    Spec(40, HandleCreated, _S, "hs"),
    Spec(41, HandleNotify, _S, "hllbbbbbbc", has_fragment=True),
    Spec(42, HandleIndex, _S, "hlx"),
    Spec(43, HandlePrepare, _E, "hls", has_fragment=True),
    Spec(44, HandleReady, _E, "hl"),
    Spec(48, HandleReply, _S, "hhhw"),
    Spec(49, HandleClose, _E, "hhw"),
)
"""All commands."""

COMMANDS: Final = {spec.number: spec for spec in SPECS}
"""Number → command."""

SPEC_OF: Final[dict[type, Spec]] = {spec.record: spec for spec in SPECS}
"""Record → command."""

_WIDTHS: Final = {"o": 1, "h": 2, "l": 4}
_READERS: Final[dict[str, Callable[[bytes, int, int], tuple[Any, int]]]] = {
    "s": decode_short,
    "c": decode_carried,
    "w": decode_words,
    "x": decode_long,
    "t": decode_table,
}
_WRITERS: Final[dict[str, Callable[[Any], bytes]]] = {
    "s": encode_short,
    "c": encode_carried,
    "w": encode_short,
    "x": encode_long,
    "t": encode_table,
}


def decode_command(octets: bytes, start: int, end: int) -> Command:
    """Decodes the command between two offsets, without its end octet.

    Raises:
        DecodeError: it is unknown, or its fields do not fill it.
    """
    spec = COMMANDS.get(octets[start])
    if spec is None:
        raise DecodeError(start, f"there is no command {octets[start]}")
    at = start + 1
    values: list[Any] = []
    bit = 0
    for index, letter in enumerate(spec.letters):
        if letter == "b":
            if not bit:
                if at >= end:
                    raise _short(spec, index, at)
                at += 1
            values.append(bool(octets[at - 1] >> bit & 1))
            bit += 1
            continue
        bit = 0
        width = _WIDTHS.get(letter)
        if width is not None:
            if at + width > end:
                raise _short(spec, index, at)
            values.append(int.from_bytes(octets[at : at + width], "big"))
            at += width
        else:
            try:
                value, at = _READERS[letter](octets, at, end)
            except DecodeError as error:
                field = _field(spec, index)
                raise DecodeError(at, f"{spec.name}, {field}: {error.rule}") from error
            values.append(value)
    if at != end:
        raise DecodeError(at, f"{spec.name} has {end - at} octets too many")
    command: Command = spec.record(*values)
    return command


def _field(spec: Spec, index: int) -> str:
    name: str = attrs.fields(spec.record)[index].name
    return name.replace("_", "-")


def _short(spec: Spec, index: int, at: int) -> DecodeError:
    return DecodeError(at, f"{spec.name} ends before its {_field(spec, index)}")


def encode_command(command: Command) -> bytes:
    """Encodes a command, without its end octet.

    Raises:
        MisuseError: a field does not fit.
    """
    spec = SPEC_OF[type(command)]
    parts = [bytes((spec.number,))]
    bits = shift = 0
    for attribute, letter in zip(attrs.fields(spec.record), spec.letters, strict=True):
        value = getattr(command, attribute.name)
        if letter == "b":
            bits |= bool(value) << shift
            shift += 1
            continue
        if shift:
            parts.append(bytes((bits,)))
            bits = shift = 0
        width = _WIDTHS.get(letter)
        if width is not None:
            parts.append(value.to_bytes(width, "big"))
        else:
            parts.append(_WRITERS[letter](value))
    if shift:
        parts.append(bytes((bits,)))
    return b"".join(parts)
