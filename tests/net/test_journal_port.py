"""What a worker's connection to the journal reports when it falls behind, or fails."""

import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

import attrs
import pytest
import trio
from structlog.testing import capture_logs

from router.journal.client import ClientState, JournalClient
from router.journal.protocol import Health
from router.net.journal import BEHIND_SECONDS, JournalPort
from router.net.poller import Poller


@attrs.define(eq=False)
class KnownClient:
    """A client whose state is set by hand, and which has nothing to send."""

    state: ClientState = ClientState.OPEN
    health: Health = Health.WRITING
    is_over_budget: bool = False
    errno: int = 0
    refusal: None = None
    waiting_octets: int = 7

    def connection_made(self) -> None: ...

    def connection_lost(self) -> None: ...

    def data_to_send(self) -> bytes:
        return b""


class NoPoller:
    """Waits for nothing."""

    def add(self, descriptor: int, interest: int) -> None: ...

    def remove(self, descriptor: int) -> None: ...


@attrs.define(eq=False)
class Scene:
    """A port whose journal accepts it, with a clock."""

    path: Path
    now: float = 0.0
    client: KnownClient = attrs.field(factory=KnownClient)
    told: list[bool] = attrs.field(factory=list)
    port: JournalPort = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.port = JournalPort(
            client=cast(JournalClient, self.client),
            path=self.path,
            core=self,
            carry_out=lambda orders: None,
            poller=cast(Poller, NoPoller()),
            clock=lambda: self.now,
        )

    def durable(self, sequence: int, now: float) -> Iterable[Any]:
        return ()

    def journal_stuck(self, is_stuck: bool, now: float) -> Iterable[Any]:
        self.told.append(is_stuck)
        return ()

    def burst(self) -> None:
        for is_over in (True, False):
            self.client.is_over_budget = is_over
            self.port.flush()


@pytest.fixture
async def scene(tmp_path: Path, nursery: trio.Nursery) -> Scene:
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind(str(tmp_path / "journal"))
    listener.listen()
    made = Scene(tmp_path / "journal")
    nursery.start_soon(made.port.run)
    while made.port.descriptor < 0:
        await trio.sleep(0)
    return made


async def test_bursts_that_pass_are_logged_once_a_minute(scene: Scene) -> None:
    with capture_logs() as lines:
        for _ in range(4):
            scene.burst()
            scene.now += 0.04
        assert scene.told == [True, False] * 4
        assert [line["event"] for line in lines] == ["journal.behind", "journal.moving"]
        assert lines[0]["log_level"] == "warning"
        scene.now += BEHIND_SECONDS
        scene.burst()
    assert len(lines) == 4


async def test_a_journal_that_fails_while_it_is_behind_is_an_error_all_the_same(
    scene: Scene,
) -> None:
    scene.burst()
    with capture_logs() as lines:
        scene.client.is_over_budget = True
        scene.port.flush()
        assert lines == []
        scene.client.state = ClientState.LOST
        scene.port._judge()
        scene.client.state, scene.client.is_over_budget = ClientState.OPEN, False
        scene.port.flush()
    assert [line["event"] for line in lines] == ["journal.stuck", "journal.moving"]
    assert scene.told == [True, False, True, False]
