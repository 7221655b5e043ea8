"""Hands new connections of clients to the workers that are the homes of their first links.

Theory of operation. A link of an exactly-once address leads to its home (``core.homes``). If the
client is connected to another worker everything on it crosses, so a client that has done nothing
yet but open its connection is better connected to the home. The worker that has accepted it and the
home talk about that over a ``SOCK_SEQPACKET`` pair, which each two workers have::

    OFFER    the socket (SCM_RIGHTS), what was received on it, and what was sent
    READY    a fresh engine of the home has said the same
    REFUSE   it has not, or the home cannot serve it
    COMMIT   the connection is the home's, with the octets received since the offer
    CANCEL   it stays

Until its COMMIT the connection is the first worker's, which neither reads nor sends meanwhile
(``Connection.held``). With it, that worker forgets the connection, and the home reads what has not
been answered yet, the attach first. A packet arrives whole or not at all, so exactly one of them
has the connection, and as no core has seen the attach before, nothing of a link or delivery is ever
in two places. Whatever goes wrong before COMMIT leaves the connection where it is, and its links
cross: a home that does not answer within ``PATIENCE_SECONDS``, or dies, or whose engine says
something else because it has another configuration, or made up a name. If the home dies afterwards
the client is disconnected, as with any worker.

The conversation is replayed with the times at which it took place, and with the verdicts of its
login (``wire.noted_login``). TLS and WebSockets have state besides, so such connections stay, and
so do those of AMQP 0-10 and AMQP fast, of which the worker keeps a state that clients come back to.

A packet is the length of its head (4 octets, big-endian), the head (JSON), and the octets whose
lengths the head gives.
"""

import array
import enum
import itertools
import json
import math
import os
import socket
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

import attrs
import structlog
import trio

from router.model.capabilities import Protocol
from router.net.connection import Connection, Stage
from router.net.dataplane import DataPlane
from router.net.reception import ListenerSettings, Reception, Transport
from router.net.sockets import describe_peer
from router.net.transcript import Transcript
from router.wire.noted_login import RepeatingServer
from router.wire.sasl import Challenge, Failure, SaslVerdict, Success

PATIENCE_SECONDS: Final = 2.0
"""How long a connection is held for an answer; an idle home takes less than a millisecond."""

PACKET_OCTETS: Final = 1 << 18
"""The largest packet: a transcript, and what a turn may receive behind it, are smaller."""

BUFFER_OCTETS: Final = 1 << 20

LATE_OCTETS: Final = PACKET_OCTETS // 2
"""Most octets received since the offer; with more of them the connection stays."""

VARIABLE: Final = "ROUTER_HANDING"
"""Environment variable: ``off`` leaves all connections where they are, so that tests see both."""

_LENGTH: Final = 4


class Word(enum.StrEnum):
    """What a packet says."""

    OFFER = "offer"
    READY = "ready"
    REFUSE = "refuse"
    COMMIT = "commit"
    CANCEL = "cancel"


@attrs.frozen
class _Packet:
    word: Word
    serial: int
    told: Mapping[str, Any] = attrs.field(factory=dict)
    octets: Sequence[bytes] = ()
    sock: socket.socket | None = None


@attrs.define(eq=False)
class _Rehearsed:
    """A connection that a sibling has offered.

    Attributes:
        connection: held, until the sibling commits it.
        rest: what it has received and not answered.
        expires_at: when it is given up: its sibling has waited no longer than that.
        end: called when it ends; None: it is not counted yet.
    """

    rest: list[bytes | None]
    expires_at: float
    connection: Connection | None = None
    end: Callable[[], None] | None = None

    def ended(self, connection: Connection) -> None:
        """Records that the connection is over."""
        if self.end is not None:
            self.end()


@attrs.define(eq=False, kw_only=True)
class Handing:
    """One worker's side of the pair that it has with a sibling.

    Attributes:
        sibling: number of the other worker.
        pair: connected to it, not blocking.
        settings: returns the settings of a listener, by its name; None: it is not served.
    """

    sibling: int
    pair: socket.socket
    plane: DataPlane
    reception: Reception
    settings: Callable[[str], ListenerSettings | None]
    _serials: Iterator[int] = attrs.field(factory=itertools.count, init=False)
    _offered: dict[int, tuple[Connection, float]] = attrs.field(factory=dict, init=False)
    _rehearsed: dict[int, _Rehearsed] = attrs.field(factory=dict, init=False)
    _alarm: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    _log: Any = attrs.field(factory=structlog.get_logger, init=False)

    async def run(self) -> None:
        """Answers the sibling until it is gone, or until cancelled."""
        try:
            while True:
                self._alarm = trio.CancelScope(deadline=self._next_due)
                with self._alarm:
                    await trio.lowlevel.wait_readable(self.pair)
                self._expire()
                if not self._alarm.cancelled_caught and not self._receive():
                    return
        except trio.ClosedResourceError:
            return
        finally:
            self.pair.close()
            self._part()

    def close(self) -> None:
        """Ends ``run``: the worker has another pair with the sibling."""
        if self.pair.fileno() >= 0:
            trio.lowlevel.notify_closing(self.pair)
            self.pair.close()

    # --- what the first worker does ---------------------------------------------------------------

    def offer(self, connection: Connection) -> bool:
        """Offers a held connection to the sibling; false: it cannot be offered."""
        transcript = connection.transcript
        if transcript is None or transcript.answered is None or self.pair.fileno() < 0:
            return False
        serial = next(self._serials)
        if not self._send(_describe(serial, connection, transcript, self.plane.clock())):
            return False
        self._offered[serial] = (connection, self.plane.clock() + PATIENCE_SECONDS)
        self._alarm.deadline = min(self._alarm.deadline, self._next_due)
        return True

    def _decide(self, serial: int, refusal: str | None) -> None:
        """Ends an offer: commits the connection, or keeps it."""
        found = self._offered.pop(serial, None)
        if found is None:
            return
        connection, held = found[0], found[0].held
        is_ready = refusal is None and held is not None and connection.stage is Stage.OPEN
        if is_ready and held is not None:
            is_ready = not held.is_spoiled and len(held.late) <= LATE_OCTETS
            if is_ready and self._send(_Packet(Word.COMMIT, serial, {}, [bytes(held.late)])):
                self._log.info(
                    "connection.handed",
                    connection=connection.id,
                    container=connection.container,
                    address=connection.address,
                    listener=connection.listener,
                    to_worker=self.sibling,
                )
                self.plane.let_go(connection)
                return
        if refusal is None:
            self._send(_Packet(Word.CANCEL, serial))
        else:
            self._log.info(
                "connection.kept",
                connection=connection.id,
                container=connection.container,
                to_worker=self.sibling,
                reason=refusal,
            )
        self.plane.keep(connection)

    # --- what the home does -----------------------------------------------------------------------

    def _rehearse(self, packet: _Packet) -> None:
        """Repeats the conversation of an offered connection."""
        try:
            refusal = self._try(packet)
        except Exception as error:  # noqa: BLE001  what one connection meets ends that connection
            self._log.error("connection.failed", exc_info=error)
            refusal = f"{type(error).__name__}: {error}"
        if refusal is None:
            if self._send(_Packet(Word.READY, packet.serial)):
                return
        else:
            self._send(_Packet(Word.REFUSE, packet.serial, {"reason": refusal}))
        self._forget(packet.serial)
        if packet.sock is not None:
            packet.sock.close()

    def _try(self, packet: _Packet) -> str | None:
        """Begins to hold an offered connection; returns why it is refused, None: it is not."""
        sock, told = packet.sock, packet.told
        if sock is None:
            return "out of descriptors"
        listener = str(told["listener"])
        settings = self.settings(listener)
        if settings is None:
            return "it does not accept connections"
        verdicts = deque(map(_decode_verdict, told["verdicts"]))
        *received, sent = packet.octets
        spoken = [
            (float(age), None if is_deadline else octets)
            for (age, is_deadline), octets in zip(told["received"], received, strict=True)
        ]
        answered = int(told["answered"])
        now = self.plane.clock()
        rehearsed = _Rehearsed(
            [octets for _, octets in spoken[answered:]], now + 2 * PATIENCE_SECONDS
        )
        self._rehearsed[packet.serial] = rehearsed
        login = partial(RepeatingServer, verdicts=verdicts)
        sock.setblocking(False)
        rehearsed.connection, said = self.plane.rehearse(
            sock,
            settings.make_engine(Protocol(told["protocol"]), Transport(False, None, login)),
            spoken[:answered],
            address=describe_peer(sock),
            listener=listener,
            on_end=rehearsed.ended,
        )
        if rehearsed.connection.stage is not Stage.OPEN:
            return rehearsed.connection.failure or "it has ended"
        if said != sent:
            return "its engine says something else"
        self._alarm.deadline = min(self._alarm.deadline, rehearsed.expires_at)
        return None

    def _take_up(self, serial: int, late: bytes) -> None:
        """Serves a connection that is this worker's now."""
        rehearsed = self._rehearsed.pop(serial, None)
        connection = None if rehearsed is None else rehearsed.connection
        if rehearsed is None or connection is None or connection.stage is not Stage.OPEN:
            return
        try:
            rehearsed.end = self.reception.count(connection.socket)
        except OSError:
            self.plane.let_go(connection)  # the peer is gone
            return
        self.plane.take_up(connection, [*rehearsed.rest, *([late] if late else [])])

    def _forget(self, serial: int) -> None:
        """Leaves a connection to the worker that has offered it."""
        rehearsed = self._rehearsed.pop(serial, None)
        if rehearsed is not None and rehearsed.connection is not None:
            self.plane.let_go(rehearsed.connection)

    # --- both -------------------------------------------------------------------------------------

    @property
    def _next_due(self) -> float:
        offered = (at for _, at in self._offered.values())
        return min(
            (*offered, *(each.expires_at for each in self._rehearsed.values())), default=math.inf
        )

    def _expire(self) -> None:
        now = self.plane.clock()
        for serial in [serial for serial, (_, at) in self._offered.items() if at <= now]:
            self._send(_Packet(Word.CANCEL, serial))
            self._decide(serial, "no answer")
        for serial in [each for each, found in self._rehearsed.items() if found.expires_at <= now]:
            self._forget(serial)

    def _part(self) -> None:
        """Keeps what was offered, and forgets what the sibling has: it is gone."""
        for serial in list(self._offered):
            self._decide(serial, "the worker is gone")
        for serial in list(self._rehearsed):
            self._forget(serial)

    def _receive(self) -> bool:
        """Acts upon one packet; false: the sibling is gone."""
        try:
            packet = _receive(self.pair)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False
        if packet is None:
            return False
        match packet.word:
            case Word.OFFER:
                self._rehearse(packet)
            case Word.READY:
                self._decide(packet.serial, None)
            case Word.REFUSE:
                self._decide(packet.serial, str(packet.told["reason"]))
            case Word.COMMIT:
                self._take_up(packet.serial, packet.octets[0])
            case Word.CANCEL:
                self._forget(packet.serial)
        return True

    def _send(self, packet: _Packet) -> bool:
        """Sends a packet; false: the sibling is gone, or has too many to read."""
        head = {
            "word": packet.word,
            "serial": packet.serial,
            "lengths": [len(each) for each in packet.octets],
            **packet.told,
        }
        text = json.dumps(head).encode()
        parts = [len(text).to_bytes(_LENGTH, "big"), text, *packet.octets]
        ancillary = []
        if packet.sock is not None:
            rights = array.array("i", [packet.sock.fileno()])
            ancillary.append((socket.SOL_SOCKET, socket.SCM_RIGHTS, rights))
        try:
            self.pair.sendmsg([b"".join(parts)], ancillary)
        except OSError:
            return False
        return True


def is_off() -> bool:
    """Returns whether the environment leaves all connections where they are."""
    return os.environ.get(VARIABLE) == "off"


def make_pair() -> tuple[socket.socket, socket.socket]:
    """Makes what two workers hand connections to each other by."""
    ends = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in ends:
        for option in (socket.SO_SNDBUF, socket.SO_RCVBUF):
            end.setsockopt(socket.SOL_SOCKET, option, BUFFER_OCTETS)
    return ends


def _describe(serial: int, connection: Connection, transcript: Transcript, now: float) -> _Packet:
    told = {
        "listener": transcript.listener,
        "protocol": transcript.protocol.value,
        "verdicts": [_encode_verdict(each) for each in transcript.verdicts],
        "received": [(now - at, octets is None) for at, octets in transcript.received],
        "answered": transcript.answered,
    }
    received = [octets or b"" for _, octets in transcript.received]
    octets = [*received, bytes(transcript.sent)]
    return _Packet(Word.OFFER, serial, told, octets, connection.socket)


def _receive(pair: socket.socket) -> _Packet | None:
    """Reads a packet; None: nobody is at the other end.

    Raises:
        OSError: there is none, or the pair is broken.
    """
    size = socket.CMSG_SPACE(array.array("i").itemsize)
    octets, ancillary, _, _ = pair.recvmsg(PACKET_OCTETS, size, socket.MSG_CMSG_CLOEXEC)
    if not octets:
        return None
    sock = None
    for level, kind, rights in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            sock = socket.socket(fileno=array.array("i", rights)[0])
    end = _LENGTH + int.from_bytes(octets[:_LENGTH], "big")
    head = json.loads(octets[_LENGTH:end])
    parts = []
    for length in head.pop("lengths"):
        parts.append(octets[end : end + length])
        end += length
    return _Packet(Word(head.pop("word")), head.pop("serial"), head, parts, sock)


def _encode_verdict(verdict: SaslVerdict) -> list[str | None]:
    match verdict:
        case Challenge(octets=octets):
            return ["challenge", octets.hex()]
        case Success(user=user, octets=octets):
            return ["success", user, None if octets is None else octets.hex()]
        case Failure(reason=reason):
            return ["failure", reason]


def _decode_verdict(fields: Sequence[str | None]) -> SaslVerdict:
    match fields:
        case ["challenge", str(octets)]:
            return Challenge(bytes.fromhex(octets))
        case ["success", user, octets]:
            return Success(user, None if octets is None else bytes.fromhex(octets))
        case _:
            return Failure(str(fields[-1]))
