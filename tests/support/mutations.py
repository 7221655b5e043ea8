"""Conversations of good clients, recorded at the socket, and what becomes of them in bad hands.

A recording is what one client said, cut into turns where the router answered. A mutation changes
octets, fields or turns; it is drawn from a seed, so what a run did can be done again.
"""

import random
import struct
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

import attrs
import trio

RECEIVE_OCTETS: Final = 65536


@attrs.frozen
class Recording:
    """What a client said on one connection.

    Attributes:
        name: whose conversation it is.
        turns: its octets, cut where the router answered.
    """

    name: str
    turns: tuple[bytes, ...]


@attrs.define(eq=False)
class Recorder:
    """A door before the router that takes down what clients say.

    Attributes:
        port: of the router.
        found: conversations that are over.
    """

    port: int
    found: list[Recording] = attrs.field(factory=list)

    async def serve(
        self, name: str, task_status: trio.TaskStatus[int] = trio.TASK_STATUS_IGNORED
    ) -> None:
        """Relays connections until it is cancelled; their recordings bear the name."""
        [listener] = await trio.open_tcp_listeners(0, host="127.0.0.1")
        task_status.started(listener.socket.getsockname()[1])
        await trio.serve_listeners(partial(self._relay, name), [listener])

    async def _relay(self, name: str, client: trio.abc.Stream) -> None:
        router = await trio.open_tcp_stream("127.0.0.1", self.port)
        turns: list[bytearray] = [bytearray()]

        async def speak(nursery: trio.Nursery) -> None:
            async for octets in client:
                turns[-1] += octets
                await router.send_all(octets)
            await router.send_eof()

        async def answer() -> None:
            async for octets in router:
                if turns[-1]:
                    turns.append(bytearray())
                await client.send_all(octets)

        try:
            async with client, router, trio.open_nursery() as nursery:
                nursery.start_soon(speak, nursery)
                await answer()
                nursery.cancel_scope.cancel()
        except* (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            said = tuple(bytes(turn) for turn in turns if turn)
            if said:
                self.found.append(Recording(name, said))


Turns = list[bytes]


def _flip(turn: bytes, chance: random.Random) -> bytes:
    changed = bytearray(turn)
    changed[chance.randrange(len(turn))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def _overwrite(turn: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(turn))
    octets = chance.choice((b"\0", b"\xff", b"\x7f\xff", b"\x80", b"\xff\xff\xff\xff", b"\0\0\0\0"))
    return turn[:at] + octets + turn[at + len(octets) :]


def _number(turn: bytes, chance: random.Random) -> bytes:
    """Puts an extreme number where some field of four octets, a size perhaps, begins."""
    at = chance.randrange(len(turn))
    edge = chance.choice((0, 1, 7, 8, 255, 65535, 65536, 2**31 - 1, 2**31, 2**32 - 1))
    return turn[:at] + struct.pack(">I", edge) + turn[at + 4 :]


def _cut_out(turn: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(turn))
    return turn[:at] + turn[at + chance.randint(1, 64) :]


def _repeat_octets(turn: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(turn))
    return turn[:at] + turn[at : at + chance.randint(1, 200)] * 2 + turn[at:]


def _insert(turn: bytes, chance: random.Random) -> bytes:
    at = chance.randrange(len(turn) + 1)
    return turn[:at] + chance.randbytes(chance.randint(1, 32)) + turn[at:]


def _spoil_name(turn: bytes, chance: random.Random) -> bytes:
    """Changes letters of some text to what is none, and leaves its length alone."""
    starts = [
        at
        for at in range(len(turn) - 4)
        if turn[at : at + 4].isascii() and turn[at : at + 4].isalpha()
    ]
    if not starts:
        return _flip(turn, chance)
    at = chance.choice(starts)
    spoiled = chance.choice(
        (b"\xff\xfe", b"\xed\xa0\x80", b"\0\0", b"\x1b[2J", b"\r\n", b"\xe2\x80\xae", b"..", b"#*")
    )[:4]
    return turn[:at] + spoiled + turn[at + len(spoiled) :]


_OCTETS: Final[Sequence[Callable[[bytes, random.Random], bytes]]] = (
    *(_flip, _overwrite, _number, _cut_out, _repeat_octets, _insert, _spoil_name, _spoil_name),
)


def mutated(recordings: Sequence[Recording], chance: random.Random) -> tuple[str, Turns]:
    """Returns one conversation that went wrong somewhere, and whose it was."""
    recording = chance.choice(recordings)
    turns = list(recording.turns)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        kind = chance.random()
        at = min(int(len(turns) * chance.random() ** 0.5), len(turns) - 1)  # rather late than early
        if kind < 0.75:
            changed = chance.choice(_OCTETS)(turns[at], chance)
            turns[at] = changed or b"\0"
        elif kind < 0.80:
            del turns[at + 1 :]
        elif kind < 0.85:
            turns.insert(at, turns[at])
        elif kind < 0.90 and len(turns) > 1:
            del turns[at]
        elif kind < 0.95:
            other = chance.randrange(len(turns))
            turns[at], turns[other] = turns[other], turns[at]
        else:
            others = chance.choice(recordings).turns
            turns[at:] = others[min(at, len(others) - 1) :]
    return recording.name, turns
