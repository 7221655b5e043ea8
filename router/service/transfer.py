"""Transfers a configuration from the supervisor, which has read the file, to its workers.

Reading a file of a thousand routes takes a third of a second, and would interrupt a worker's
traffic repeatedly. So the supervisor reads the file and sends the resulting objects in pieces, each
of which is loaded within a millisecond. The worker builds the routing table in slices. Traffic goes
on between pieces and between slices.

Unpickling is safe because the sender is trusted: it is the supervisor, which runs the same program,
over a socket pair that no other process holds.
"""

import base64
import pickle
from typing import Any, Final

import attrs
import trio

from router.net.leisure import at_leisure
from router.routes.route import Route
from router.routes.table import RoutingTable
from router.service.config.load import RouterConfig

PIECE_ROUTES: Final = 100
"""Routes in a piece, which take half a millisecond to load."""


@attrs.frozen(kw_only=True)
class Draft:
    """A configuration on its way to a worker.

    Attributes:
        frame: everything but the routes and objects derived from them; pickled, in base64.
        pieces: the routing table's routes in order; also pickled, in base64.
        own: how many of the first routes come from the file; the others are the router's own.
    """

    frame: str
    own: int
    pieces: tuple[str, ...]

    @property
    def octets(self) -> int:
        """How long it is."""
        return len(self.frame) + sum(map(len, self.pieces))


def pack(config: RouterConfig) -> Draft:
    """Returns a configuration in the form in which it is sent, without promises and notes."""
    frame = attrs.evolve(config, routes=(), table=RoutingTable(), promises=(), notes=())
    routes = config.table.routes
    starts = range(0, len(routes), PIECE_ROUTES)
    return Draft(
        frame=_wrap(frame),
        own=len(config.routes),
        pieces=tuple(_wrap(routes[at : at + PIECE_ROUTES]) for at in starts),
    )


async def unpack(draft: Draft) -> RouterConfig:
    """Rebuilds a configuration that ``pack`` made, and lets other tasks run between the pieces."""
    frame: RouterConfig = _unwrap(draft.frame)
    routes: list[Route] = []
    for piece in draft.pieces:
        routes += _unwrap(piece)
        await trio.lowlevel.checkpoint()
    table = await at_leisure(RoutingTable.in_slices(routes))
    return attrs.evolve(frame, routes=table.routes[: draft.own], table=table)


def _wrap(value: object) -> str:
    return base64.b64encode(pickle.dumps(value, pickle.HIGHEST_PROTOCOL)).decode()


def _unwrap(text: str) -> Any:
    return pickle.loads(base64.b64decode(text))
