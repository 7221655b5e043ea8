"""Which connections are to end after their certificate was replaced."""

import itertools
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest

from router.model.identity import ConnectionId
from router.net.connection import Connection, Stage
from router.net.rotation import SPREAD, Rotation, find_retiring
from router.net.tls import TlsSession
from router.net.tls_files import TlsContext, TlsFiles
from router.net.tls_stream import MemoryStream
from router.wire.engine import Engine
from tests.support.plain import PlainEngine
from tests.support.planes import Papers, papers

HOUR = 3600.0


@attrs.define
class Clock:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@attrs.define(eq=False)
class Scene:
    """A listener ``secure`` with a certificate that can be replaced."""

    signed: Papers
    clock: Clock
    context: TlsContext
    ids: Iterator[int] = attrs.field(factory=lambda: iter(range(1, 1000)))

    def connect(self, **fields: Any) -> Connection:
        session = TlsSession(self.context.current())
        connection = make(next(self.ids), PlainEngine(), **fields)
        connection.stream = MemoryStream(session, connection.socket)
        return connection

    def replace(self) -> None:
        self.signed.write_server()
        self.clock.now += 2
        self.context.current()

    def retiring(
        self, connections: list[Connection], seconds: float | None = HOUR
    ) -> list[Connection]:
        rotations = {"secure": Rotation(context=self.context, retire_seconds=seconds)}
        return find_retiring(connections, rotations, self.clock.now)


def make(number: int, engine: Engine, **fields: Any) -> Connection:
    place: dict[str, Any] = {"listener": "secure", "container": None, **fields}
    return Connection(
        id=ConnectionId(number),
        engine=engine,
        socket=socket.socket(),
        address="peer",
        since=0.0,
        on_end=None,
        **place,
    )


@pytest.fixture
def stage(tmp_path: Path) -> Scene:
    signed, clock = papers(tmp_path), Clock()
    return Scene(signed, clock, TlsContext(signed.server_files(), TlsFiles.server_context, clock))


def test_connections_end_a_while_after_their_certificate_was_replaced(stage: Scene) -> None:
    old = stage.connect()
    assert stage.retiring([old]) == []
    stage.replace()
    fresh = stage.connect()
    replaced_at = stage.clock.now
    assert stage.retiring([old, fresh]) == []
    stage.clock.now = replaced_at + HOUR - 1
    assert stage.retiring([old, fresh]) == []
    stage.clock.now = replaced_at + HOUR * (1 + SPREAD)
    assert stage.retiring([old, fresh]) == [old]


def test_they_end_one_after_the_other_over_a_tenth_of_that_time(stage: Scene) -> None:
    old = [stage.connect() for _ in range(50)]
    stage.replace()
    replaced_at = stage.clock.now
    counts = []
    for step in range(11):
        stage.clock.now = replaced_at + HOUR * (1 + SPREAD * step / 10)
        counts.append(len(stage.retiring(old)))
    assert counts[0] <= 1
    assert counts[-1] == 50
    steps = [after - before for before, after in itertools.pairwise(counts)]
    assert max(steps) <= 8


def test_who_has_no_such_limit_stays(stage: Scene) -> None:
    old = stage.connect()
    stage.replace()
    stage.clock.now += 100 * HOUR
    assert stage.retiring([old], None) == []


def test_plain_and_other_and_ended_connections_are_left_alone(stage: Scene) -> None:
    elsewhere = stage.connect(listener="other")
    ended = stage.connect(stage=Stage.FINISHING)
    dialed = stage.connect(listener=None, container="secure")
    plain = make(99, PlainEngine())
    stage.replace()
    stage.clock.now += 2 * HOUR
    assert stage.retiring([elsewhere, ended, dialed, plain]) == [dialed]


def test_a_reload_that_leaves_the_files_alone_replaces_nothing(stage: Scene) -> None:
    old = stage.connect()
    after = TlsContext(
        attrs.evolve(stage.signed.server_files(), option="listeners[1].tls"),
        TlsFiles.server_context,
        stage.clock,
    )
    after.succeed(stage.context)
    stage.context = after
    stage.clock.now += 2 * HOUR
    assert stage.retiring([old]) == []
    stage.replace()
    stage.clock.now += 2 * HOUR
    assert stage.retiring([old]) == [old]


def test_a_reload_with_other_files_replaces_and_what_was_replaced_before_stays_so(
    stage: Scene,
) -> None:
    oldest = stage.connect()
    stage.replace()
    old = stage.connect()
    stage.clock.now += HOUR / 2
    after = TlsContext(stage.signed.server_files(verify=True), TlsFiles.server_context, stage.clock)
    after.succeed(stage.context)
    stage.context = after
    stage.clock.now += 0.7 * HOUR
    assert stage.retiring([oldest, old]) == [oldest]
    stage.clock.now += HOUR
    assert stage.retiring([oldest, old]) == [oldest, old]
