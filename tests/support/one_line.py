"""One sender and one receiver of frames at an address, on the express lane or not."""

import struct
from collections.abc import Sequence

from router.model.terminus import Role
from router.routes.route import Guarantee, Route
from tests.support.lane_reference import Worker
from tests.support.lane_world import data_section, transfer

WINDOW = 512


def one_line(mode: str, credit: int, *, second: bool = False) -> Worker:
    """A worker with one receiver, peer 0, and one sender, peer 1."""
    route = Route(address="#", guarantee=Guarantee.AT_LEAST_ONCE)
    worker = Worker(mode, route, 0, WINDOW)
    for peer, role in enumerate((Role.SENDER, Role.RECEIVER)):
        worker.connect(1)
        worker.attach(peer, 0, role, "address", second)
        grant(worker, credit)
    worker.hear()
    return worker


def payload(number: int) -> bytes:
    """What the delivery of a number carries."""
    return data_section(100 + number)


def send(worker: Worker, numbers: Sequence[int], *, settled: bool = False) -> None:
    """Has the sender send deliveries."""
    octets = b"".join(
        transfer(0, each, payload(each), tag=struct.pack(">I", each), settled=settled)
        for each in numbers
    )
    worker.feed(1, octets)
    worker.end_turn()


def grant(worker: Worker, credit: int, window: int = WINDOW) -> None:
    """Has the receiver grant credit."""
    worker.flow(0, 0, window, 0, credit)
    worker.end_turn()


def received(worker: Worker) -> list[bytes]:
    """What the receiver has got since anybody was asked."""
    return [each.payload for each in worker.hear()[0].deliveries.get(0, [])]
