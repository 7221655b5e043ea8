"""Putting tokens: back to back with a peer that takes them, or not, as Azure Service Bus does."""

import itertools
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from router.model.commands import AttachLink, GrantCredit, RefuseLink, SendDeliveries
from router.model.condition import NOT_FOUND, Condition
from router.model.delivery import OutgoingDelivery
from router.model.events import (
    ConnectionClosed,
    ConnectionOpened,
    DeliveriesReceived,
    Event,
    LinkAttached,
)
from router.model.identity import DeliveryNumber, DeliveryTag, LinkId, LinkName
from router.model.terminus import Role, Source, Target
from router.net.cbs import PATIENCE_SECONDS, CbsEngine, Claims, Stage, sas_token, token_from_file
from router.wire.engine import EngineSettings
from router.wire.mechanisms import MechanismServer
from router.wire.v1_0.engine import Engine10
from router.wire.v1_0.sections import AnnotatedMessage, decode_message, encode_message
from router.wire.v1_0.types import Int
from tests.support import peers
from tests.support.clients import sending
from tests.support.running import running_router

WALL = 1_700_000_000.0


@attrs.define(eq=False)
class Meeting:
    """Our engine, and a scripted peer behind its own.

    Attributes:
        status: what it answers tokens with; None: it does not answer.
        refuses: it has no ``$cbs``.
        tokens: that were put: application properties and token.
        heard: events that have come out of our engine.
    """

    claims: Claims
    status: int | None = 202
    reason: str = "Accepted"
    refuses: bool = False
    credit: int = 1
    now: float = 100.0
    tokens: list[tuple[Mapping[Any, Any], str]] = attrs.field(factory=list)
    heard: list[Event] = attrs.field(factory=list)
    ours: CbsEngine = attrs.field(init=False)
    peer: Engine10 = attrs.field(init=False)
    _replies: LinkId | None = None
    _tokens_link: LinkId = attrs.field(default=LinkId(0))
    _numbers: Any = attrs.field(factory=itertools.count)

    def __attrs_post_init__(self) -> None:
        ids = map(LinkId, itertools.count(1))
        inner = Engine10(
            EngineSettings(is_server=False, container="router", link_ids=ids, idle_seconds=0)
        )
        self.ours = CbsEngine(inner, self.claims, lambda: next(ids), lambda: WALL + self.now)
        self.peer = Engine10(
            EngineSettings(
                is_server=True, container="azure", idle_seconds=0, sasl_server=MechanismServer
            )
        )

    def settle_down(self) -> None:
        """Moves octets until nothing moves."""
        moved = True
        while moved:
            moved = False
            if octets := self._shown(self.ours):
                moved = True
                for event in self.peer.receive_data(octets, self.now):
                    self._answer(event)
            if octets := self._shown(self.peer):
                moved = True
                self.heard += self.ours.receive_data(octets, self.now)

    @staticmethod
    def _shown(engine: CbsEngine | Engine10) -> bytes:
        octets = bytes(engine.data_to_send())
        engine.bytes_sent(len(octets))
        return octets

    def wait(self, seconds: float) -> None:
        self.now += seconds
        deadline = self.ours.deadline
        if deadline is not None and deadline <= self.now:
            self.heard += self.ours.handle_deadline(self.now)
        self.settle_down()

    def grant(self) -> None:
        """Lets one more token come."""
        self.peer.execute(GrantCredit(self._tokens_link, 1))
        self.settle_down()

    def _answer(self, event: Event) -> None:
        match event:
            case LinkAttached() if self.refuses:
                self.peer.execute(RefuseLink(event.link, Condition(NOT_FOUND, "no such node")))
            case LinkAttached(link=link, name=name, role=role, source=source, target=target):
                self.peer.execute(
                    AttachLink(link=link, name=name, role=role, source=source, target=target)
                )
                if role is Role.RECEIVER:
                    self._tokens_link = link
                    self.peer.execute(GrantCredit(link, self.credit))
                else:
                    self._replies = link
            case DeliveriesReceived(deliveries=deliveries):
                for each in deliveries:
                    message = decode_message(bytes(each.payload))
                    told = dict((message.application_properties or {}).items())
                    self.tokens.append((told, message.value))
                    self.peer.execute(GrantCredit(event.link, self.credit))
                    self._reply()
            case _:
                pass

    def _reply(self) -> None:
        if self.status is None:
            return
        assert self._replies is not None
        answer = AnnotatedMessage(
            application_properties={
                "status-code": Int(self.status),
                "status-description": self.reason,
            },
            value=None,
        )
        number = next(self._numbers)
        delivery = OutgoingDelivery(
            DeliveryNumber(number),
            DeliveryTag(b"%d" % number),
            encode_message(answer),
            settled=True,
        )
        self.peer.execute(SendDeliveries(self._replies, [delivery]))


def claims(**fields: Any) -> Claims:
    usual = Claims(
        audience="amqp://ns.example/queue",
        kind="jwt",
        renew_seconds=600.0,
        make_token=lambda now: f"token of {now:.0f}",
    )
    return attrs.evolve(usual, **fields)


def meet(**fields: Any) -> Meeting:
    meeting = Meeting(claims(), **fields)
    meeting.settle_down()
    return meeting


def failure_of(meeting: Meeting) -> str:
    (closed,) = [each for each in meeting.heard if isinstance(each, ConnectionClosed)]
    assert not closed.by_peer
    return str(closed.condition)


def test_the_open_is_told_when_the_token_was_taken() -> None:
    meeting = meet()
    ((told, token),) = meeting.tokens
    assert token == f"token of {WALL + 100:.0f}"
    assert told == {
        "operation": "put-token",
        "type": "jwt",
        "name": "amqp://ns.example/queue",
    }
    assert [type(each) for each in meeting.heard] == [ConnectionOpened]
    assert meeting.ours.stage is Stage.HOLDING


def test_the_token_is_renewed_in_time_and_nobody_hears_of_it() -> None:
    meeting = meet()
    for round_ in range(2, 30):
        meeting.wait(600)
        assert len(meeting.tokens) == round_
    assert len({token for _, token in meeting.tokens}) == len(meeting.tokens)
    assert [type(each) for each in meeting.heard] == [ConnectionOpened]


def test_a_renewal_waits_for_credit() -> None:
    meeting = meet(credit=0)
    assert meeting.tokens == []
    meeting.grant()
    assert len(meeting.tokens) == 1
    meeting.wait(600)
    assert len(meeting.tokens) == 1
    meeting.grant()
    assert len(meeting.tokens) == 2
    meeting.wait(600)
    meeting.wait(PATIENCE_SECONDS)
    assert "no answer from $cbs within 15 s" in failure_of(meeting)


def test_links_of_others_are_attached_beside_it() -> None:
    meeting = meet()
    link = meeting.ours.new_link()
    meeting.ours.execute(
        AttachLink(
            link=link,
            name=LinkName("own"),
            role=Role.SENDER,
            source=Source(address="here"),
            target=Target(address="queue"),
        )
    )
    meeting.settle_down()
    attached = [each for each in meeting.heard if isinstance(each, LinkAttached)]
    assert [each.link for each in attached] == [link]


@pytest.mark.parametrize("status", [401, 404, 500])
def test_a_token_that_is_refused_ends_the_connection_with_the_reason(status: int) -> None:
    meeting = meet(status=status, reason="ExpiredToken")
    assert f"$cbs refuses the token: {status} ExpiredToken" in failure_of(meeting)
    assert not [each for each in meeting.heard if isinstance(each, ConnectionOpened)]


def test_a_renewal_that_is_refused_ends_the_connection() -> None:
    meeting = meet()
    meeting.status, meeting.reason = 401, "gone"
    meeting.wait(600)
    assert "$cbs refuses the token: 401 gone" in failure_of(meeting)


def test_a_peer_that_does_not_answer_is_given_up() -> None:
    meeting = meet(status=None)
    assert meeting.heard == []
    meeting.wait(PATIENCE_SECONDS)
    assert "no answer from $cbs within 15 s" in failure_of(meeting)


def test_a_peer_without_such_a_node_is_told_as_that() -> None:
    meeting = meet(refuses=True)
    assert "$cbs ends the link: amqp:not-found" in failure_of(meeting)


def test_a_token_file_is_read_anew_each_time_and_its_loss_is_told(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    meeting = Meeting(claims(make_token=token_from_file(path)))
    meeting.settle_down()
    path.write_text("second\n")
    meeting.wait(600)
    assert [token for _, token in meeting.tokens] == ["first", "second"]
    path.unlink()
    meeting.wait(600)
    assert "the token cannot be read: No such file" in failure_of(meeting)


async def test_a_router_puts_its_token_before_it_attaches(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("let me in")
    (listener,) = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listener.socket.getsockname()[1]
    file = f"""
router: {{id: near, workers: 1, admin: off}}
listeners: [{{bind: "127.0.0.1:0"}}]
containers:
  azure:
    url: amqp://127.0.0.1:{port}
    cbs: {{audience: amqp://here, token_file: token}}
routes: [{{address: orders, to: azure}}]
"""
    meeting = Meeting(claims(), credit=5)
    with running_router(file, tmp_path) as router, trio.fail_after(90):
        place = json.loads(router.wait_for("router.ready"))["listeners"][0]
        stream = await listener.accept()
        async with (
            trio.open_nursery() as nursery,
            sending(place, "orders", [b"x"]) as source,
        ):
            while len(meeting.tokens) < 2:
                octets = await stream.receive_some()
                assert octets, "the router has left"
                for event in meeting.peer.receive_data(bytes(octets), trio.current_time()):
                    meeting._answer(event)
                if shown := meeting._shown(meeting.peer):
                    await stream.send_all(shown)
            assert source.closed is None
            nursery.cancel_scope.cancel()
        await trio.aclose_forcefully(stream)
        router.kill()  # the container is gone: to drain is to wait for what it has unsettled
    await listener.aclose()
    (asked, token), (plain, _) = meeting.tokens
    assert (asked["type"], asked["name"], token) == ("jwt", "amqp://here", "let me in")
    assert "operation" not in plain  # the message itself, after the token


def test_a_shared_access_signature_is_what_the_library_of_azure_makes() -> None:
    peers.need_python("azure.servicebus")
    from azure.servicebus import _base_handler

    audience, name, key = "sb://ns.example/queue", "RootKey", "secret+/="
    made = _base_handler._generate_sas_token(audience, name, key)
    assert sas_token(audience, name, key, made.expires_on) == made.token
