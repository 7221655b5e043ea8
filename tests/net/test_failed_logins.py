"""A failed login is answered late, and meanwhile everybody else is served."""

from contextlib import suppress

import pytest
import trio
from structlog.testing import capture_logs
from trio.testing import wait_all_tasks_blocked

from router.model.capabilities import Protocol
from router.net.attempts import FIRST_SECONDS, WAITING_MOST
from router.net.reception import ListenerSettings, Transport
from router.wire.detect import Door
from router.wire.engine import Engine, EngineSettings
from router.wire.mechanisms import MechanismServer
from router.wire.v0_9_1.engine import make_engine
from router.wire.v1_0.engine import Engine10
from router.wire.v1_0.frames import SASL, SASL_HEADER, frame
from router.wire.v1_0.performatives import SaslCode, SaslInit, SaslOutcome, encode
from tests.support.planes import house, receive_exactly, receive_rest


class Pencil:
    """Everybody's password is ``pencil``."""

    def verify_plain(self, user: str, password: str) -> bool:
        return password == "pencil"


def make(protocol: Protocol, transport: Transport) -> Engine:
    settings = EngineSettings(
        is_server=True,
        container="dc1",
        sasl_required=True,
        sasl_server=lambda: MechanismServer(offer=("PLAIN",), verifier=Pencil()),
    )
    return Engine10(settings) if protocol is Protocol.AMQP_1_0 else make_engine(settings)


def listener_settings() -> ListenerSettings:
    door = Door(protocols={Protocol.AMQP_1_0, Protocol.AMQP_0_9_1}, sasl_required=True)
    return ListenerSettings(listener="door", door=door, make_engine=make)


def login(password: str) -> bytes:
    init = SaslInit("PLAIN", b"\0bob\0" + password.encode(), None)
    return SASL_HEADER + frame(0, encode(init), kind=SASL)


BAD = frame(0, encode(SaslOutcome(SaslCode.AUTH)), kind=SASL)
GOOD = frame(0, encode(SaslOutcome(SaslCode.OK)), kind=SASL)


async def read_until(stream: trio.SocketStream, wanted: bytes) -> None:
    seen = b""
    while wanted not in seen:
        octets = await stream.receive_some()
        assert octets, f"the end came after {seen.hex(' ')}"
        seen += octets


async def test_a_wrong_password_is_answered_late_and_a_right_one_at_once() -> None:
    async with house() as at:
        await at.listen(listener_settings())
        wrong, right = await at.dial(), await at.dial()
        with capture_logs() as lines:
            began = trio.current_time()
            await wrong.send_all(login("pen"))
            await right.send_all(login("pencil"))
            await read_until(right, GOOD)
            assert trio.current_time() - began < FIRST_SECONDS
            await read_until(wrong, BAD)
            assert trio.current_time() - began >= FIRST_SECONDS
        (line,) = [each for each in lines if each["event"] == "login.failed"]
        assert (line["count"], line["seconds"]) == (1, FIRST_SECONDS)


async def test_ending_the_stream_brings_the_answer_no_sooner() -> None:
    async with house() as at:
        await at.listen(listener_settings())
        wrong = await at.dial()
        await wrong.send_all(login("pen"))
        await wrong.send_eof()
        with trio.move_on_after(FIRST_SECONDS / 2) as patience:
            await read_until(wrong, BAD)
        assert patience.cancelled_caught


@pytest.mark.long
async def test_the_worker_rests_while_an_answer_waits_for_a_peer_that_has_ended_the_stream() -> (
    None
):
    """It took turn after turn for the end that it had read, and newcomers had to wait."""
    async with house() as at:
        await at.listen(listener_settings())
        wrong = await at.dial()
        await wrong.send_all(login("pen"))
        await wrong.send_eof()
        await trio.sleep(FIRST_SECONDS / 5)
        with trio.move_on_after(FIRST_SECONDS / 2) as patience:
            await wait_all_tasks_blocked(FIRST_SECONDS / 20)
        assert not patience.cancelled_caught
        await receive_rest(wrong)


async def test_guessing_on_many_connections_is_no_longer_served() -> None:
    async with house() as at:
        await at.listen(listener_settings())
        guessing = []
        with capture_logs() as lines:
            for _ in range(WAITING_MOST + 8):
                peer = await at.dial()
                guessing.append(peer)
                with suppress(trio.BrokenResourceError):
                    await peer.send_all(login("pen"))
                await wait_all_tasks_blocked(0.01)
        refusals = [each["reason"] for each in lines if each["event"] == "connection.refused"]
        assert refusals
        assert "failed logins from 127.0.0.1 wait for their answers" in refusals[0]
        failed = [each for each in lines if each["event"] == "login.failed"]
        assert len(failed) + len(refusals) == WAITING_MOST + 8


async def test_clients_of_0_9_1_wait_likewise() -> None:
    async with house() as at:
        await at.listen(listener_settings())
        peer = await at.dial()
        await peer.send_all(b"AMQP\x00\x00\x09\x01")
        await receive_exactly(peer, 8)
        arguments = (
            b"\x00\x00\x00\x00" + b"\x05PLAIN" + b"\x00\x00\x00\x08\0bob\0pen" + b"\x05en_US"
        )
        method = b"\x00\x0a\x00\x0b" + arguments
        began = trio.current_time()
        await peer.send_all(b"\x01\x00\x00" + len(method).to_bytes(4, "big") + method + b"\xce")
        await receive_rest(peer)
        assert trio.current_time() - began >= FIRST_SECONDS
