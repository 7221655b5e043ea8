"""The process of a worker, as its supervisor instructs it: what comes when it has drained."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from router.service.channel import RefusedError, send_socket
from router.service.worker_process import WorkerProcess


@attrs.define(eq=False)
class Drained:
    """A worker that serves nothing any more; whatever else it is asked for is an error."""

    is_over: bool = True


@attrs.define(eq=False)
class Crowded:
    """A worker without time for newcomers.

    Attributes:
        came: who has been let in.
    """

    came: list[str] = attrs.field(factory=list)
    is_over: bool = False

    @property
    def plane(self) -> "Crowded":
        return self

    async def wait_for_capacity(self) -> None:
        await trio.sleep_forever()

    def admit(self, sock: socket.socket, listener: str, elsewhere: object) -> None:
        self.came.append("client")
        sock.close()

    def join(self, number: int, sock: socket.socket, *, serves: bool) -> None:
        self.came.append(f"sibling {number}")
        sock.close()

    def join_handing(self, number: int, pair: socket.socket) -> None:
        self.came.append(f"handing {number}")
        pair.close()


@contextmanager
def drained() -> Iterator[tuple[WorkerProcess, socket.socket]]:
    """Gives a process whose worker has drained, and the supervisor's end of its doors."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    mouth, ear = socket.socketpair()
    ours.setblocking(False)
    theirs.setblocking(False)
    with ours, theirs, mouth, ear:
        process: Any = WorkerProcess(mouth, theirs, theirs)
        process._worker = Drained()
        yield process, ours


@pytest.mark.parametrize(
    "purpose",
    [{"sibling": 2, "serves": True}, {"handing": 2}, {"listener": "in", "elsewhere": [0, 0]}],
    ids=lambda purpose: next(iter(purpose)),
)
async def test_sockets_that_were_on_their_way_to_a_worker_that_has_drained_are_closed(
    purpose: dict[str, object],
) -> None:
    with drained() as (process, doors):
        peer, given = socket.socketpair()
        send_socket(doors, purpose, given)
        given.close()
        doors.shutdown(socket.SHUT_WR)
        with trio.fail_after(60):
            await process._receive_sockets(process.doors)
        with peer:
            assert peer.recv(1) == b""


async def test_a_worker_that_has_drained_takes_no_configuration_and_dials_nobody() -> None:
    with drained() as (process, _):
        process._prepared = object()  # type: ignore[assignment]
        with pytest.raises(RefusedError, match="drained"):
            await process._apply()
        await process._own(("cloud",))


async def test_siblings_are_let_in_while_clients_wait_for_time() -> None:
    worker = Crowded()
    with drained() as (process, doors):
        process._worker = worker  # type: ignore[assignment]
        siblings, process.joints = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        process.joints.setblocking(False)
        peer, given = socket.socketpair()
        purposes: list[tuple[socket.socket, dict[str, object]]] = [
            (doors, {"listener": "in", "elsewhere": [0, 0]}),
            (doors, {"listener": "in", "elsewhere": [0, 0]}),
            (siblings, {"sibling": 2, "serves": True}),
            (siblings, {"handing": 2}),
        ]
        for pair, purpose in purposes:
            send_socket(pair, purpose, given)
        with peer, given, siblings, process.joints:
            async with trio.open_nursery() as nursery:
                process.let_in(nursery)
                await trio.testing.wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
    assert sorted(worker.came) == ["client", "handing 2", "sibling 2"]
