"""What connections of every protocol before 1.0 have in common, on a machine that speaks none."""

import enum
import math

import pytest

from router.model.condition import RESOURCE_LIMIT_EXCEEDED
from router.model.events import ConnectionClosed, OutputPending
from router.wire.engine import EngineSettings
from router.wire.machine import (
    CLOSE_SECONDS,
    HELD_LIMIT_OCTETS,
    HELD_STOP_OCTETS,
    ConnectionMachine,
    MachinePhase,
)


class Step(enum.Enum):
    GREETING = "a greeting"


class OverfullError(Exception):
    pass


class Plain(ConnectionMachine):
    """Takes whatever comes and remembers it."""

    def __init__(self) -> None:
        settings = EngineSettings(
            is_server=True, container="c", output_high_octets=100, output_low_octets=10
        )
        super().__init__(settings, Step.GREETING)
        self.taken: list[bytes] = []
        self.cuts = 0

    def read(self, octets: bytes) -> None:
        self.taken.append(octets)

    def send_heartbeat(self) -> None:
        self.output.append(b"beat")

    def cut_off(self) -> None:
        self.cuts += 1

    def overfull(self) -> Exception:
        return OverfullError()


@pytest.fixture
def machine() -> Plain:
    """An opened machine, at second 1000."""
    found = Plain()
    found.receive_data(b"hello", 1000.0)
    found.opened()
    return found


def _due(machine: Plain) -> float:
    """When the machine wants to be called."""
    return math.inf if machine.deadline is None else machine.deadline


def _sent(machine: Plain) -> bytes:
    octets = bytes(machine.data_to_send())
    machine.bytes_sent(len(octets))
    return octets


def test_a_handshake_that_takes_too_long_is_given_up_and_the_step_named() -> None:
    machine = Plain()
    assert _due(machine) == math.inf
    machine.receive_data(b"h", 1000.0)
    late = 1000.0 + machine.settings.handshake_seconds
    assert _due(machine) == late
    assert machine.handle_deadline(late - 0.1) == []
    (closed,) = machine.handle_deadline(late)
    assert isinstance(closed, ConnectionClosed)
    assert closed.condition is not None
    assert closed.condition.name == RESOURCE_LIMIT_EXCEEDED
    assert closed.condition.description == "no a greeting within 15 s"
    assert machine.finished
    assert _due(machine) == math.inf


def test_an_opened_machine_without_a_heartbeat_waits_for_ever(machine: Plain) -> None:
    machine.start_heartbeat(0)
    assert _due(machine) == math.inf
    assert machine.handle_deadline(math.inf) == []
    assert not machine.finished


def test_a_heartbeat_is_sent_twice_within_its_time_unless_something_else_is(machine: Plain) -> None:
    machine.start_heartbeat(10)
    heard = []
    for second in range(1005, 1025, 5):
        machine.receive_data(b"x", second)
        assert _due(machine) == second
        machine.handle_deadline(second)
        heard.append(_sent(machine))
    assert heard == [b"", b"beat", b"beat", b"beat"]
    machine.output.append(b"other")
    _sent(machine)
    machine.handle_deadline(1025)
    assert _sent(machine) == b""


def test_a_silent_peer_is_given_up_but_not_while_nobody_reads(machine: Plain) -> None:
    machine.keep_alive(0, 20)
    assert _due(machine) == 1020
    machine.hold_octets(HELD_STOP_OCTETS + 1)
    assert machine.handle_deadline(1020) == []
    machine.hold_octets(-HELD_STOP_OCTETS - 1)
    assert _due(machine) == 1040
    (closed,) = machine.handle_deadline(1040)
    assert isinstance(closed, ConnectionClosed)
    assert closed.condition is not None
    assert closed.condition.description == "no input for 20 s"
    assert machine.cuts == 1


def test_reading_stops_when_much_waits_and_goes_on_when_half_is_gone(machine: Plain) -> None:
    machine.hold_octets(HELD_STOP_OCTETS)
    waits = [machine.input_waits]
    for octets in (1, -HELD_STOP_OCTETS // 2, -1):
        machine.hold_octets(octets)
        waits.append(machine.input_waits)
    assert waits == [False, True, True, False]


def test_whoever_does_not_stop_reading_is_refused(machine: Plain) -> None:
    machine.hold_octets(HELD_LIMIT_OCTETS)
    with pytest.raises(OverfullError):
        machine.hold_octets(1)
    machine.hold_octets(-1)


@pytest.mark.parametrize("parked", [0, 60])
def test_congestion_is_told_once_when_it_begins_and_once_when_it_ends(
    machine: Plain, parked: int
) -> None:
    machine.parked_octets = parked
    machine.output.append(bytes(99 - parked))
    assert machine.receive_data(b"x", 1001.0) == []
    machine.output.append(b"o")
    assert machine.receive_data(b"x", 1001.0) == [OutputPending(True)]
    assert machine.receive_data(b"x", 1001.0) == []
    machine.parked_octets = 0
    machine.bytes_sent(machine.output.octets - 11)
    assert _due(machine) != -math.inf
    machine.bytes_sent(1)
    assert _due(machine) == -math.inf
    assert machine.handle_deadline(1001.0) == [OutputPending(False)]


def test_the_end_is_told_once_when_it_begins(machine: Plain) -> None:
    machine.await_close()
    machine.report_end(None, False)
    assert machine.is_ending
    assert machine.receive_data(b"x", 1001.0) == [ConnectionClosed(None, False)]
    assert _due(machine) == 1000.0 + CLOSE_SECONDS
    assert machine.handle_deadline(1000.0 + CLOSE_SECONDS) == []
    assert machine.phase is MachinePhase.CLOSED
    assert machine.receive_eof(1010.0) == []
    assert machine.cuts == 0


def test_a_stream_that_ends_without_a_close_is_the_peers_doing(machine: Plain) -> None:
    (closed,) = machine.receive_eof(1001.0)
    assert isinstance(closed, ConnectionClosed)
    assert closed.by_peer
    assert machine.cuts == 1
    assert machine.receive_data(b"more", 1002.0) == []
    assert machine.taken == [b"hello"]
