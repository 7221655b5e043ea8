"""Who comes back after a cut, and when: the exact frames that each side sees (§2.6.13, §3.4.6).

A sender and a receiver, scripted at the level of frames, with the router's engines and core between
them. One delivery is on its way, exactly once, both ends settle three ways; at some point one of
them, both or neither lose their connections, without having read what came last, and come back with
their unsettled maps. The frames that each one gets from its attach on are written out.
"""

import itertools
from collections.abc import Sequence
from typing import Any

import attrs
import pytest

from router.core.core import Core
from router.core.settings import CoreSettings
from router.core.turn import Order
from router.model.events import ConnectionOpened, Event
from router.model.identity import ConnectionId, DeliveryTag, LinkId
from router.model.outcome import ACCEPTED, RELEASED, DeliveryState, Received
from router.model.terminus import (
    ALL_OUTCOMES,
    ExpiryPolicy,
    ReceiverSettleMode,
    Role,
    SenderSettleMode,
    Source,
    Target,
)
from router.routes.route import Guarantee, Route
from router.routes.table import RoutingTable
from router.wire.engine import EngineSettings
from router.wire.v1_0.engine import Engine10
from router.wire.v1_0.performatives import Attach, Disposition, Flow, Transfer
from tests.support.peer import Peer, Seen

TAG = b"a"
FIRST, REST = b"\x00\x53\x75\xa0\x08left", b"over"
WHOLE = FIRST + REST
KEPT: dict[str, Any] = {"expiry_policy": ExpiryPolicy.CONNECTION_CLOSE, "expiry_seconds": 300}
ROUTE = Route(address="orders", guarantee=Guarantee.EXACTLY_ONCE)


class Stage:
    """The router: a core, and an engine for each connection."""

    def __init__(self) -> None:
        self.link_ids = map(LinkId, itertools.count(1))
        self.core = Core(CoreSettings(router_id="router"), RoutingTable([ROUTE]), self.link_ids)
        self.parties: dict[ConnectionId, Party] = {}

    def carry_out(self, orders: Sequence[Order]) -> None:
        for connection, command in orders:
            self.parties[connection].engine.execute(command)

    def handle(self, connection: ConnectionId, events: Sequence[Event]) -> None:
        self.carry_out(self.core.handle(connection, events, 0.0))


class Party(Peer):
    """A scripted peer whose engine's events go to the core."""

    def __init__(self, stage: Stage, container: str, user: str | None = None) -> None:
        settings = EngineSettings(is_server=True, container="router", link_ids=stage.link_ids)
        super().__init__(Engine10(settings))
        self.stage, self.user = stage, user
        self.id = ConnectionId(len(stage.parties) + 1)
        stage.parties[self.id] = self
        self.greet(container_id=container)
        self.begin()

    def send_octets(self, octets: bytes) -> None:
        for each in (octets, b""):
            events = self.engine.receive_data(each, self.now)
            self.stage.handle(self.id, [self._authenticated(event) for event in events])

    def _authenticated(self, event: Event) -> Event:
        """Stands for a login."""
        if isinstance(event, ConnectionOpened):
            return attrs.evolve(event, user=self.user)
        return event

    def lose(self) -> None:
        """Loses the connection, with all that it has not read."""
        self.take_frames()
        self.stage.carry_out(self.stage.core.connection_lost(self.id, 0.0))

    def seen(self) -> list[str]:
        """Takes the frames that have come, in short; flows left out."""
        frames = self.take_frames()
        return [_short(each) for each in frames if not isinstance(each.performative, Flow)]


def _short(frame: Seen) -> str:
    match frame.performative:
        case Attach(unsettled=unsettled):
            return f"attach {_map(unsettled)}"
        case Transfer() as each:
            words = ["transfer", frame.payload.decode("latin-1").lstrip("\0Su\xa0\x08") or "-"]
            words += ["more"] * each.more + ["resume"] * each.resume
            words += [_state(each.state)] * (each.state is not None)
            words += ["settled"] * bool(each.settled) + ["aborted"] * each.aborted
            return " ".join(words)
        case Disposition() as each:
            return f"disposition {_state(each.state)}" + " settled" * each.settled
        case other:
            return type(other).__name__.lower()


def _map(unsettled: Any) -> str:
    if unsettled is None:
        return "null"
    return "{" + ", ".join(_state(state) for state in unsettled.values()) + "}"


def _state(state: DeliveryState | None) -> str:
    match state:
        case None:
            return "null"
        case Received(section_number=section, section_offset=offset):
            return f"received({section},{offset})"
        case _:
            return type(state).__name__.lower()


@attrs.define(eq=False)
class Scene:
    """A delivery on its way from west to east, as far as ``point`` says."""

    stage: Stage
    point: str
    sender: Party = attrs.field(init=False)
    receiver: Party = attrs.field(init=False)
    tag: bytes = b""

    def play(self) -> None:
        """Goes as far as the point."""
        self.receiver = Party(self.stage, "east")
        self.attach_receiver(
            None, credit={"before transfer": 0, "in the middle": 2}.get(self.point, 1)
        )
        self.sender = Party(self.stage, "west")
        if self.point == "before transfer":
            self.receiver.flow(handle=0, delivery_count=0, link_credit=1)
            self.attach_sender(None)
            self.receiver.flow(handle=0, delivery_count=0, link_credit=0)
        else:
            self.attach_sender(None)
        if self.point == "in the middle":
            self.transfer(FIRST, more=True)
        else:
            self.transfer(WHOLE)
        for frame in self.receiver.take_frames():
            if isinstance(frame.performative, Transfer):
                self.tag = frame.performative.delivery_tag or b""
        if self.point in ("after outcome", "after settlement"):
            self.outcome()
        if self.point == "after settlement":
            self.sender.take_frames()
            self.settle()

    def attach_sender(self, unsettled: dict[DeliveryTag, DeliveryState | None] | None) -> None:
        self.sender.attach(
            name="out",
            source=Source(address="here", outcomes=ALL_OUTCOMES),
            target=Target(address="orders", **KEPT),
            snd_settle_mode=SenderSettleMode.UNSETTLED,
            rcv_settle_mode=ReceiverSettleMode.SECOND,
            unsettled=unsettled,
        )

    def attach_receiver(
        self, unsettled: dict[DeliveryTag, DeliveryState | None] | None, *, credit: int
    ) -> None:
        self.receiver.attach(
            Role.RECEIVER,
            name="in",
            source=Source(address="orders", outcomes=ALL_OUTCOMES, **KEPT),
            target=Target(address="there"),
            rcv_settle_mode=ReceiverSettleMode.SECOND,
            unsettled=unsettled,
        )
        if credit:
            self.receiver.flow(handle=0, delivery_count=0, link_credit=credit)

    def transfer(self, payload: bytes, **fields: Any) -> None:
        told: dict[str, Any] = {"delivery_tag": TAG, "settled": False} | fields
        self.sender.transfer(0, payload, **told)

    def receiver_number(self, seen: list[str]) -> int:
        """Gives the delivery-id of what the receiver has: an aborted one came before it."""
        return int(any("aborted" in each for each in seen))

    def outcome(self) -> None:
        """The receiver has taken it."""
        self.receiver.send(Disposition(Role.RECEIVER, 0, state=ACCEPTED))

    def settle(self) -> None:
        """The sender has heard that."""
        self.sender.send(Disposition(Role.SENDER, 0, settled=True, state=ACCEPTED))


RECEIVER_MAPS: dict[str, dict[str, DeliveryState | None]] = {
    "before transfer": {},
    "after transfer": {"it": None},
    "after outcome": {"it": ACCEPTED},
    "after settlement": {"it": ACCEPTED},
    "in the middle": {"it": Received(0, 9)},
}
"""What the receiver has unsettled when it is cut off."""


def come_back(scene: Scene, who: str) -> None:
    """Has those who were cut off attach again; the receiver first."""
    stage, point = scene.stage, scene.point
    if who in ("receiver", "both"):
        scene.receiver = Party(stage, "east")
        held = {DeliveryTag(scene.tag): state for state in RECEIVER_MAPS[point].values()}
        scene.attach_receiver(held, credit=5)
    elif point == "before transfer":
        scene.receiver.flow(handle=0, delivery_count=0, link_credit=1)
    if who in ("sender", "both"):
        scene.sender = Party(stage, "west")
        is_over = point == "after settlement"
        scene.attach_sender({} if is_over else {DeliveryTag(TAG): None})


def go_on(scene: Scene, who: str, told: str) -> None:
    """Has the sender, if it was cut off, resume as the router's map says; else send the rest."""
    if who in ("receiver", "neither"):
        if scene.point == "in the middle":
            scene.sender.transfer(None, REST)
        return
    match told.removeprefix("attach "):
        case "{accepted}":
            scene.transfer(b"", resume=True, state=ACCEPTED, settled=True)
        case "{released}":
            scene.transfer(b"", resume=True, state=RELEASED, settled=True)
        case "{received(0,9)}":
            scene.transfer(REST, resume=True, state=Received(0, 9))
        case "{received(1,0)}":
            scene.transfer(b"", resume=True, state=Received(1, 0))


def end(scene: Scene, who: str, heard: list[str], seen: list[str]) -> list[str]:
    """Has the receiver take what it has, and the sender settle; gives what the sender saw.

    Args:
        scene: so far.
        who: was cut off.
        heard: what the sender has seen.
        seen: what the receiver has.
    """
    has_answered = scene.point in ("after outcome", "after settlement")
    if any("transfer" in each and "aborted" not in each for each in seen) or (
        who in ("sender", "neither") and scene.point == "after transfer"
    ):
        if not has_answered:
            scene.receiver.send(
                Disposition(Role.RECEIVER, scene.receiver_number(seen), state=ACCEPTED)
            )
    heard += scene.sender.seen()
    if "disposition accepted" in heard:
        scene.settle()
    return heard


FRAMES: dict[tuple[str, str], tuple[list[str], list[str]]] = {
    ("before transfer", "neither"): (
        ["attach null", "disposition accepted"],
        ["transfer leftover", "disposition accepted settled"],
    ),
    ("before transfer", "sender"): (
        ["attach {received(1,0)}", "disposition accepted"],
        ["transfer leftover", "disposition accepted settled"],
    ),
    ("before transfer", "receiver"): (["attach null", "disposition released"], ["attach {}"]),
    ("before transfer", "both"): (["attach {released}"], ["attach {}"]),
    ("after transfer", "neither"): (
        ["attach null", "disposition accepted"],
        ["disposition accepted settled"],
    ),
    ("after transfer", "sender"): (
        ["attach {received(1,0)}", "disposition accepted"],
        ["disposition accepted settled"],
    ),
    ("after transfer", "receiver"): (
        ["attach null", "disposition accepted"],
        ["attach {null}", "transfer leftover resume", "disposition accepted settled"],
    ),
    ("after transfer", "both"): (
        ["attach {received(1,0)}", "disposition accepted"],
        ["attach {null}", "transfer leftover resume", "disposition accepted settled"],
    ),
    ("after outcome", "neither"): (
        ["attach null", "disposition accepted"],
        ["disposition accepted settled"],
    ),
    ("after outcome", "sender"): (["attach {accepted}"], ["disposition accepted settled"]),
    ("after outcome", "receiver"): (
        ["attach null", "disposition accepted"],
        ["attach {accepted}", "transfer - resume accepted", "disposition accepted settled"],
    ),
    ("after outcome", "both"): (
        ["attach {accepted}"],
        ["attach {accepted}", "transfer - resume accepted", "disposition accepted settled"],
    ),
    ("after settlement", "neither"): ([], ["disposition accepted settled"]),
    ("after settlement", "sender"): (["attach {}"], ["disposition accepted settled"]),
    ("after settlement", "receiver"): ([], ["attach {}"]),
    ("after settlement", "both"): (["attach {}"], ["attach {}"]),
    ("in the middle", "neither"): (
        ["attach null", "disposition accepted"],
        ["transfer over", "disposition accepted settled"],
    ),
    ("in the middle", "sender"): (
        ["attach {received(0,9)}", "disposition accepted"],
        ["transfer - settled aborted", "transfer leftover", "disposition accepted settled"],
    ),
    ("in the middle", "receiver"): (
        ["attach null", "disposition accepted"],
        [
            "attach {null}",
            "transfer - more resume received(0,9)",
            "transfer over",
            "disposition accepted settled",
        ],
    ),
    ("in the middle", "both"): (
        ["attach {received(0,9)}", "disposition accepted"],
        [
            "attach {null}",
            "transfer - more resume received(0,9)",
            "transfer over",
            "disposition accepted settled",
        ],
    ),
}
"""By point and by who was cut off: what sender and receiver see from then on."""


@pytest.mark.parametrize("who", ["neither", "sender", "receiver", "both"])
@pytest.mark.parametrize("point", list(RECEIVER_MAPS))
def test_frames_after_a_cut(point: str, who: str) -> None:
    scene = Scene(Stage(), point)
    scene.play()
    if who in ("receiver", "both"):
        scene.receiver.lose()
    if who in ("sender", "both"):
        scene.sender.lose()
    come_back(scene, who)
    sender, receiver = scene.sender.seen(), scene.receiver.seen()
    go_on(scene, who, sender[-1] if sender else "")
    receiver += scene.receiver.seen()
    sender = end(scene, who, sender, receiver)
    sender += scene.sender.seen()
    receiver += scene.receiver.seen()
    assert (sender, receiver) == FRAMES[point, who]


def test_a_sender_that_comes_back_first_finishes_what_its_receiver_resumes() -> None:
    scene = Scene(Stage(), "in the middle")
    scene.play()
    scene.receiver.lose()
    scene.sender.lose()
    come_back(scene, "sender")
    assert scene.sender.seen() == ["attach {received(0,9)}"]
    scene.transfer(REST, resume=True, state=Received(0, 9))
    come_back(scene, "receiver")
    assert scene.receiver.seen() == ["attach {null}", "transfer over resume received(0,9)"]
    scene.outcome()
    assert scene.sender.seen() == ["disposition accepted"]
    scene.settle()
    assert scene.receiver.seen() == ["disposition accepted settled"]


def test_another_identity_that_uses_the_same_names_gets_nothing() -> None:
    """A link is its user's: an attach by its names is a new link, with nothing unsettled."""
    scene = Scene(Stage(), "after transfer")
    scene.play()
    scene.sender.lose()
    scene.sender = Party(scene.stage, "west", user="mallory")
    scene.attach_sender({DeliveryTag(TAG): None})
    assert scene.sender.seen() == ["attach {}"]
    scene.outcome()
    assert scene.sender.seen() == []
    scene.sender = Party(scene.stage, "west")
    scene.attach_sender({DeliveryTag(TAG): None})
    assert scene.sender.seen() == ["attach {accepted}"]
