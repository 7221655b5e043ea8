"""A router that says what is not so is refused and named, and what it says has no effect."""

import pytest

from router.routes.mesh.database import KEYS_MOST
from router.routes.mesh.events import (
    CloseConnection,
    EpochRaised,
    MessageBroken,
    MessageReceived,
    NeighborConnected,
    Reconfigured,
    RouterRefused,
)
from router.routes.mesh.nouns import (
    Addresses,
    Ask,
    EdgeAsk,
    Entry,
    Hello,
    Key,
    Kind,
    Links,
    Message,
    Prefixes,
    Refusal,
    RouterId,
    Unknown,
    Version,
    signed_octets,
)
from router.routes.mesh.paths import Nobody, Order, Unreachable, Ways
from router.routes.mesh.policy import Policy
from router.wire.v1_0.types import encode_value
from tests.routes.mesh.scripted import ME, Scripted
from tests.routes.mesh.simulator import HashSigner, forge

A, B, FAR = RouterId("a"), RouterId("b"), RouterId("far")


def refused(scripted: Scripted) -> list[tuple[RouterId, RouterId, str]]:
    return [
        (one.router, one.via, one.rule) for one in scripted.orders if isinstance(one, RouterRefused)
    ]


def test_an_entry_that_its_origin_has_not_signed_is_refused_and_the_neighbor_named() -> None:
    scripted = Scripted()
    scripted.greet(A, B)
    scripted.say(B, FAR, Prefixes(("bank.#",)), signer=B)
    assert refused(scripted) == [(B, B, "an entry prefixes of far that far has not signed")]
    assert scripted.mesh.paths.find("bank.x", Order.CLOSEST) == Nobody()
    assert all(entry.key.origin != FAR for entry in scripted.entries_to(A))


def test_a_prefix_that_a_router_may_not_advertise_is_not_used_and_its_origin_named() -> None:
    scripted = Scripted(policy=Policy.parse({"far": ("far.#",)}))
    scripted.greet(A, B)
    entry = scripted.say(B, FAR, Prefixes(("far.x", "bank.#")))
    assert refused(scripted) == [(FAR, B, "the policy does not let far advertise 'bank.#'")]
    assert scripted.mesh.paths.find("bank.x", Order.CLOSEST) == Nobody()
    assert scripted.mesh.paths.find("far.x", Order.CLOSEST) == Unreachable((FAR,))
    assert entry in scripted.entries_to(A)  # whose policy may allow it
    scripted.say(B, FAR, Addresses(("bank.x",)), sequence=2)
    assert refused(scripted)[-1] == (
        FAR, B, "the policy does not let far advertise the address 'bank.x'"
    )  # fmt: skip
    assert scripted.mesh.paths.find("bank.x", Order.CLOSEST) == Nobody()


def test_a_link_that_the_other_end_denies_carries_nothing_and_is_named_after_ten_seconds() -> None:
    scripted = Scripted()
    scripted.greet(A, B)
    scripted.say(A, FAR, Links({A: 10}))
    scripted.say(A, A, Links({ME: 10, FAR: 10}), sequence=2)
    scripted.say(B, B, Links({ME: 10, FAR: 1}), sequence=2)  # to draw the traffic of far
    scripted.wait(1.0)
    assert scripted.mesh.paths.tree.hops[FAR] == A
    scripted.wait(8.0)
    assert refused(scripted) == []
    scripted.wait(2.0)
    assert refused(scripted) == [(B, B, "a link to far, which far denies")]
    scripted.wait(20.0)
    assert len(refused(scripted)) == 1


def test_two_entries_of_one_version_are_named_and_all_keep_the_same_one() -> None:
    kept = []
    for order in ((1, 2), (2, 1)):
        scripted = Scripted()
        scripted.greet(A, B)
        for cost in order:
            scripted.say(A, FAR, Links({A: cost}))
        assert refused(scripted) == [
            (FAR, A, "two entries links of version Version(epoch=1, sequence=1)")
        ]
        kept.append(scripted.mesh._flood.claims[FAR])
    assert kept[0] == kept[1]


def test_a_router_with_too_many_entries_is_named() -> None:
    scripted = Scripted()
    scripted.greet(A)
    for at in range(KEYS_MOST + 1):
        key = Key(FAR, f"later-{at}", 0)
        scripted.send(A, [sealed(key, {"version": 1})])
    assert refused(scripted)[-1] == (FAR, A, "more entries than a router may have")


def sealed(key: Key, body: object) -> Entry:
    octets = encode_value(body)
    version = Version(1, 1)
    signature = HashSigner(key.origin).sign(signed_octets(key, version, octets))
    return Entry(key=key, version=version, body=octets, signature=signature)


def test_a_kind_or_version_that_is_not_known_is_named_and_carried() -> None:
    scripted = Scripted()
    scripted.greet(A, B)
    entry = sealed(Key(FAR, "weather", 0), {"version": 1, "rain": True})
    later = sealed(Key(FAR, "links", 0), {"version": 2})
    scripted.send(A, [entry, later])
    assert [one for one in scripted.entries_to(B) if one.key.origin == FAR] == [entry, later]
    assert refused(scripted) == [
        (FAR, A, "kind weather is not known; it is carried for others"),
        (FAR, A, "version 2 of links, of which 1 is understood; it is carried for others"),
    ]


def test_fields_of_a_later_minor_version_are_carried_octet_for_octet() -> None:
    scripted = Scripted()
    scripted.greet(A, B)
    entry = sealed(
        Key(FAR, "prefixes", 0), {"version": 1, "patterns": ["far.#"], "weights": {"far.#": 5}}
    )
    scripted.send(A, [entry])
    assert entry in scripted.entries_to(B)
    assert refused(scripted) == []
    assert scripted.mesh.paths.find("far.x", Order.CLOSEST) == Unreachable((FAR,))


def test_a_body_against_the_rules_is_refused_and_its_origin_named() -> None:
    scripted = Scripted()
    scripted.greet(A, B)
    scripted.send(A, [sealed(Key(FAR, "links", 0), {"version": 1, "links": [["a", 0]]})])
    assert refused(scripted) == [(FAR, A, "links.links[0].cost is from 1 to 65535, not 0")]
    assert all(one.key.origin != FAR for one in scripted.entries_to(B))


@pytest.mark.parametrize(
    ("hello", "rule"),
    [
        (Hello(router=B, epoch=1), "a hello of b on the connection of a"),
        (
            Hello(router=A, epoch=1, least=2, most=3),
            "a understands versions 2 to 3 of the mesh's control plane, this router version 1",
        ),
    ],
)
def test_a_neighbor_with_a_wrong_hello_is_told_why_and_closed(hello: Hello, rule: str) -> None:
    scripted = Scripted()
    scripted.tell(NeighborConnected(A))
    scripted.tell(MessageReceived(A, hello))
    assert refused(scripted) == [(A, A, rule)]
    assert scripted.sent[-1] == (A, Refusal(rule))
    assert scripted.orders[-1] == CloseConnection(A, rule)


@pytest.mark.parametrize("message", [Ask(()), EdgeAsk(), Unknown("x")])
def test_a_neighbor_that_does_not_begin_with_hello_is_closed(message: Message) -> None:
    scripted = Scripted()
    scripted.tell(NeighborConnected(A))
    scripted.hear(A, message)
    assert refused(scripted) == [(A, A, "a message before its hello")]
    assert scripted.hear(A, message) == []  # nobody is there any more


def test_a_message_that_is_none_closes_the_connection() -> None:
    scripted = Scripted()
    scripted.greet(A)
    scripted.tell(MessageBroken(A, "hello.epoch is missing"))
    assert scripted.sent[-1] == (A, Refusal("hello.epoch is missing"))


def test_a_neighbor_that_refuses_this_router_is_closed() -> None:
    scripted = Scripted()
    scripted.greet(A)
    scripted.hear(A, Refusal("too old"))
    assert scripted.orders[-1] == CloseConnection(A, "too old")


def test_a_second_router_of_the_own_id_is_named() -> None:
    scripted = Scripted(epoch=1)
    scripted.greet(A)
    scripted.say(A, ME, Prefixes(("x.#",)), epoch=5)
    assert scripted.of(EpochRaised) == [EpochRaised(6)]
    assert refused(scripted) == []
    scripted.say(A, ME, Prefixes(("x.#",)), epoch=9)
    assert len(scripted.of(EpochRaised)) == 1  # they would outbid each other for ever
    scripted.wait(11.0)
    scripted.say(A, ME, Prefixes(("x.#",)), epoch=12)
    assert scripted.of(EpochRaised) == [EpochRaised(6), EpochRaised(13)]
    assert refused(scripted) == [
        (ME, A, "entries of another life again: another router may have the same id")
    ]
    own = scripted.mesh._flood.database.get(Key(ME, Kind.LINKS, 0))
    scripted.wait(1.0)
    own = scripted.mesh._flood.database.get(Key(ME, Kind.LINKS, 0))
    assert own is not None
    assert own.version.epoch == 13


def test_nobody_raises_the_epoch_of_another_router() -> None:
    scripted = Scripted()
    scripted.greet(A)
    scripted.say(A, ME, Links({}), epoch=99, signer=A)
    assert scripted.of(EpochRaised) == []


def test_an_older_sequence_changes_nothing() -> None:
    scripted = Scripted()
    scripted.greet(A)
    scripted.say(A, FAR, Links({A: 1}), sequence=5)
    scripted.say(A, FAR, Links({A: 2}), sequence=4)
    scripted.say(A, FAR, Links({A: 3}), sequence=9, epoch=1)
    assert scripted.mesh._flood.claims[FAR] == {A: 3}
    scripted.say(A, FAR, Links({A: 4}), sequence=1, epoch=2)
    scripted.say(A, FAR, Prefixes(("far.#",)), sequence=99, epoch=1)  # of an earlier life
    assert scripted.mesh._flood.claims[FAR] == {A: 4}
    assert scripted.mesh.paths.find("far.x", Order.CLOSEST) == Nobody()


def test_an_order_that_repeats_is_told_once_a_minute() -> None:
    scripted = Scripted()
    scripted.greet(A)
    for sequence in range(10, 20):
        scripted.say(A, FAR, Links({}), sequence=sequence, signer=A)
    assert [one.times for one in scripted.orders if isinstance(one, RouterRefused)] == [1]
    scripted.wait(61.0)
    scripted.say(A, FAR, Links({}), sequence=30, signer=A)
    assert [one.times for one in scripted.orders if isinstance(one, RouterRefused)] == [1, 10]


def test_an_origin_without_a_way_is_forgotten_after_an_hour_also_where_it_came_late() -> None:
    scripted = Scripted()
    scripted.greet(A)
    entry = forge(Key(FAR, Kind.PREFIXES, 0), Version(1, 1), Prefixes(("far.#",)), FAR)
    scripted.send(A, [entry], idle=3590)
    assert scripted.mesh.paths.find("far.x", Order.CLOSEST) == Unreachable((FAR,))
    scripted.wait(11.0)
    assert scripted.mesh.paths.find("far.x", Order.CLOSEST) == Nobody()
    scripted.send(A, [entry], idle=3601)
    scripted.wait(1.0)
    assert scripted.mesh.paths.find("far.x", Order.CLOSEST) == Nobody()


def test_a_policy_that_changes_is_applied_to_what_is_known() -> None:
    scripted = Scripted()
    scripted.greet(A)
    scripted.say(A, A, Prefixes(("bank.#",)))
    assert isinstance(scripted.mesh.paths.find("bank.x", Order.CLOSEST), Ways)
    scripted.tell(Reconfigured({}, (), Policy.parse({"a": ("a.#",)})))
    scripted.work()
    assert scripted.mesh.paths.find("bank.x", Order.CLOSEST) == Nobody()
    scripted.tell(Reconfigured({}, (), Policy.parse({})))
    scripted.work()
    assert isinstance(scripted.mesh.paths.find("bank.x", Order.CLOSEST), Ways)
