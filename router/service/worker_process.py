"""A worker as a process of its own, started by ``supervisor``.

Theory of operation. The process inherits three Unix sockets: the *channel*, over which it receives
its configuration and is asked for its state, the *doors*, over which it receives accepted sockets,
and the *joints*, over which it receives those that lead to its siblings. Clients wait at the doors
while there is no time for newcomers; siblings never wait. It has no listening socket. It serves
from ``BEGIN`` on, which may be long after ``GET_READY``, and ends as soon as the channel does:
without its supervisor it would receive nothing more, and a new supervisor starts new workers.
Signals for the router as a whole are ignored from the first moment (``member``): the supervisor
handles them and instructs the workers.
"""

import argparse
import socket
from typing import Any

import attrs
import structlog
import trio

from router.net.reception import Elsewhere
from router.service import errands, garbage
from router.service.assembly import Assembly
from router.service.channel import Channel, RefusedError, receive_socket
from router.service.control import LocalControl
from router.service.errands import Duty, WorkerReport
from router.service.log import FloodGate, configure_logging, report_floods, set_log_level
from router.service.proxy import Traces, answers
from router.service.setup import prepare_process
from router.service.transfer import Draft, unpack
from router.service.worker import Worker, make_worker


def main() -> int:
    """Runs one worker until its supervisor is gone or has drained it; returns the exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--channel", type=int, required=True)
    parser.add_argument("--doors", type=int, required=True)
    parser.add_argument("--joints", type=int, required=True)
    options = parser.parse_args()
    channel, doors, joints = (
        socket.socket(fileno=each) for each in (options.channel, options.doors, options.joints)
    )
    for each in (channel, doors, joints):
        each.set_inheritable(False)
        each.setblocking(False)
    prepare_process()
    trio.run(WorkerProcess(channel, doors, joints).run)
    return 0


@attrs.define(eq=False)
class WorkerProcess:
    """Serves as the supervisor instructs it, until the supervisor is gone."""

    channel_socket: socket.socket
    doors: socket.socket
    joints: socket.socket
    _channel: Channel = attrs.field(init=False)
    _nursery: trio.Nursery = attrs.field(init=False)
    _worker: Worker = attrs.field(init=False)
    _gate: FloodGate = attrs.field(init=False)
    _duty: Duty | None = attrs.field(default=None, init=False)
    _prepared: Assembly | None = attrs.field(default=None, init=False)
    _taken: int = attrs.field(default=0, init=False)
    _log: Any = attrs.field(factory=structlog.get_logger, init=False)

    async def run(self) -> None:
        """Serves until the channel ends."""
        stream = trio.SocketStream(trio.socket.from_stdlib_socket(self.channel_socket))
        self._channel = Channel(stream=stream)
        self._channel.serve(
            {
                errands.GET_READY: self._get_ready,
                errands.BEGIN: self._begin,
                errands.PREPARE: self._prepare,
                errands.APPLY: self._apply,
                errands.OWN: self._own,
                errands.DRAIN: self._drain,
                errands.SET_LOG_LEVEL: self._set_log_level,
            }
        )
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            await self._channel.run()
            nursery.cancel_scope.cancel()

    async def _get_ready(self, duty: Duty) -> None:
        self._gate = configure_logging(
            is_json=duty.is_json, level=duty.log_level, worker=duty.number
        )
        self._worker = make_worker(
            await unpack(duty.draft),
            number=duty.number,
            containers=frozenset(duty.containers),
            workers=duty.workers,
            tickets=duty.tickets,
        )
        self._duty = duty
        garbage.settle()

    async def _begin(self, duty: Duty) -> str:
        if duty != self._duty:
            await self._get_ready(duty)
        worker = self._worker
        nursery = self._nursery
        await nursery.start(worker.run)
        control = LocalControl(worker, duty.number)
        await nursery.start(control.run)
        for route in duty.paused:
            await control.pause(route)
        self._channel.serve(answers(control, Traces(control, nursery)))
        nursery.start_soon(report_floods, self._gate)
        self.let_in(nursery)
        nursery.start_soon(self._report)
        garbage.settle()
        nursery.start_soon(garbage.sweep)
        return worker.express_kind

    async def _prepare(self, draft: Draft) -> None:
        self._prepared = None
        with garbage.exchange(draft.octets):
            self._prepared = self._worker.prepare(await unpack(draft))

    async def _apply(self) -> dict[str, int]:
        prepared, self._prepared = self._prepared, None
        if self._worker.is_over:
            raise RefusedError("it has drained")
        if prepared is None:
            raise RefusedError("nothing is prepared")
        return self._worker.apply(prepared)

    async def _own(self, containers: tuple[str, ...]) -> None:
        if not self._worker.is_over:
            self._worker.own(frozenset(containers))

    async def _drain(self) -> bool:
        return await self._worker.drain()

    async def _set_log_level(self, level: str) -> None:
        set_log_level(level)

    def let_in(self, nursery: trio.Nursery) -> None:
        """Begins to accept sockets; siblings do not wait for the time that clients wait for."""
        nursery.start_soon(self._receive_sockets, self.doors)
        nursery.start_soon(self._receive_sockets, self.joints)

    async def _receive_sockets(self, pair: socket.socket) -> None:
        while (received := await receive_socket(pair)) is not None:
            purpose, sock = received
            if self._worker.is_over:  # the supervisor gave it before it heard of that
                sock.close()
                continue
            match purpose:
                case {"listener": str(listener), "elsewhere": [int(count), int(from_source)]}:
                    self._taken += 1
                    self._worker.admit(sock, listener, Elsewhere(count, from_source))
                    await self._worker.plane.wait_for_capacity()
                case {"sibling": int(number), "serves": bool(serves)}:
                    self._worker.join(number, sock, serves=serves)
                case {"handing": int(number)}:
                    self._worker.join_handing(number, sock)
                case _:
                    self._log.error("socket.unknown", reason=str(purpose))
                    sock.close()

    async def _report(self) -> None:
        """Reports the worker's state whenever it has changed."""
        last: WorkerReport | None = None
        while True:
            worker = self._worker
            report = WorkerReport(
                taken=self._taken,
                connections=worker.admitted_count,
                containers=tuple(sorted(worker.connected_containers)),
                siblings=tuple(sorted(worker.acquainted)),
                sources=worker.sources,
            )
            if report != last:
                self._channel.tell(errands.REPORT, report)
                last = report
                await trio.sleep(errands.LOAD_SECONDS)
                continue
            with trio.move_on_after(errands.QUIET_SECONDS):
                await worker.plane.wait_turn()
                await trio.sleep(errands.LOAD_SECONDS)
