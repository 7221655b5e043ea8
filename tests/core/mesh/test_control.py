"""Control links of five routers, in virtual time."""

import attrs
import pytest

from router.core.mesh.control import Control
from router.core.mesh.names import site_name
from router.core.mesh_octets import MESSAGE_OCTETS_MOST
from router.model.capabilities import Capabilities
from router.model.commands import AttachLink, CloseConnection
from router.model.delivery import ReceivedDelivery
from router.model.events import (
    ConnectionOpened,
    DeliveriesReceived,
    DeliveryContinued,
    LinkAttached,
    LinkDetached,
)
from router.model.identity import (
    ConnectionId,
    ContainerId,
    DeliveryNumber,
    DeliveryTag,
    LinkId,
    LinkName,
)
from router.model.terminus import ReceiverSettleMode, Role, SenderSettleMode, Source, Target
from router.routes.mesh.nouns import RouterId
from router.routes.mesh.paths import Nobody, Order, Unreachable, Ways
from tests.support.play import AMQP, Peer
from tests.support.sites import Line, Sites

RING: list[Line] = [
    ("dc1", "dc2", 10),
    ("dc2", "dc3", 10),
    ("dc3", "dc4", 10),
    ("dc4", "dc5", 10),
    ("dc5", "dc1", 50),
]
SERVED = {"dc4": ["dc4.#"], "dc5": ["dc5.#"]}


def hop(sites: Sites, router: str, address: str) -> tuple[str, int] | None:
    """Gives the next hop of the best way to an address, and its cost."""
    mesh = sites[router].core.mesh.mesh
    assert mesh is not None
    match mesh.paths.find(address, Order.CLOSEST):
        case Ways(ways):
            return ways[0].hop, ways[0].cost
        case Unreachable():
            return None
        case Nobody():
            raise AssertionError(f"{address} is not known")


def test_five_routers_find_the_prefixes_of_all_by_the_cheapest_way() -> None:
    sites = Sites(RING, advertise=SERVED)
    assert hop(sites, "dc1", "dc4.orders") == ("dc2", 30)
    assert hop(sites, "dc1", "dc5.orders") == ("dc2", 40)  # and not the dear link to dc5
    assert hop(sites, "dc3", "dc5.orders") == ("dc4", 20)
    assert sites["dc1"].events().count("mesh.link_up") == 2


def test_after_a_cut_the_way_leads_around() -> None:
    sites = Sites(RING, advertise=SERVED)
    sites.cut("dc2", "dc3")
    sites.run(0.2)
    assert hop(sites, "dc1", "dc4.orders") == ("dc5", 60)
    assert hop(sites, "dc2", "dc4.orders") == ("dc1", 70)
    assert "mesh.link_down" in sites["dc2"].events()


def test_a_lost_connection_counts_at_once_and_silence_after_three_seconds() -> None:
    sites = Sites(RING, advertise=SERVED)
    sites.silence("dc2", "dc3")
    sites.run(1.9)
    assert hop(sites, "dc1", "dc4.orders") == ("dc2", 30)
    sites.run(1.5)
    assert hop(sites, "dc1", "dc4.orders") == ("dc5", 60)
    assert not sites["dc2"].core.mesh.is_connected(RouterId("dc3"))


def test_a_neighbor_that_connects_again_is_up_again() -> None:
    sites = Sites(RING, advertise=SERVED)
    sites.cut("dc2", "dc3")
    sites.run(0.2)
    sites.dial("dc2", "dc3")
    sites.run(1.0)
    assert hop(sites, "dc1", "dc4.orders") == ("dc2", 30)


def test_an_egress_behind_a_partition_is_unreachable_and_comes_back() -> None:
    sites = Sites(RING[:4], advertise=SERVED)
    sites.cut("dc3", "dc4")
    sites.run(0.2)
    assert hop(sites, "dc1", "dc5.orders") is None
    sites.dial("dc3", "dc4")
    sites.run(1.0)
    assert hop(sites, "dc1", "dc5.orders") == ("dc2", 40)


@pytest.mark.parametrize("first", ["dc1", "dc2"])
def test_of_two_routers_that_dial_each_other_one_connection_is_kept(first: str) -> None:
    second = "dc2" if first == "dc1" else "dc1"
    sites = Sites([(first, second, 10)], advertise={"dc2": ["dc2.#"]})
    sites.dial(second, first)
    sites.run(0.5)
    (kept,) = (wire for wire in sites.wires if wire.ends == ("dc1", "dc2"))
    near, far = kept.joints
    assert sites["dc1"].core.mesh.connections == {"dc2": near.id}
    assert sites["dc2"].core.mesh.connections == {"dc1": far.id}
    assert hop(sites, "dc1", "dc2.orders") == ("dc2", 10)


def test_a_router_that_connects_again_replaces_its_connection() -> None:
    sites = Sites([("dc1", "dc2", 10)], advertise={"dc2": ["dc2.#"]})
    stale = sites.wire("dc1", "dc2")
    stale.is_silent = True
    fresh = sites.dial("dc1", "dc2")
    sites.run(0.5)
    assert sites["dc1"].core.mesh.connections == {"dc2": fresh.joints[0].id}
    assert sites["dc2"].core.mesh.connections == {"dc1": fresh.joints[1].id}
    assert hop(sites, "dc1", "dc2.orders") == ("dc2", 10)


def test_a_prefix_that_the_policy_does_not_allow_has_no_effect_and_is_named() -> None:
    sites = Sites([("dc1", "dc2", 10)], advertise={"dc2": ["dc2.#", "dc1.#"]}, others=["dc2.#"])
    assert hop(sites, "dc1", "dc2.orders") == ("dc2", 10)
    with pytest.raises(AssertionError, match="is not known"):
        hop(sites, "dc1", "dc1.orders")
    (refused,) = (each for each in sites["dc1"].noticed if each.event == "mesh.refused")
    assert refused.fields["container"] == "dc2"
    assert "dc1.#" in str(refused.fields["condition"])


# One router, and a connection that a test writes

MESH = attrs.evolve(AMQP, is_router=True, is_neighbor=True, is_site=True)


def alone() -> Sites:
    sites = Sites([("dc1", "dc2", 10)])
    sites.kill("dc2")
    return sites


def connect(
    sites: Sites, container: str, user: str | None = None, capabilities: Capabilities = MESH
) -> Peer:
    play = sites["dc1"]
    peer = Peer(play, ConnectionId(len(play.peers) + 1), container)
    play.peers[peer.id] = peer
    peer.happens(
        ConnectionOpened(
            container=ContainerId(container), hostname=None, user=user, capabilities=capabilities
        )
    )
    return peer


def reason_of(peer: Peer) -> str:
    assert isinstance(peer.closed, CloseConnection)
    return str(peer.closed.condition)


def test_a_neighbor_is_who_its_certificate_says() -> None:
    sites = alone()
    assert "the certificate is that of dc3" in reason_of(connect(sites, "dc2", user="dc3"))
    assert connect(sites, "dc2", user="dc2").closed is None


def test_a_client_is_not_served_where_routers_of_the_mesh_connect() -> None:
    client = attrs.evolve(AMQP, is_site=True)
    assert "only routers of the mesh" in reason_of(connect(alone(), "dc2", "dc2", client))


def test_a_router_with_this_ones_id_is_refused() -> None:
    assert "this router's own id" in reason_of(connect(alone(), "dc1"))


def test_another_router_than_the_one_that_was_dialed_is_refused() -> None:
    sites = alone()
    play = sites["dc1"]
    peer = play.connect("dc3", capabilities=MESH, dialed=site_name("dc2"))
    assert "dc2 was dialed, and" in reason_of(peer)
    assert not play.core.mesh.connections


def test_who_dials_the_listener_of_the_mesh_while_there_is_none_is_refused() -> None:
    sites = alone()
    sites["dc1"].core.mesh.mesh = None
    assert "this router is in no mesh" in reason_of(connect(sites, "dc2"))


def attach_control(peer: Peer) -> LinkId:
    link = peer.play.next_link()
    peer.happens(
        LinkAttached(
            link=link,
            name=LinkName("$mesh"),
            role=Role.RECEIVER,
            is_answer=False,
            source=Source(address="$mesh"),
            target=Target(address="$mesh"),
            sender_settle_mode=SenderSettleMode.SETTLED,
            receiver_settle_mode=ReceiverSettleMode.FIRST,
        )
    )
    return link


def say(peer: Peer, link: LinkId, payload: bytes, *, more: bool = False) -> None:
    tag, number = DeliveryTag(b"1"), DeliveryNumber(1)
    delivery = ReceivedDelivery(number, tag, payload, settled=True, more=more)
    peer.happens(DeliveriesReceived(link, [delivery]))


@pytest.fixture
def neighbor(monkeypatch: pytest.MonkeyPatch) -> tuple[Control, Peer, LinkId]:
    sites = alone()
    closed: list[CloseConnection] = []

    def execute(self: Peer, command: object) -> None:
        if isinstance(command, CloseConnection):
            closed.append(command)
            self.closed = command
        else:
            assert isinstance(command, AttachLink) or type(command).__name__ in COMMANDS

    monkeypatch.setattr(Peer, "execute", execute)
    peer = connect(sites, "dc2")
    return sites["dc1"].core.mesh, peer, attach_control(peer)


COMMANDS = ("GrantCredit", "SendDeliveries", "DetachLink")


@pytest.mark.parametrize(
    ("payload", "rule"),
    [
        (b"\x00\x53\x75\xa0\x01x", "a message is an amqp-value"),
        (b"\x00\x53\x77\x40", "message"),
        (b"\x00\x53\x77\xd1", ""),
    ],
)
def test_what_is_no_message_ends_the_connection(
    neighbor: tuple[Control, Peer, LinkId], payload: bytes, rule: str
) -> None:
    control, peer, link = neighbor
    say(peer, link, payload)
    assert rule in reason_of(peer)
    assert not control.connections


def test_a_message_may_come_in_parts_and_is_bounded(
    neighbor: tuple[Control, Peer, LinkId],
) -> None:
    control, peer, link = neighbor
    say(peer, link, b"\x00\x53\x77", more=True)
    part = bytes(1 << 18)
    for _ in range(MESSAGE_OCTETS_MOST // len(part)):
        peer.happens(DeliveryContinued(link, DeliveryNumber(1), part, more=True))
    assert peer.closed is None
    peer.happens(DeliveryContinued(link, DeliveryNumber(1), b"x", more=True))
    assert "a message has at most" in reason_of(peer)
    assert not control.connections


def test_a_neighbor_that_detaches_the_control_link_is_dropped(
    neighbor: tuple[Control, Peer, LinkId],
) -> None:
    control, peer, link = neighbor
    assert control.is_connected(RouterId("dc2"))
    peer.happens(LinkDetached(link, closed=True))
    assert "the link of the mesh's control plane is detached" in reason_of(peer)
    assert not control.is_connected(RouterId("dc2"))
