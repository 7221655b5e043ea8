"""What peers may say, every string of it made of any octets: strategies for each protocol.

A speech is a list of pieces of octets behind a handshake. Strings are hostile or one of a few good
names, so that speeches get as far as bindings, links and messages.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

import attrs
from hypothesis import strategies as st

from router.model.capabilities import Protocol
from router.model.condition import Condition
from router.model.outcome import Rejected
from router.model.terminus import Role, Source, Target
from router.model.text import decode_text
from router.wire.fast import commands as c
from router.wire.fast import framing as fast_framing
from router.wire.fast.message import Head, encode_head
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.codec import CODEC, SPECS, MethodCodec, Sender, Spec
from router.wire.v0_9_1.content import Properties, encode_content_header, encode_properties
from router.wire.v0_9_1.framing import FRAMING, METHOD, PROTOCOL_HEADER, Framing
from router.wire.v0_9r1 import framing as draft_framing
from router.wire.v0_9r1 import methods as draft
from router.wire.v0_9r1.content import HEAD
from router.wire.v0_10 import codec as codec_0_10
from router.wire.v0_10 import framing as framing_0_10
from router.wire.v0_10 import optional as o
from router.wire.v0_10 import records as r
from router.wire.v0_10.message import write_header
from router.wire.v0_10.types import Seconds, with_size
from router.wire.v1_0.frames import AMQP_HEADER, frame
from router.wire.v1_0.performatives import (
    Attach,
    Begin,
    Detach,
    Disposition,
    Flow,
    Open,
    Transfer,
    encode,
)
from router.wire.v1_0.sections import AnnotatedMessage, encode_message
from router.wire.v1_0.sections import Properties as MessageProperties
from router.wire.v1_0.types import Symbol

GOOD: Final = (b"t", b"q", b"k.one", b"t/k.one", b"k.#", b"")

HOSTILE: Final = (
    b"t\xff",
    b"\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xed\xb3\xbf",
    b"\xf4\x90\x80\x80",
    b"caf\xe9",
    b"\0",
    b"a\0b",
    b"\x1b[31mred",
    b"line\r\nend",
    "\u202eevil".encode(),
    "\ufeff\u2028".encode(),
    b"[red]x[/red]",
    b"<b>&amp;</b>",
    b"=1+1",
    b"\\xff",
    b"/",
    b"$network",
    b"x" * 255,
    "é".encode() * 127,
)

names = st.sampled_from(GOOD)
noise = st.binary(max_size=12).filter(lambda octets: not {*b"*#"} & {*octets})  # no pattern
hostile = st.sampled_from(HOSTILE) | noise
octets = st.integers(0, 15).flatmap(lambda dice: hostile if dice == 7 else names)
texts = octets.map(decode_text)
shorts = texts
small = st.sampled_from((0, 1, 1, 2, 3, 9))
tables = st.dictionaries(texts, texts | st.integers(-5, 5), max_size=2)

Speech = list[bytes]


def _record(kind: Any, values: Mapping[str, st.SearchStrategy[Any]]) -> st.SearchStrategy[Any]:
    """A record with any fields, each by the type in its annotation."""
    annotations = kind.__annotations__
    fields = {
        field.name: values[annotations[field.name].__metadata__[0]] for field in attrs.fields(kind)
    }
    return st.builds(kind, **fields)


# --- 0-9-1 and the draft --------------------------------------------------------------------------

_BASIC_TYPES: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    "bit": st.booleans(),
    "octet": small,
    "short": small,
    "long": small,
    "longlong": small,
    "shortstr": shorts,
    "words": shorts,
    "longstr": octets,
    "table": tables,
}
_DRAFT_TYPES: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    **_BASIC_TYPES,
    "table": st.dictionaries(st.sampled_from(("a", "$b")), texts, max_size=2),
}


@attrs.frozen
class _Tongue:
    """0-9-1, or the draft."""

    codec: MethodCodec
    specs: tuple[Spec, ...]
    types: Mapping[str, st.SearchStrategy[Any]]
    framing: Framing


BASIC: Final = _Tongue(CODEC, SPECS, _BASIC_TYPES, FRAMING)
DRAFT: Final = _Tongue(draft.CODEC, draft.SPECS, _DRAFT_TYPES, draft_framing.FRAMING)

_basic_properties = st.builds(
    Properties,
    content_type=st.none() | shorts,
    headers=st.none() | tables,
    correlation_id=st.none() | shorts,
    reply_to=st.none() | shorts,
    expiration=st.none() | shorts,
    message_id=st.none() | shorts,
    type=st.none() | shorts,
    user_id=st.none() | shorts,
    app_id=st.none() | shorts,
)


@st.composite
def _basic_piece(draw: st.DrawFn, tongue: "_Tongue", sender: Sender) -> bytes:
    """A method with its content, if it has any."""
    framing = tongue.framing
    spec = draw(st.sampled_from([each for each in tongue.specs if each.sender & sender]))
    method = draw(_record(spec.record, tongue.types))
    piece = framing.frame(METHOD, 1, tongue.codec.encode(method))
    if not spec.has_content:
        return piece
    body = draw(st.binary(max_size=5))
    properties = encode_properties(draw(_basic_properties))
    if framing is FRAMING:
        header = encode_content_header(len(body), properties)
    else:
        header = HEAD.pack(spec.class_id, 0, len(body)) + properties
    return piece + framing.content_frames(1, header, body, 4096)


@st.composite
def _basic_opening(draw: st.DrawFn, header: bytes, tongue: "_Tongue") -> Speech:
    codec, types, framing = tongue.codec, tongue.types, tongue.framing
    start = m.ConnectionStartOk(
        client_properties=draw(types["table"] | st.just({"connection_name": draw(shorts)})),
        response=b"\0a\0b",
    )
    steps = (start, m.ConnectionTuneOk(255, 4096, 0), m.ConnectionOpen(draw(_VHOSTS)))
    opening = [framing.frame(METHOD, 0, codec.encode(each)) for each in steps]
    return [header, *opening, framing.frame(METHOD, 1, codec.encode(m.ChannelOpen()))]


_VHOSTS: Final = st.just("/") | st.just("/") | st.just("/") | shorts


def _binding(tongue: _Tongue) -> st.SearchStrategy[bytes]:
    """A queue that is bound to an exchange, consumed from, and published to; any names."""

    def make(exchange: str, queue: str, key: str, body: bytes) -> bytes:
        consume = draft.BasicConsume if tongue is DRAFT else m.BasicConsume
        steps = (
            m.ExchangeDeclare(exchange=exchange, type="topic"),
            m.QueueDeclare(queue=queue, exclusive=True),
            m.QueueBind(queue=queue, exchange=exchange, routing_key=key),
            consume(queue=queue),
            m.BasicPublish(exchange=exchange, routing_key=key),
        )
        methods = [tongue.framing.frame(METHOD, 1, tongue.codec.encode(each)) for each in steps]
        header = encode_content_header(len(body), encode_properties(Properties()))
        if tongue is DRAFT:
            header = HEAD.pack(draft.BASIC_CLASS, 0, len(body)) + header[12:]
        return b"".join((*methods, tongue.framing.content_frames(1, header, body, 4096)))

    return st.builds(make, shorts, shorts, shorts | st.just("k.#"), octets)


# --- 0-10 -----------------------------------------------------------------------------------------

_TYPES_0_10: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    "bit": st.booleans(),
    **dict.fromkeys(("uint8", "uint16", "uint32", "uint64"), st.none() | small),
    "datetime": st.none() | small.map(Seconds),
    **dict.fromkeys(("str8", "str16", "words8", "words16"), st.none() | shorts),
    **dict.fromkeys(("vbin16", "vbin32"), st.none() | octets),
    "map": st.none() | tables,
    "array": st.none() | st.lists(shorts, max_size=2),
    "commands": st.none() | st.just(((0, 3),)),
    "uuid": st.none(),
    "reply-to": st.none() | st.builds(r.ReplyTo, shorts, shorts),
}


def _assembly(track: int, channel: int, head: bytes, content: Any = None) -> bytes:
    return framing_0_10.assembly(track, channel, head, 65535, content)


def _control(control: Any, channel: int = 1) -> bytes:
    return _assembly(framing_0_10.CONTROL, channel, codec_0_10.encode_control(control))


@st.composite
def _piece_0_10(draw: st.DrawFn, sender: codec_0_10.Sender) -> bytes:
    specs = [each for each in codec_0_10.COMMANDS if each.sender & sender]
    spec = draw(st.sampled_from(specs))
    command = draw(_record(spec.record, _TYPES_0_10))
    head = codec_0_10.encode_command(command)
    if not spec.has_content:
        return _assembly(framing_0_10.COMMAND, 1, head)
    delivery = draw(_record(r.DeliveryProperties, _TYPES_0_10))
    message = draw(_record(r.MessageProperties, _TYPES_0_10))
    header = write_header(delivery, message)
    if spec.class_code in (o.FILE_CLASS, o.STREAM_CLASS):
        kind = o.FileProperties if spec.class_code == o.FILE_CLASS else o.StreamProperties
        header = with_size(codec_0_10.encode_struct(draw(_record(kind, _TYPES_0_10))), 4)
    return _assembly(framing_0_10.COMMAND, 1, head, (header, draw(st.binary(max_size=5))))


def _binding_0_10(exchange: str, queue: str, key: str) -> bytes:
    """A queue that is bound to an exchange, subscribed to, and transferred to."""
    steps = (
        r.ExchangeDeclare(exchange=exchange, type="topic"),
        r.QueueDeclare(queue=queue, exclusive=True),
        r.ExchangeBind(queue=queue, exchange=exchange, binding_key=key),
        r.MessageSubscribe(queue=queue, destination=key, accept_mode=0, acquire_mode=0),
        r.MessageFlow(key, 0, 10),
        r.MessageFlow(key, 1, 10_000),
    )
    heads = [_assembly(framing_0_10.COMMAND, 1, codec_0_10.encode_command(each)) for each in steps]
    head = codec_0_10.encode_command(r.MessageTransfer(exchange, 0, 0))
    header = write_header(r.DeliveryProperties(routing_key=key), None)
    return b"".join((*heads, _assembly(framing_0_10.COMMAND, 1, head, (header, b"x"))))


_bindings_0_10 = st.builds(_binding_0_10, shorts, shorts, shorts | st.just("k.#"))


@st.composite
def _opening_0_10(draw: st.DrawFn) -> Speech:
    start = r.ConnectionStartOk(client_properties=draw(tables), mechanism="ANONYMOUS", response=b"")
    return [
        framing_0_10.PROTOCOL_HEADER,
        _control(start, 0),
        _control(r.ConnectionTuneOk(10), 0),
        _control(r.ConnectionOpen(draw(_VHOSTS)), 0),
        _control(r.SessionAttach(draw(octets))),
        _control(r.SessionRequestTimeout(draw(small))),
        _control(r.SessionCommandPoint(0, 0)),
    ]


# --- AMQP/Fast ------------------------------------------------------------------------------------

_FAST_TYPES: Final[Mapping[str, st.SearchStrategy[Any]]] = {
    "o": small,
    "h": st.sampled_from((0, 1, 1, 1, 2)),
    "l": small,
    "b": st.booleans(),
    "s": texts.filter(lambda text: "\0" not in text),
    "c": shorts,
    "w": texts.filter(lambda text: "\0" not in text),
    "x": octets,
    "t": st.dictionaries(texts.filter(lambda text: "\0" not in text), octets, max_size=2),
}


@st.composite
def _fast_piece(draw: st.DrawFn, sender: c.Sender) -> bytes:
    spec = draw(st.sampled_from([each for each in c.SPECS if each.sender & sender]))
    command = spec.record(*(draw(_FAST_TYPES[letter]) for letter in spec.letters))
    if not spec.has_fragment:
        return fast_framing.frame(command)
    text = _FAST_TYPES["s"]
    head = Head(
        mime_type=draw(text),
        encoding=draw(text),
        identifier=draw(text),
        headers=draw(_FAST_TYPES["t"]),
    )
    message = encode_head(head, 3) + b"abc"
    if getattr(command, "out_of_band", False):
        return fast_framing.frame(command)
    return fast_framing.frame(attrs.evolve(command, fragment_size=len(message))) + message


def _fast_exchange(handle: int, name: str, mime_type: str) -> bytes:
    """A handle of its own, on which a client sends and receives."""
    message = encode_head(Head(mime_type=mime_type), 1) + b"x"
    commands: tuple[c.Command, ...] = (
        c.HandleOpen(1, handle, 1, producer=True, consumer=True, dest_name=name),
        c.HandleConsume(handle, 0, 10, dest_name=name),
        c.HandleSend(handle, 0, len(message), dest_name=name),
    )
    return b"".join(map(fast_framing.frame, commands)) + message


_fast_exchanges = st.builds(_fast_exchange, st.integers(2, 5), _FAST_TYPES["s"], _FAST_TYPES["s"])


@st.composite
def _fast_opening(draw: st.DrawFn) -> Speech:
    name = draw(_FAST_TYPES["s"])
    steps: tuple[c.Command, ...] = (
        c.ConnectionResponse("ANONYMOUS"),
        c.ConnectionTune(65536, 10, 100, 0),
        c.ConnectionOpen(1, "/", name),
        c.ChannelOpen(1),
        c.HandleOpen(1, 1, 1, producer=True, consumer=True, dest_name=draw(_FAST_TYPES["s"])),
    )
    return [fast_framing.START, *map(fast_framing.frame, steps)]


# --- AMQP 1.0 -------------------------------------------------------------------------------------

_LETTER: Final = "\x7f"


@st.composite
def _filled(draw: st.DrawFn, make: Callable[[Callable[[], str]], bytes]) -> bytes:
    """Octets whose strings are any octets: they are put in when all sizes are written."""
    drawn: list[bytes] = []

    def text() -> str:
        made = draw(octets)
        try:
            made.decode("ascii")
        except UnicodeDecodeError:
            drawn.append(made)
            return _LETTER * len(made)
        return made.decode()

    encoded = make(text)
    for made in drawn:
        encoded = encoded.replace(_LETTER.encode() * len(made), made, 1)
    return encoded


def _performative(record: Any) -> bytes:
    return frame(0, encode(record))


def _open(text: Callable[[], str]) -> bytes:
    return _performative(
        Open(
            container_id=text(),
            hostname=text(),
            offered_capabilities=(Symbol(text()),),
            properties={Symbol(text()): text()},
        )
    )


def _attach(handle: int, role: Role) -> Callable[[Callable[[], str]], bytes]:
    def make(text: Callable[[], str]) -> bytes:
        return _performative(
            Attach(
                name=text(),
                handle=handle,
                role=role,
                source=Source(address=text(), capabilities=(Symbol(text()),)),
                target=Target(address=text(), capabilities=(Symbol(text()),)),
                initial_delivery_count=0 if role is Role.SENDER else None,
                offered_capabilities=(Symbol(text()),),
                properties={Symbol(text()): text()},
            )
        )

    return make


def _anonymous(text: Callable[[], str]) -> bytes:
    return _performative(
        Attach(
            name="anonymous",
            handle=7,
            role=Role.SENDER,
            source=Source(),
            target=Target(),
            initial_delivery_count=0,
        )
    )


def _transfer(handle: int) -> Callable[[Callable[[], str]], bytes]:
    def make(text: Callable[[], str]) -> bytes:
        message = AnnotatedMessage(
            properties=MessageProperties(
                message_id=text(), to=text(), subject=text(), content_type=Symbol(text())
            ),
            message_annotations={Symbol(text()): text()},
            application_properties={text(): text()},
            data=[b"x"],
        )
        transfer = Transfer(
            handle=handle, delivery_id=0, delivery_tag=b"t", message_format=0, more=False
        )
        return frame(0, encode(transfer), encode_message(message))

    return make


def _disposition(text: Callable[[], str]) -> bytes:
    rejected = Rejected(Condition(text() or "x", text()))
    return _performative(Disposition(Role.RECEIVER, 0, 0, settled=True, state=rejected))


def _detach(text: Callable[[], str]) -> bytes:
    return _performative(Detach(handle=1, closed=True, error=Condition(text() or "x", text())))


def _grant(text: Callable[[], str]) -> bytes:
    return _performative(
        Flow(
            next_incoming_id=0,
            incoming_window=1000,
            next_outgoing_id=0,
            outgoing_window=1000,
            handle=2,
            delivery_count=0,
            link_credit=10,
        )
    )


_PIECES_1_0: Final = (
    _attach(1, Role.SENDER),
    _attach(2, Role.RECEIVER),
    _attach(3, Role.RECEIVER),
    _anonymous,
    _grant,
    _transfer(1),
    _transfer(7),
    _disposition,
    _detach,
)

_BEGIN: Final = _performative(Begin(next_outgoing_id=0, incoming_window=1000, outgoing_window=1000))


@st.composite
def _opening_1_0(draw: st.DrawFn) -> Speech:
    return [AMQP_HEADER, draw(_filled(_open)), _BEGIN]


# --- all ------------------------------------------------------------------------------------------


def _speech(opening: st.SearchStrategy[Speech], *pieces: st.SearchStrategy[bytes]) -> Any:
    return st.builds(
        lambda opened, spoken: [*opened, *spoken],
        opening,
        st.lists(st.one_of(*pieces), max_size=8),
    )


SPEECHES: Final[Mapping[Protocol, st.SearchStrategy[Speech]]] = {
    Protocol.AMQP_1_0: _speech(_opening_1_0(), st.sampled_from(_PIECES_1_0).flatmap(_filled)),
    Protocol.AMQP_0_9_1: _speech(
        _basic_opening(PROTOCOL_HEADER, BASIC),
        _basic_piece(BASIC, Sender.CLIENT),
        _binding(BASIC),
    ),
    Protocol.AMQP_0_9R1: _speech(
        _basic_opening(draft_framing.PROTOCOL_HEADER, DRAFT),
        _basic_piece(DRAFT, Sender.CLIENT),
        _binding(DRAFT),
    ),
    Protocol.AMQP_0_10: _speech(
        _opening_0_10(), _piece_0_10(codec_0_10.Sender.CLIENT), _bindings_0_10
    ),
    Protocol.AMQP_FAST: _speech(_fast_opening(), _fast_piece(c.Sender.CLIENT), _fast_exchanges),
}
"""What a client may say."""


# --- brokers --------------------------------------------------------------------------------------


@st.composite
def _broker_opening(draw: st.DrawFn, tongue: _Tongue, version: tuple[int, int]) -> Speech:
    codec, framing = tongue.codec, tongue.framing
    start = m.ConnectionStart(
        version_major=version[0],
        version_minor=version[1],
        server_properties=draw(tongue.types["table"]),
        mechanisms=b"PLAIN",
    )
    steps = (
        start,
        m.ConnectionTune(2047, 4096, 0),
        m.ConnectionOpenOk(),
    )
    answers: list[Any] = [
        m.ChannelOpenOk(),
        m.QueueDeclareOk(draw(shorts), 0, 0),
        m.ExchangeDeclareOk(),
        m.ConfirmSelectOk(),
    ]
    return [
        *(framing.frame(METHOD, 0, codec.encode(each)) for each in steps),
        *(
            framing.frame(METHOD, 1, codec.encode(each))
            for each in answers
            if tongue is BASIC or not isinstance(each, m.ConfirmSelectOk)
        ),
    ]


@st.composite
def _broker_opening_0_10(draw: st.DrawFn) -> Speech:
    return [
        framing_0_10.PROTOCOL_HEADER,
        _control(r.ConnectionStart(draw(tables), ["ANONYMOUS"], ["en_US"]), 0),
        _control(
            r.ConnectionTune(
                channel_max=10, max_frame_size=65535, heartbeat_min=0, heartbeat_max=0
            ),
            0,
        ),
        _control(r.ConnectionOpenOk(), 0),
        _control(r.SessionAttached(draw(octets))),
        _control(r.SessionCommandPoint(0, 0)),
        _assembly(
            framing_0_10.COMMAND,
            1,
            codec_0_10.encode_command(
                r.ExecutionResult(
                    0, codec_0_10.encode_struct(r.QueueQueryResult(queue=draw(shorts) or "q"))
                )
            ),
        ),
        _control(r.SessionCompleted(((0, 0),))),
    ]


@st.composite
def _fast_broker_opening(draw: st.DrawFn) -> Speech:
    steps: tuple[c.Command, ...] = (
        c.ConnectionChallenge(1, "ANONYMOUS"),
        c.ConnectionTune(65536, 10, 10, 0),
        c.ConnectionReply(1, 200, draw(_FAST_TYPES["w"])),
    )
    return [*map(fast_framing.frame, steps)]


BROKERS: Final[Mapping[Protocol, st.SearchStrategy[Speech]]] = {
    Protocol.AMQP_1_0: _speech(_opening_1_0(), st.sampled_from(_PIECES_1_0).flatmap(_filled)),
    Protocol.AMQP_0_9_1: _speech(
        _broker_opening(BASIC, (0, 9)), _basic_piece(BASIC, Sender.SERVER)
    ),
    Protocol.AMQP_0_9R1: _speech(
        _broker_opening(DRAFT, draft_framing.VERSION),
        _basic_piece(DRAFT, Sender.SERVER),
    ),
    Protocol.AMQP_0_10: _speech(_broker_opening_0_10(), _piece_0_10(codec_0_10.Sender.SERVER)),
    Protocol.AMQP_FAST: _speech(_fast_broker_opening(), _fast_piece(c.Sender.SERVER)),
}
"""What a broker may say that we dialed."""
