"""A configuration on its way from the supervisor, which has read the file, to its workers.

Reading a file of a thousand routes takes a third of a second, and a worker that did it would stop
its traffic again and again meanwhile. So the supervisor reads, and sends what it has read: the
objects, in pieces, each taken in within a millisecond. The routing table is put together by the
worker, in slices. Between two pieces, and between two slices, traffic goes on.

Pickled objects are as safe as who sends them: it is the supervisor, over a pair of sockets that
nobody else holds, and it runs the same program.
"""

import base64
import pickle
from collections.abc import Generator
from typing import Any, Final

import attrs
import trio

from router.routes.route import Route
from router.routes.table import RoutingTable
from router.service.config.load import RouterConfig

PIECE_ROUTES: Final = 100
"""Routes in a piece: half a millisecond's work."""


@attrs.frozen(kw_only=True)
class Draft:
    """A configuration on its way to a worker.

    Attributes:
        frame: all of it but the routes and what is made of them; pickled, in base64.
        pieces: the routing table's routes likewise, in order.
        own: how many of these, from the first one on, the file gives; others are the router's.
    """

    frame: str
    own: int
    pieces: tuple[str, ...]


def pack(config: RouterConfig) -> Draft:
    """Returns a configuration the form in which it travels; promises and notes stay behind."""
    frame = attrs.evolve(config, routes=(), table=RoutingTable(), promises=(), notes=())
    routes = config.table.routes
    starts = range(0, len(routes), PIECE_ROUTES)
    return Draft(
        frame=_wrap(frame),
        own=len(config.routes),
        pieces=tuple(_wrap(routes[at : at + PIECE_ROUTES]) for at in starts),
    )


async def unpack(draft: Draft) -> RouterConfig:
    """Puts together what ``pack`` took apart, and lets other tasks run between the pieces."""
    frame: RouterConfig = _unwrap(draft.frame)
    routes: list[Route] = []
    for piece in draft.pieces:
        routes += _unwrap(piece)
        await trio.lowlevel.checkpoint()
    building = RoutingTable.in_slices(routes)
    table = await _finish(building)
    return attrs.evolve(frame, routes=table.routes[: draft.own], table=table)


async def _finish(building: Generator[None, None, RoutingTable]) -> RoutingTable:
    while True:
        try:
            next(building)
        except StopIteration as end:
            table: RoutingTable = end.value
            return table
        await trio.lowlevel.checkpoint()


def _wrap(value: object) -> str:
    return base64.b64encode(pickle.dumps(value, pickle.HIGHEST_PROTOCOL)).decode()


def _unwrap(text: str) -> Any:
    return pickle.loads(base64.b64decode(text))
