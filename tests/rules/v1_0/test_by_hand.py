"""Rules of AMQP 1.0 tried anew from the text: frames made by hand, a running router, two workers.

Nothing here uses the router's codec or its names. Each connection goes to the worker with the
fewest, so two peers of a test are at different workers.
"""

import itertools
import struct
from collections.abc import Iterator

import pytest

from tests.support.by_hand import (
    ACCEPTED,
    ATTACH,
    BEGIN,
    CLOSE,
    COORDINATOR,
    DETACH,
    DISPOSITION,
    END,
    ERROR,
    FLOW,
    HEADER,
    MODIFIED,
    OPEN,
    RECEIVER,
    REJECTED,
    RELEASED,
    SENDER,
    SOURCE,
    TARGET,
    TRANSFER,
    Hand,
    Small,
    Typed,
    frame,
    read,
    sym,
    typed,
    write,
)
from tests.support.running import running_router
from tests.support.workers import address_of

FILE = """
router: {id: by-hand, workers: 2, admin: off, drain_seconds: 0, state: ./state}
listeners: [{bind: "127.0.0.1:0"}]
routes: [{address: q.#}, {address: "m.#", distribution: multicast}]
"""

BODY = b"\x00\x53\x75\xa0\x01x"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    with running_router(FILE, tmp_path_factory.mktemp("by-hand")) as router:
        yield int(address_of(router).rpartition(":")[2])


@pytest.fixture
def address() -> str:
    return f"q.{next(_numbers)}"


def receiver(port: int, address: str, credit: int = 100) -> Hand:
    peer = Hand.greet(port, f"r{next(_numbers)}")
    peer.attach(RECEIVER, address)
    peer.hear(ATTACH)
    peer.flow(0, 0, credit)
    return peer


def sender(port: int, address: str, source: Typed | None = None) -> Hand:
    peer = Hand.greet(port, f"s{next(_numbers)}")
    if source is None:
        peer.attach(SENDER, address)
    else:
        target = typed(TARGET, address)
        peer.send(ATTACH, "link", 0, SENDER, None, None, source, target, None, None, 0)
    peer.hear(ATTACH)
    peer.hear(FLOW)
    return peer


# --- connections and sessions ---------------------------------------------------------------------


def test_another_version_is_answered_with_the_one_that_is_served(port: int) -> None:
    peer = Hand.dial(port)
    peer.say(b"AMQP\x00\x01\x01\x00")
    assert peer.hear_all(5.0) == []
    assert peer.header == HEADER
    assert peer.is_over


def test_wide_forms_and_names_for_descriptors_are_read(port: int, address: str) -> None:
    peer = Hand.dial(port)
    peer.say(HEADER + frame(0, write(typed("amqp:open:list", "wide"))))
    peer.say(frame(0, write(typed("amqp:begin:list", None, 0, 10, 10))))
    source = typed("amqp:source:list", address)
    fields = ("n", 0, RECEIVER, None, None, source, typed("amqp:target:list", "x"))
    peer.say(frame(0, write(typed("amqp:attach:list", *fields))))
    assert peer.hear(ATTACH).field(5).value[0] == address


def test_an_extended_header_is_stepped_over(port: int) -> None:
    peer = Hand.greet(port)
    peer.hear(BEGIN)
    body = write(typed(END))
    peer.say(struct.pack(">IBBH", 12 + len(body), 3, 0, 0) + b"more" + body)
    peer.hear(END)


@pytest.mark.parametrize(
    "octets",
    [
        struct.pack(">IBBH", 8, 1, 0, 0),
        struct.pack(">IBBH", 8, 2, 7, 0),
        struct.pack(">IBBH", 7, 2, 0, 0),
        struct.pack(">IBBH", 0xFFFFFFFF, 2, 0, 0),
        frame(0, write(typed(0x99))),
        frame(0, write(typed(OPEN, "again"))),
        frame(9, write(typed(FLOW, 0, 1, 0, 1))),
        frame(0, write(typed(BEGIN, None, 0, 1, 1))),
        frame(0, write(typed(FLOW, 0, 1, 0, 1, *[None] * 9))),
        frame(0, write(typed(ATTACH, None, 0, RECEIVER))),
    ],
)
def test_what_no_peer_may_say_closes_the_connection_with_an_error(port: int, octets: bytes) -> None:
    peer = Hand.greet(port)
    peer.hear(BEGIN)
    peer.say(octets)
    assert peer.hear(CLOSE).error is not None


def test_empty_frames_come_in_time_on_channel_0(port: int) -> None:
    peer = Hand.greet(port, idle=2000)
    heard = peer.hear_all(3.2)
    empty = [each for each in heard if each.code is None]
    assert len(empty) >= 2
    assert {each.channel for each in empty} == {0}
    assert all(b.at - a.at < 2.0 for a, b in itertools.pairwise(heard))


def test_nothing_follows_the_close_that_answers_a_close(port: int, address: str) -> None:
    sink, source = receiver(port, address), sender(port, address)
    sink.send(CLOSE, typed(ERROR, sym("x:bye"), "bye"))
    source.transfer(BODY)
    assert sink.hear(CLOSE).error is None
    assert sink.hear_all(0.5) == []


def test_a_session_that_ended_with_an_error_discards_until_it_is_ended(
    port: int, address: str
) -> None:
    peer = Hand.greet(port)
    peer.hear(BEGIN)
    peer.send(DETACH, 4)
    assert peer.hear(END).error == "amqp:session:unattached-handle"
    peer.flow(8, 0, 1)
    peer.attach(RECEIVER, address)
    assert peer.hear_all(0.3) == []
    peer.send(END)
    peer.send(BEGIN, None, 0, 10, 10)
    assert peer.hear(BEGIN).field(0) == 0


def test_the_end_of_a_session_leaves_the_others(port: int, address: str) -> None:
    peer = receiver(port, address)
    peer.send(BEGIN, None, 0, 10, 10, channel=1)
    peer.hear(BEGIN)
    peer.send(END, channel=1)
    peer.hear(END)
    sender(port, address).transfer(BODY)
    assert peer.hear(TRANSFER).payload == BODY


# --- links ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [FLOW, TRANSFER, DETACH])
def test_a_handle_that_no_link_has_ends_the_session(port: int, code: int) -> None:
    peer = Hand.greet(port)
    peer.hear(BEGIN)
    fields = {FLOW: (0, 1, 0, 1, 4), TRANSFER: (4, 0, b"t", 0), DETACH: (4,)}
    peer.send(code, *fields[code])
    assert peer.hear(END).error == "amqp:session:unattached-handle"


def test_handles_are_kept_to(port: int, address: str) -> None:
    peer = Hand.greet(port)
    most = peer.hear(BEGIN).field(4)
    peer.attach(RECEIVER, address, handle=0)
    peer.attach(RECEIVER, address, name="other", handle=0)
    assert peer.hear(END).error == "amqp:session:handle-in-use"
    peer = Hand.greet(port)
    peer.attach(RECEIVER, address, handle=most + 1)
    assert peer.hear(CLOSE).error == "amqp:connection:framing-error"


def test_a_link_that_the_peers_own_handles_do_not_suffice_for_is_answered(
    port: int, address: str
) -> None:
    peer = Hand.greet(port, handle_max=0)
    peer.attach(RECEIVER, address, name="one", handle=0)
    peer.hear(ATTACH)
    peer.attach(RECEIVER, address, name="two", handle=1)
    assert peer.hear(END).error is not None


def test_a_refused_link_is_errant_if_it_is_attached_again_unread(port: int) -> None:
    peer = Hand.greet(port)
    peer.attach(SENDER, "nowhere")
    assert peer.hear(ATTACH).field(6) is None
    assert peer.hear(DETACH).error == "amqp:not-found"
    peer.attach(SENDER, "nowhere", handle=1)
    assert peer.hear(END).error == "amqp:session:errant-link"


def test_input_for_a_link_whose_end_was_read_is_errant(port: int, address: str) -> None:
    peer = Hand.greet(port)
    peer.attach(RECEIVER, address, name="in", handle=1)
    peer.hear(ATTACH)
    peer.flow(1, 0, 50)
    peer.attach(SENDER, f"{address}.nobody", name="out", handle=0)
    peer.hear(ATTACH)
    peer.transfer(BODY)
    assert peer.hear(DETACH).error == "amqp:link:transfer-limit-exceeded"
    sender(port, address).transfer(BODY)
    peer.hear(TRANSFER)
    peer.flow(next_incoming_id=1)
    peer.transfer(BODY)
    assert peer.hear(END).error == "amqp:session:errant-link"


def test_a_coordinator_is_refused_by_hand(port: int) -> None:
    peer = Hand.greet(port)
    target = typed(COORDINATOR)
    peer.send(ATTACH, "tx", 0, SENDER, None, None, typed(SOURCE), target, None, None, 0)
    assert peer.hear(ATTACH).field(6) is None
    assert peer.hear(DETACH).error == "amqp:not-implemented"


@pytest.mark.parametrize("closed", [True, False])
def test_a_detach_is_answered_in_kind_by_hand(port: int, address: str, closed: bool) -> None:
    peer = receiver(port, address)
    peer.send(DETACH, 0, closed)
    assert bool(peer.hear(DETACH).field(1)) is closed


# --- credit and windows ---------------------------------------------------------------------------


def test_no_more_comes_than_was_granted(port: int, address: str) -> None:
    sink = receiver(port, address, credit=2)
    source = sender(port, address)
    for tag in (b"0", b"1"):
        source.transfer(BODY, tag)
    sink.hear(TRANSFER)
    sink.hear(TRANSFER)
    sink.flow(0, 2, 10, None, True, next_incoming_id=2)
    while (flow := sink.hear(FLOW)).field(6) != 0:
        pass
    assert (flow.field(5), flow.field(8)) == (12, True)


def test_no_more_comes_than_the_window_holds(port: int, address: str) -> None:
    sink = Hand.greet(port, window=3)
    sink.attach(RECEIVER, address)
    sink.hear(ATTACH)
    sink.flow(0, 0, 50, window=3)
    source = sender(port, address)
    for tag in range(8):
        source.transfer(BODY, b"%d" % tag)
    assert [each.code for each in sink.hear_all(0.5)].count(TRANSFER) == 3
    sink.flow(next_incoming_id=3, window=2)
    assert [each.code for each in sink.hear_all(0.5)].count(TRANSFER) == 2


def test_an_echo_tells_the_counts_of_the_session(port: int, address: str) -> None:
    sink, source = receiver(port, address), sender(port, address)
    source.transfer(BODY, b"0")
    source.transfer(BODY, b"1")
    sink.hear(TRANSFER)
    sink.hear(TRANSFER)
    source.hear_all(0.1)
    source.flow(None, None, None, None, None, True)
    flow = source.hear(FLOW)
    assert flow.field(0) == 2
    assert not flow.field(9)


def test_frames_of_512_octets_carry_any_message(port: int, address: str) -> None:
    sink = Hand.greet(port, max_frame_size=512)
    sink.attach(RECEIVER, address)
    sink.hear(ATTACH)
    sink.flow(0, 0, 5)
    payload = b"\x00\x53\x75\xb0" + struct.pack(">I", 5000) + bytes(5000)
    sender(port, address).transfer(payload)
    came, more = b"", True
    while more:
        heard = sink.hear(TRANSFER)
        assert heard.octets <= 512
        came, more = came + heard.payload, bool(heard.field(5))
    assert came == payload


# --- deliveries -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (typed(ACCEPTED), ACCEPTED),
        (typed(REJECTED, typed(ERROR, sym("x:no"), "because")), REJECTED),
        (typed(RELEASED), RELEASED),
        (typed(MODIFIED, None, True), MODIFIED),
    ],
)
def test_an_outcome_comes_back_settled(port: int, address: str, state: Typed, told: int) -> None:
    sink, source = receiver(port, address), sender(port, address)
    source.transfer(BODY)
    sink.hear(TRANSFER)
    sink.settle(0, state)
    disposition = source.hear(DISPOSITION)
    assert (disposition.field(0), disposition.field(3)) == (RECEIVER, True)
    assert disposition.field(4).code == told
    if told == REJECTED:
        assert disposition.field(4).value[0].value[:2] == ["x:no", "because"]


def test_outcomes_in_any_order_find_their_deliveries(port: int, address: str) -> None:
    sink, source = receiver(port, address), sender(port, address)
    for tag in range(3):
        source.transfer(BODY, b"%d" % tag)
        sink.hear(TRANSFER)
    told = {}
    for number, code in ((2, ACCEPTED), (0, REJECTED), (1, ACCEPTED)):
        sink.settle(number, typed(code))
        disposition = source.hear(DISPOSITION)
        told[disposition.field(1)] = disposition.field(4).code
    assert told == {0: REJECTED, 1: ACCEPTED, 2: ACCEPTED}


def test_a_source_is_told_no_outcome_that_it_does_not_list(port: int, address: str) -> None:
    sink = receiver(port, address)
    none = [None] * 8
    source = sender(port, address, typed(SOURCE, "here", *none, sym("amqp:modified:list")))
    source.transfer(BODY)
    sink.hear(TRANSFER)
    sink.settle(0, typed(RELEASED))
    assert source.hear(DISPOSITION).field(4).code == MODIFIED
    outcomes = sym("amqp:accepted:list", "x:other:list")
    source = sender(port, address, typed(SOURCE, "here", *none, outcomes))
    source.transfer(BODY)
    sink.hear(TRANSFER)
    sink.settle(1, typed(RELEASED))
    heard = source.hear_all(0.5)
    assert [each.code for each in heard if each.code in (DISPOSITION, DETACH)] == [DETACH]


def test_the_default_outcome_is_what_settling_without_a_word_means(port: int, address: str) -> None:
    sink = Hand.greet(port)
    terminus = typed(SOURCE, address, *[None] * 7, typed(RELEASED))
    sink.send(ATTACH, "in", 0, RECEIVER, None, None, terminus, typed(TARGET, "x"))
    sink.hear(ATTACH)
    sink.flow(0, 0, 5)
    source = sender(port, address)
    source.transfer(BODY)
    sink.hear(TRANSFER)
    sink.settle(0, None)
    assert source.hear(DISPOSITION).field(4).code == RELEASED


@pytest.mark.parametrize("mode", [0, 1])
def test_a_transfer_against_its_links_mode_detaches_it(port: int, address: str, mode: int) -> None:
    sink = receiver(port, address)
    source = Hand.greet(port)
    target = typed(TARGET, address)
    source.send(ATTACH, "out", 0, SENDER, Small(mode), None, typed(SOURCE), target, None, None, 0)
    source.hear(FLOW)
    source.transfer(BODY, b"t", mode == 0)
    assert source.hear(DETACH).error == "amqp:invalid-field"
    assert TRANSFER not in [each.code for each in sink.hear_all(0.2)]


def test_an_aborted_delivery_is_not_delivered(port: int, address: str) -> None:
    sink, source = receiver(port, address), sender(port, address)
    source.transfer(b"\x00\x53\x75\xa0\x09", b"void", None, True)
    source.send(TRANSFER, 0, None, None, None, None, True, None, None, None, True, payload=b"z")
    source.transfer(BODY, b"good")
    whole: list[bytes] = []
    while not whole:
        heard = sink.hear(TRANSFER)
        if not heard.field(5) and not heard.field(9):
            whole.append(heard.payload)
    assert whole == [BODY]


def test_only_a_failed_attempt_raises_the_count_for_the_next(port: int, address: str) -> None:
    for state, count in ((typed(RELEASED), 0), (typed(MODIFIED, True), 1)):
        first = receiver(port, f"{address}.{count}", credit=1)
        source = sender(port, f"{address}.{count}")
        source.transfer(BODY)
        first.hear(TRANSFER)
        second = receiver(port, f"{address}.{count}")
        source.transfer(BODY, b"probe")  # which shows that the second one is known
        assert second.hear(TRANSFER).payload == BODY
        first.settle(0, state)
        payload = second.hear(TRANSFER).payload
        section, _ = read(payload)
        found = section.value[4] if section.code == 0x70 else 0
        assert found == count
        assert payload.endswith(BODY)


def test_a_transaction_that_nobody_declared_goes_no_further(port: int, address: str) -> None:
    sink, source = receiver(port, address), sender(port, address)
    source.transfer(BODY, b"t", None, None, None, typed(0x34, b"txn"))
    assert source.hear(DETACH).error == "amqp:transaction:unknown-id"
    assert TRANSFER not in [each.code for each in sink.hear_all(0.2)]


def test_delivery_annotations_end_at_the_router_on_the_lane_and_off_it(
    port: int, address: str
) -> None:
    sink, source = receiver(port, address), sender(port, address)
    annotations = write(Typed(0x71, {sym("x-opt-secret"): "s"}))
    kept = write(Typed(0x72, {sym("x-opt-kept"): 1})) + BODY
    for index in range(12):
        header = write(typed(0x70, True)) if index % 2 else b""
        source.transfer(header + (annotations if index % 3 else b"") + kept, b"%d" % index)
        assert sink.hear(TRANSFER).payload == header + kept


def test_any_payload_passes_as_it_is(port: int, address: str) -> None:
    sink, source = receiver(port, address), sender(port, address)
    payloads = [write(Typed(0x77, {"a": [1, 2]})), write(typed(0x76, 1, "x")) * 2, b"", b"\x00\x53"]
    for index, payload in enumerate(payloads):
        source.transfer(payload, b"%d" % index)
        assert sink.hear(TRANSFER).payload == payload


def test_everybody_gets_a_multicast_at_either_worker(port: int, address: str) -> None:
    address = f"m.{address}"
    sinks = [receiver(port, address, credit=5) for _ in range(4)]
    source = sender(port, address)
    source.transfer(BODY)
    for sink in sinks:
        assert sink.hear(TRANSFER).payload == BODY
        sink.settle(0, typed(ACCEPTED))
    assert source.hear(DISPOSITION).field(4).code == ACCEPTED


def test_the_anonymous_terminus_names_what_it_cannot_route(port: int) -> None:
    source = Hand.greet(port)
    source.send(ATTACH, "any", 0, SENDER, None, None, typed(SOURCE), typed(TARGET), None, None, 0)
    source.hear(FLOW)
    nowhere = write(typed(0x73, None, None, "no.where")) + BODY
    source.transfer(nowhere, b"unsettled")
    assert source.hear(DISPOSITION).field(4).code == REJECTED
    source.transfer(nowhere, b"settled", True)
    detach = source.hear(DETACH)
    assert detach.field(2).value[2]["delivery-tag"] == b"settled"
