"""The trace context that a sender gives reaches the receiver, from every protocol to every other.

Two router processes serve all of them. Each pair sends the same messages over four routes: an
ordinary one, with messages that are streamed where both protocols can, one that stores them for the
other router, and one without a receiver, whose messages become dead letters there.
"""

import itertools
from collections.abc import Iterator, Mapping

import attrs
import pytest
import trio

from router.model.capabilities import Protocol
from router.model.delivery import ReceivedDelivery
from router.model.identity import LinkName
from router.model.outcome import ACCEPTED, DeliveryState
from router.net.client.conversation import Conversation
from router.net.client.receiver import ReceivingLink
from router.net.client.sender import SendingLink
from router.routes.route import Guarantee
from router.wire import hub
from router.wire.protocols import PROTOCOLS
from router.wire.v1_0.sections import AnnotatedMessage, Properties, encode_message
from router.wire.v1_0.types import Symbol
from tests.support.conversing import conversing
from tests.support.ports import free_port
from tests.support.running import running_router

pytestmark = pytest.mark.long

PATIENCE_SECONDS = 120.0

CREATOR = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
HOP = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-00"
BINARY = b"\x00\x00" + bytes(range(1, 17)) + b"\x01" + bytes(range(1, 9)) + b"\x02\x01"
STATE = "congo=t61rcWkgMzE,rojo=00f067aa0ba902b7"

SMALL, LARGE = 100, 1_500_000
"""Octets of a body; the large one is streamed where both protocols can."""

NAMES = dict(zip(PROTOCOLS, "abcde", strict=True))
"""A word of an address for each protocol."""

NEAR = """\
router: {{id: near, admin: off, workers: 1, drain_seconds: 1s, state: {folder}/near-state}}
listeners: [{{bind: '127.0.0.1:{near}'}}]
containers: {{far: {{url: 'amqp://127.0.0.1:{far}', retry_limit_seconds: 1s}}}}
routes:
  - address: plain.#
  - address: once.#
    guarantee: exactly-once
  - address: stored.#
    to: far
    store: {{always: true}}
    dead_letter: far/dead
  - address: lost.*.*
    unroutable: dead-letter
    dead_letter: far/dead.*.*
"""

FAR = """\
router: {{id: far, admin: off, workers: 1, drain_seconds: 1s, state: {folder}/far-state}}
listeners: [{{bind: '127.0.0.1:{far}'}}]
routes:
  - address: stored.#
  - address: dead.#
    unroutable: hold
"""


@attrs.frozen
class Places:
    """The ports of the two routers."""

    near: int
    far: int


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Places]:
    folder = tmp_path_factory.mktemp("traced")
    found = Places(free_port(), free_port())
    texts = [each.format(folder=folder, near=found.near, far=found.far) for each in (FAR, NEAR)]
    for name in ("far", "near"):
        (folder / name).mkdir()
    with running_router(texts[0], folder / "far"), running_router(texts[1], folder / "near"):
        yield found


Fields = Mapping[str, object]


@attrs.frozen
class Context:
    """What a sender gives.

    Attributes:
        annotations: of AMQP 1.0, which other protocols do not have.
        octets: of the body.
    """

    annotations: Fields = attrs.field(factory=dict)
    properties: Fields = attrs.field(factory=dict)
    octets: int = SMALL

    def payload(self, number: int) -> bytes:
        """A message with this context."""
        return encode_message(
            AnnotatedMessage(
                message_annotations={Symbol(k): v for k, v in self.annotations.items()} or None,
                properties=Properties(message_id=str(number)),
                application_properties=dict(self.properties) or None,
                data=[bytes(self.octets)],
            )
        )

    def expected(self, receiver: Protocol) -> tuple[Fields, Fields]:
        """What the receiver has in annotations and properties, which other protocols call headers.

        Where there is only one place, it has what a reader of the draft takes.
        """
        if receiver is Protocol.AMQP_1_0 or not self.annotations:
            return self.annotations, self.properties
        return {}, self.annotations


CREATED = Context(properties={"traceparent": CREATOR, "tracestate": STATE})
SENDABLE = (CREATED, attrs.evolve(CREATED, octets=LARGE))
SENDABLE_1_0 = (
    *SENDABLE,
    Context(annotations={"traceparent": HOP, "tracestate": STATE}),
    Context(annotations={"traceparent": HOP}, properties={"traceparent": CREATOR}),
    Context(annotations={"traceparent": HOP}, properties={"traceparent": CREATOR}, octets=LARGE),
    Context(properties={"traceparent": BINARY}),
)


def contexts_of(
    delivery: ReceivedDelivery, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, Fields, Fields]:
    """The message's id, and the contexts that a receiver finds in it without knowing of ours."""
    from router.wire import trace_context

    with monkeypatch.context() as patch:
        patch.setattr(trace_context, "from_headers", lambda message: message)
        message = hub.to_sections(delivery.protocol, delivery.payload)
    annotations, properties = (
        {str(k): v for k, v in (each or {}).items() if str(k) in trace_context.NAMES}
        for each in (message.message_annotations, message.application_properties)
    )
    assert message.properties is not None
    return (
        str(message.properties.message_id),
        annotations if delivery.protocol is Protocol.AMQP_1_0 else {},
        properties,
    )


def conversation(
    machine: SendingLink | ReceivingLink, protocol: Protocol, port: int
) -> Conversation:
    return conversing(machine, protocol, port, str(machine.name))


@attrs.frozen(kw_only=True)
class Path:
    """One way from a sender to a receiver."""

    sent_to: str
    read_from: str
    port: int
    is_exact: bool = False


@pytest.mark.parametrize(
    ("sender", "receiver"),
    list(itertools.product(PROTOCOLS, PROTOCOLS)),
    ids=lambda each: str(each).removeprefix("amqp-"),
)
async def test_a_context_arrives_as_it_was_given_on_every_route(
    sender: Protocol, receiver: Protocol, places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair = f"{NAMES[sender]}.{NAMES[receiver]}"
    paths = [
        Path(sent_to=f"plain.{pair}", read_from=f"plain.{pair}", port=places.near),
        Path(sent_to=f"stored.{pair}", read_from=f"stored.{pair}", port=places.far),
        Path(sent_to=f"lost.{pair}", read_from=f"dead.{pair}", port=places.far),
    ]
    if {sender, receiver} == {Protocol.AMQP_1_0}:
        once = f"once.{pair}"
        paths.append(Path(sent_to=once, read_from=once, port=places.near, is_exact=True))
    contexts = SENDABLE_1_0 if sender is Protocol.AMQP_1_0 else SENDABLE
    for path in paths:
        found: dict[str, tuple[Fields, Fields]] = {}
        has_all = trio.Event()

        def take(
            delivery: ReceivedDelivery,
            found: dict[str, tuple[Fields, Fields]] = found,
            has_all: trio.Event = has_all,
        ) -> DeliveryState:
            name, *places_found = contexts_of(delivery, monkeypatch)
            found[name] = (places_found[0], places_found[1])
            if len(found) == len(contexts):
                has_all.set()
            return ACCEPTED

        guarantee = Guarantee.EXACTLY_ONCE if path.is_exact else Guarantee.AT_LEAST_ONCE
        receiving = ReceivingLink(
            name=LinkName(f"receive {path.read_from}"),
            address=path.read_from,
            take=take,
            guarantee=guarantee,
        )
        sending = SendingLink(
            name=LinkName(f"send {path.sent_to}"),
            address=path.sent_to,
            supply=(each.payload(number) for number, each in enumerate(contexts)),
            guarantee=guarantee,
        )
        with trio.fail_after(PATIENCE_SECONDS):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(conversation(receiving, receiver, path.port).run)
                await conversation(sending, sender, places.near).run()
                assert sending.failure is None
                await has_all.wait()
                nursery.cancel_scope.cancel()
        assert receiving.failure is None
        expected = {str(n): each.expected(receiver) for n, each in enumerate(contexts)}
        assert found == expected, path
