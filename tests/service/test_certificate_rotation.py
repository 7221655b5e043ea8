"""Certificates are replaced under traffic: connections retire and no delivery is lost."""

import ssl
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import attrs
import pytest
import trio

from router.model.delivery import ReceivedDelivery
from router.model.identity import LinkId, LinkName
from router.model.outcome import ACCEPTED, Outcome
from router.net.client.conversation import Conversation, Dialing, LinkMachine
from router.net.client.receiver import ReceivingLink
from router.net.client.sender import SendingLink
from router.routes.route import Guarantee
from router.wire.engine import EngineSettings
from router.wire.v1_0.engine import Engine10
from tests.support.certificates import Certificates, make_certificates
from tests.support.clients import DATA, message
from tests.support.ports import free_port
from tests.support.running import RunningRouter, running_router

pytestmark = pytest.mark.long

SECONDS = 60

LISTENER = """\
router: {{id: {id}, workers: {workers}, admin: off, state: {folder}/{id}}}
listeners:
  - bind: 127.0.0.1:{port}
    tls: {{cert: {cert}, key: {cert}, retire_seconds: {retire}}}
routes:
  - address: "#"
"""
BRIDGE = """\
router: {{id: dialer, workers: 1, admin: off, state: {folder}/dialer}}
listeners:
  - bind: 127.0.0.1:{port}
containers:
  far:
    url: amqps://localhost:{far_port}
    tls: {{ca: {ca}, cert: {cert}, key: {cert}, retire_seconds: 0s}}
    sasl: {{mechanisms: [ANONYMOUS]}}
routes:
  - {{address: orders, to: far}}
"""


@pytest.fixture
def certificates(tmp_path: Path) -> Certificates:
    return make_certificates(tmp_path)


@attrs.define(eq=False)
class Traffic:
    """A sender and a receiver that dial again, and count.

    Attributes:
        is_over: the sender sends nothing more.
        received: how often each number has come.
    """

    is_over: bool = False
    received: Counter[int] = attrs.field(factory=Counter)
    sender: SendingLink = attrs.field(init=False)
    receiver: ReceivingLink = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.sender = SendingLink(
            name=LinkName("test-sender"),
            address="orders",
            supply=self._numbers(),
            guarantee=Guarantee.AT_LEAST_ONCE,
        )
        self.receiver = ReceivingLink(
            name=LinkName("test-receiver"),
            address="orders",
            take=self._take,
            guarantee=Guarantee.AT_LEAST_ONCE,
        )

    def _numbers(self) -> Iterator[bytes]:
        number = 0
        while not self.is_over:
            yield message(struct.pack(">Q", number))
            number += 1

    def _take(self, delivery: ReceivedDelivery) -> Outcome:
        self.received[struct.unpack(">Q", delivery.payload.partition(DATA)[2][4:])[0]] += 1
        return ACCEPTED


def conversation(machine: LinkMachine, port: int, authorities: Path | None) -> Conversation:
    async def dial() -> trio.abc.Stream:
        stream = await trio.open_tcp_stream("localhost", port)
        if authorities is None:
            return stream
        context = ssl.create_default_context(cafile=str(authorities))
        secured = trio.SSLStream(
            stream, context, server_hostname="localhost", https_compatible=True
        )
        await secured.do_handshake()
        return secured

    def engine(link_ids: Iterator[LinkId]) -> Engine10:
        name = type(machine).__name__
        return Engine10(EngineSettings(is_server=False, container=name, link_ids=link_ids))

    return Conversation(Dialing(dial=dial, make_engine=engine), machine)


async def wait_for(router: RunningRouter, text: str, since: int = 0) -> int:
    """Waits for a line of the log; gives the number of the next one."""
    line = await trio.to_thread.run_sync(router.wait_for, text, SECONDS, since)
    return router.log.index(line, since) + 1


async def finish(traffic: Traffic, receiving: Conversation) -> None:
    """Waits until every outcome is told."""
    traffic.is_over = True
    while not traffic.sender.is_done:
        await trio.sleep(0.05)
    receiving.finish()


@pytest.mark.parametrize(
    ("workers", "rotations"),
    [(1, 1), (2, 1), pytest.param(1, 8, marks=pytest.mark.slow)],
)
async def test_clients_change_over_to_the_new_certificate_and_nothing_is_lost(
    tmp_path: Path, certificates: Certificates, workers: int, rotations: int
) -> None:
    port, cert = free_port(), certificates.server("good")
    config = LISTENER.format(
        id="rotating", workers=workers, folder=tmp_path, port=port, cert=cert, retire="0s"
    )
    traffic = Traffic()
    with running_router(config, tmp_path) as router, trio.fail_after(4 * SECONDS):
        receiving = conversation(traffic.receiver, port, certificates.authorities)
        sending = conversation(traffic.sender, port, certificates.authorities)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receiving.run)
            nursery.start_soon(sending.run)
            for kind in ("SendingLink", "ReceivingLink"):
                await wait_for(router, kind)
            while not traffic.received:
                await trio.sleep(0.05)
            for _ in range(rotations):
                seen = len(router.log)
                certificates.renew(cert)
                await wait_for(router, "the certificate has been replaced", seen)
                for _ in range(2):  # both clients are back, in whatever order
                    seen = await wait_for(router, "connection.opened", seen)
            await finish(traffic, receiving)
    outcomes = traffic.sender.report.outcomes
    assert traffic.sender.report.connections == rotations + 1
    assert traffic.receiver.report.connections == rotations + 1
    assert set(traffic.received.values()) == {1}
    assert len(traffic.received) == outcomes["accepted"] > 0
    # What waits for the only receiver is given back when that one leaves.
    assert outcomes.total() == traffic.sender.report.sent
    assert outcomes.keys() <= {"accepted", "released", "modified"}


async def test_a_container_is_dialed_again_with_the_new_certificate_and_nothing_is_lost(
    tmp_path: Path, certificates: Certificates
) -> None:
    far_port, port = free_port(), free_port()
    own = certificates.client("good")
    assert own is not None
    far = LISTENER.format(
        id="far",
        workers=1,
        folder=tmp_path,
        port=far_port,
        cert=certificates.server("good"),
        retire="none",
    )
    config = BRIDGE.format(
        folder=tmp_path, port=port, far_port=far_port, ca=certificates.authorities, cert=own
    )
    (tmp_path / "near").mkdir()
    traffic = Traffic()
    with (
        running_router(far, tmp_path),
        running_router(config, tmp_path / "near") as router,
        trio.fail_after(2 * SECONDS),
    ):
        receiving = conversation(traffic.receiver, far_port, certificates.authorities)
        sending = conversation(traffic.sender, port, None)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(receiving.run)
            nursery.start_soon(sending.run)
            while not traffic.received:
                await trio.sleep(0.05)
            seen = len(router.log)
            certificates.renew(own)
            seen = await wait_for(router, "the certificate has been replaced", seen)
            await wait_for(router, "connection.opened", seen)
            await finish(traffic, receiving)
    assert set(traffic.received.values()) == {1}
    assert traffic.sender.report.outcomes == {"accepted": len(traffic.received)}
