"""One client's way to the router: it is cut, or held up and let go when its client has gone on.

Theory of operation. A client that is held up gives up (its side is reset, as by a time-out) and
dials again; what it had said still arrives, behind or before the attach of the next connection. So
an attach steals the link from its successor, with an old map; transfers, dispositions and detaches
arrive for a link that has gone on elsewhere.
"""

import math
import random
from contextlib import suppress

import attrs
import trio

from tests.support.holdable import Holdable, Relayed

ATTACH = b"\x00\x53\x12"
SOME_OCTETS = 700
"""Some frames, or part of one."""
HELD_SECONDS = 2.0
"""To wait for something to be held, and then at most before it is let go."""


@attrs.define(eq=False)
class Way:
    """The relay of one client.

    Attributes:
        cuts: how often the present connection was reset.
        late_attaches: attaches that arrived when their client had gone.
        late_others: the like of anything else.
    """

    relay: Holdable
    cuts: int = 0
    late_attaches: int = 0
    late_others: int = 0
    _held: Relayed | None = None
    _is_busy: bool = False

    @property
    def port(self) -> int:
        """Where the client dials."""
        return self.relay.port

    def cut(self) -> None:
        """Resets the present connection."""
        self.cuts += 1
        self._cut()

    async def hold_up_attach(self, chance: random.Random) -> None:
        """Has the next connection held up from its attach on, perhaps in the middle of it."""
        if not self._is_busy:
            self._is_busy = True
            self.relay.hold_next_at(ATTACH, chance.choice((0, chance.randrange(SOME_OCTETS))))
            self._cut()
            relayed = await self._came(len(self.relay.connections) + 1)
            self.late_attaches += await self._let_go_late(relayed, chance)

    async def hold_up_stream(self, chance: random.Random) -> None:
        """Holds the present connection up, in the middle of what it says."""
        if not self._is_busy and self.relay.connections:
            self._is_busy = True
            relayed = self.relay.connections[-1]
            relayed.forth.hold(chance.randrange(SOME_OCTETS))
            self.late_others += await self._let_go_late(relayed, chance)

    def release(self) -> None:
        """Lets go what is held."""
        for relayed in self.relay.connections:
            relayed.forth.release()

    def _cut(self) -> None:
        if self.relay.connections:
            relayed = self.relay.connections[-1]
            if relayed is self._held:
                relayed.cut_near()  # what is held arrives all the same
            else:
                relayed.cut()

    async def _came(self, count: int) -> Relayed:
        return await self.relay.came(count, seconds=math.inf)

    async def _let_go_late(self, relayed: Relayed, chance: random.Random) -> bool:
        """Lets a connection go when its client has gone on; returns whether it held anything."""
        self._held = relayed
        count = len(self.relay.connections)
        with suppress(trio.TooSlowError):
            await relayed.forth.wait_held(1, HELD_SECONDS)
        await trio.sleep(chance.uniform(0, 0.3))
        relayed.cut_near()
        if chance.random() < 0.8:  # else perhaps before the next one
            await self._came(count + 1)
        await trio.sleep(chance.uniform(0, HELD_SECONDS))
        is_late = bool(relayed.forth.held) and not relayed.back.has_ended
        relayed.forth.release()
        self._held, self._is_busy = None, False
        return is_late
