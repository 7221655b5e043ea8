"""What tests of several worker processes need: who they are, and clients that outlive them."""

import json
import os
import signal
import socket
from collections import Counter
from collections.abc import Iterator
from functools import partial

import attrs
import trio

from router.model.delivery import ReceivedDelivery
from router.model.identity import LinkId, LinkName
from router.model.outcome import ACCEPTED, DeliveryState
from router.net.client.conversation import Conversation, Dialing
from router.net.client.message import numbered
from router.net.client.receiver import ReceivingLink
from router.net.client.sender import SendingLink
from router.routes.route import Guarantee
from router.wire.engine import EngineSettings
from router.wire.v1_0.engine import Engine10
from router.wire.v1_0.frames import AMQP_HEADER, frame
from router.wire.v1_0.performatives import Open, encode
from router.wire.v1_0.sections import decode_message
from tests.support.planes import dial
from tests.support.running import RunningRouter


def lines(router: RunningRouter, event: str) -> list[dict[str, object]]:
    """The lines of the log that tell of an event."""
    told = (json.loads(line) for line in tuple(router.log) if line.startswith("{"))
    return [line for line in told if line["event"] == event]


def address_of(router: RunningRouter) -> str:
    """Where its only listener listens."""
    (ready,) = lines(router, "router.ready")
    listeners = ready["listeners"]
    assert isinstance(listeners, list)
    return str(listeners[0])


def processes(router: RunningRouter) -> dict[int, int]:
    """The process of each worker that serves, by its number."""
    found: dict[int, int] = {}
    for line in tuple(router.log):
        told = json.loads(line) if line.startswith("{") else {}
        if told.get("event") == "worker.started":
            found[told["worker"]] = told["process"]
        elif told.get("event") == "worker.ended":
            found.pop(told["worker"], None)
    return found


def spread(router: RunningRouter) -> Counter[object]:
    """How many client connections each worker has been given, as the log tells it."""
    opened = lines(router, "connection.opened")
    return Counter(line["worker"] for line in opened if not str(line["container"]).startswith("/"))


def kill(process: int) -> None:
    """Ends a process the hard way."""
    os.kill(process, signal.SIGKILL)


def greet(address: str, container: str) -> socket.socket:
    """Opens a connection, says who it is, and waits until the router has said so too."""
    host, _, port = address.rpartition(":")
    peer = socket.create_connection((host, int(port)))
    peer.settimeout(10)
    peer.sendall(AMQP_HEADER + frame(0, encode(Open(container_id=container))))
    octets = b""
    while len(octets) <= len(AMQP_HEADER):
        octets += peer.recv(4096)
    return peer


async def wait_gone(process: int, seconds: float = 90.0) -> None:
    """Returns when a process is no more, or is dead and not waited for."""
    with trio.fail_after(seconds):
        while True:
            try:
                with open(f"/proc/{process}/stat") as file:
                    if file.read().rpartition(")")[2].split()[0] == "Z":
                        return
            except OSError:
                return
            await trio.sleep(0.02)


@attrs.define(eq=False)
class Steady:
    """A client that reconnects and resumes, as ``router send`` and ``router receive`` do.

    Attributes:
        taken: how often each message, by its number, was taken; for receivers.
    """

    router: str
    name: str
    machine: SendingLink | ReceivingLink = attrs.field(init=False)
    taken: Counter[int] = attrs.field(factory=Counter)

    @classmethod
    def sender(
        cls, router: str, name: str, address: str, count: int, window: int = 500
    ) -> "Steady":
        """One that sends numbered messages, at least once."""
        steady = cls(router, name)
        steady.machine = SendingLink(
            name=LinkName(name),
            address=address,
            supply=numbered(b"x" * 100, count),
            guarantee=Guarantee.AT_LEAST_ONCE,
            window=window,
        )
        return steady

    @classmethod
    def receiver(cls, router: str, name: str, address: str) -> "Steady":
        """One that accepts whatever comes and counts it."""
        steady = cls(router, name)
        steady.machine = ReceivingLink(
            name=LinkName(name),
            address=address,
            take=steady._take,
            guarantee=Guarantee.AT_LEAST_ONCE,
        )
        return steady

    def _take(self, delivery: ReceivedDelivery) -> DeliveryState:
        properties = decode_message(delivery.payload).properties
        assert properties is not None
        self.taken[int(str(properties.message_id))] += 1
        return ACCEPTED

    def _engine(self, link_ids: Iterator[LinkId]) -> Engine10:
        return Engine10(
            EngineSettings(is_server=False, container=self.name, link_ids=link_ids, hostname="x")
        )

    async def run(self) -> None:
        """Converses until the machine is done, over as many connections as it takes."""
        dialing = Dialing(
            dial=partial(dial, self.router), make_engine=self._engine, patience_seconds=30
        )
        await Conversation(dialing, self.machine).run()
