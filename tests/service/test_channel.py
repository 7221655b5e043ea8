"""The channel between supervisor and worker."""

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from router.errors import RouterError
from router.routes.match import PatternError
from router.service.channel import (
    Channel,
    ChannelError,
    Question,
    RefusedError,
    receive_socket,
    send_socket,
)
from router.service.control import UnknownRouteError
from router.service.errands import APPLY, PAUSE, PREPARE, REPORT, WorkerReport
from router.service.transfer import Draft

ECHO = Question[tuple[bytes, int | None]]("echo", (bytes, int | None), tuple[bytes, int | None])


async def echo(octets: bytes, number: int | None) -> tuple[bytes, int | None]:
    await trio.sleep(number or 0)
    return octets, number


@asynccontextmanager
async def channels() -> AsyncIterator[tuple[Channel, Channel, list[WorkerReport]]]:
    """Two ends, running; what the first hears gathers in the list."""
    heard: list[WorkerReport] = []
    ends = socket.socketpair()
    for end in ends:
        end.setblocking(False)
    one, other = (trio.SocketStream(trio.socket.from_stdlib_socket(end)) for end in ends)
    ours = Channel(stream=one, hears={REPORT: (WorkerReport, heard.append)})
    theirs = Channel(stream=other)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(ours.run)
        nursery.start_soon(theirs.run)
        yield ours, theirs, heard
        nursery.cancel_scope.cancel()


async def test_answers_come_in_any_order_and_find_their_questions(autojump_clock: object) -> None:
    async with channels() as (ours, theirs, _):
        theirs.serve({ECHO: echo})
        results: list[tuple[bytes, int | None]] = []

        async def ask(octets: bytes, number: int | None) -> None:
            results.append(await ours.ask(ECHO, octets, number))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ask, b"\x00slow", 2)
            nursery.start_soon(ask, bytes(range(256)) * 5000, None)
            nursery.start_soon(ask, b"fast", 1)
        assert {number: octets for octets, number in results} == {
            2: b"\x00slow",
            None: bytes(range(256)) * 5000,
            1: b"fast",
        }
        assert [number for _, number in results] == [None, 1, 2]


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (UnknownRouteError("orders"), UnknownRouteError("orders")),
        (PatternError("a.#.b", "ends in nothing"), PatternError("a.#.b", "ends in nothing")),
        (RefusedError("no"), RefusedError("no")),
        (ChannelError("elsewhere"), RefusedError("elsewhere")),
    ],
)
async def test_refusals_keep_their_type_where_the_asker_knows_it(
    error: RouterError, expected: RouterError
) -> None:
    async def refuse(route: str) -> None:
        raise error

    async with channels() as (ours, theirs, _):
        theirs.serve({PAUSE: refuse})
        with pytest.raises(type(expected)) as caught:
            await ours.ask(PAUSE, "orders")
        assert type(caught.value) is type(expected)
        assert str(caught.value) == str(expected)


async def test_records_arrive_as_what_they_were() -> None:
    drafts: list[Draft] = []

    async def prepare(draft: Draft) -> None:
        drafts.append(draft)

    report = WorkerReport(taken=3, connections=2, containers=("east",), siblings=(2, 3))
    async with channels() as (ours, theirs, heard):
        theirs.serve({PREPARE: prepare})
        await ours.ask(PREPARE, Draft(frame="ü", own=0, pieces=("a", "b")))
        theirs.tell(REPORT, report)
        with trio.fail_after(60):
            while not heard:
                await trio.sleep(0.01)
    assert drafts == [Draft(frame="ü", own=0, pieces=("a", "b"))]
    assert heard == [report]


async def test_whoever_waits_for_the_other_side_hears_that_it_is_gone() -> None:
    async with channels() as (ours, theirs, _):
        theirs.serve({APPLY: trio.sleep_forever})
        async with trio.open_nursery() as nursery:

            async def ask() -> None:
                with pytest.raises(ChannelError):
                    await ours.ask(APPLY)

            nursery.start_soon(ask)
            await trio.testing.wait_all_tasks_blocked(0.05)
            theirs.close()
        with pytest.raises(ChannelError):
            await ours.ask(APPLY)


async def test_sockets_come_one_by_one_with_their_purpose_and_then_the_end() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    theirs.setblocking(False)
    with ours, theirs:
        for number in range(3):
            near, far = socket.socketpair()
            with near, far:
                far.sendall(b"%d" % number)
                send_socket(ours, {"listener": f"l{number}"}, near)
        ours.shutdown(socket.SHUT_WR)
        for number in range(3):
            received = await receive_socket(theirs)
            assert received is not None
            purpose, sock = received
            with sock:
                assert purpose == {"listener": f"l{number}"}
                assert sock.recv(10) == b"%d" % number
                assert not sock.get_inheritable()
        assert await receive_socket(theirs) is None
