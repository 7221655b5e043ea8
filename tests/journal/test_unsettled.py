import functools
import itertools
from collections.abc import Callable, Sequence

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.journal.block import Block, open_block, seal_block
from router.journal.keys import NO_LINK, LinkKey
from router.journal.memory import Memory
from router.journal.record import (
    ROW,
    LinkDescription,
    OutcomeCode,
    RecordFlag,
    RecordKind,
    Resolution,
)
from router.journal.sequence import SequenceFollower
from router.journal.snapshot import write_memory
from router.journal.unsettled import LinkStage, SendingStage, Unsettled
from router.journal.writer import RecordWriter
from router.model.identity import DeliveryKey
from tests.support.journal import SOURCE, START_NS, TARGET, key, new_writer

OTHER = LinkKey(TARGET + 1)
K = key(1)


def remember(*writers: RecordWriter) -> Memory:
    """Applies all that ``writers`` wrote, one writer after the other."""
    memory = Memory()
    for writer in writers:
        for sealed in writer.take_blocks():
            memory.apply(open_block(memoryview(sealed.octets)))
    return memory


def powerset(numbers: Sequence[int]) -> list[tuple[int, ...]]:
    sizes = range(len(numbers) + 1)
    return [*itertools.chain.from_iterable(itertools.combinations(numbers, n) for n in sizes)]


def only(memory: Memory) -> Unsettled:
    (delivery,) = memory.deliveries.values()
    return delivery


def received() -> RecordWriter:
    writer = new_writer()
    writer.received(START_NS, K, SOURCE, b"tag")
    return writer


# ------------------------------------------------------------------ the table of stages


def bring_sending_to(stage: SendingStage | None, writer: RecordWriter) -> None:
    if stage is None:
        return
    writer.sent(START_NS, K, SOURCE, TARGET, b"out")
    if stage is SendingStage.IN_DOUBT:
        writer.in_doubt(START_NS, K, SOURCE, TARGET)
    elif stage is SendingStage.ANSWERED:
        writer.outcome(START_NS, K, SOURCE, TARGET, OutcomeCode.ACCEPTED)
    elif stage is SendingStage.SETTLED:
        writer.settled(START_NS, K, SOURCE, TARGET)


INPUTS: dict[str, Callable[[RecordWriter], int]] = {
    "sent": lambda w: w.sent(START_NS, K, SOURCE, TARGET, b"again"),
    "sent settled": lambda w: w.sent(
        START_NS, K, SOURCE, TARGET, b"again", flags=RecordFlag.SETTLED
    ),
    "outcome": lambda w: w.outcome(START_NS, K, SOURCE, TARGET, OutcomeCode.REJECTED),
    "outcome settled": lambda w: w.outcome(
        START_NS, K, SOURCE, TARGET, OutcomeCode.REJECTED, flags=RecordFlag.SETTLED
    ),
    "settled": lambda w: w.settled(START_NS, K, SOURCE, TARGET),
    "in doubt": lambda w: w.in_doubt(START_NS, K, SOURCE, TARGET),
    "send again": lambda w: w.resolved(START_NS, K, SOURCE, TARGET, Resolution.SEND_AGAIN),
    "resolved": lambda w: w.resolved(START_NS, K, SOURCE, TARGET, Resolution.ACCEPT),
}
NONE, SENT, DOUBT = None, SendingStage.SENT, SendingStage.IN_DOUBT
ANSWERED, SETTLED = SendingStage.ANSWERED, SendingStage.SETTLED
TABLE = {
    #                    none     SENT      IN_DOUBT  ANSWERED  SETTLED
    "sent":             (SENT,    SENT,     SENT,     SENT,     SENT),
    "sent settled":     (SETTLED, SETTLED,  SETTLED,  SETTLED,  SETTLED),
    "outcome":          (ANSWERED, ANSWERED, ANSWERED, ANSWERED, SETTLED),
    "outcome settled":  (SETTLED, SETTLED,  SETTLED,  SETTLED,  SETTLED),
    "settled":          (SETTLED, SETTLED,  SETTLED,  SETTLED,  SETTLED),
    "in doubt":         (DOUBT,   DOUBT,    DOUBT,    ANSWERED, SETTLED),
    "send again":       (NONE,    NONE,     NONE,     ANSWERED, SETTLED),
    "resolved":         (NONE,    SETTLED,  SETTLED,  ANSWERED, SETTLED),
}  # fmt: skip


@pytest.mark.parametrize("told", INPUTS)
@pytest.mark.parametrize("stage", [None, *SendingStage])
def test_a_sending_moves_as_the_table_says(stage: SendingStage | None, told: str) -> None:
    writer = received()
    bring_sending_to(stage, writer)
    INPUTS[told](writer)
    sending = only(remember(writer)).sendings.get(TARGET)
    expected = TABLE[told][0 if stage is None else int(stage)]
    assert (None if sending is None else sending.stage) == expected


def test_an_outcome_that_comes_after_settlement_changes_nothing() -> None:
    writer = received()
    writer.outcome(
        START_NS, K, SOURCE, TARGET, OutcomeCode.ACCEPTED, flags=RecordFlag.SETTLED, state=b"s"
    )
    writer.outcome(START_NS, K, SOURCE, TARGET, OutcomeCode.REJECTED)
    sending = only(remember(writer)).sendings[TARGET]
    assert (sending.outcome, sending.state) == (OutcomeCode.ACCEPTED, b"s")


def test_a_new_attempt_forgets_the_outcome_of_the_one_before() -> None:
    writer = received()
    writer.sent(START_NS, K, SOURCE, TARGET, b"1", delivery_count=0)
    writer.outcome(START_NS, K, SOURCE, TARGET, OutcomeCode.RELEASED, state=b"released")
    writer.sent(START_NS + 1, K, SOURCE, TARGET, b"2", delivery_count=1, address="elsewhere")
    sending = only(remember(writer)).sendings[TARGET]
    assert (sending.outcome, sending.state, sending.tag) == (0, b"", b"2")
    assert (sending.delivery_count, sending.sent_ns, sending.address) == (
        1,
        START_NS + 1,
        "elsewhere",
    )


# ------------------------------------------------------------------ known and forgotten


def test_a_delivery_is_forgotten_when_sender_and_every_receiver_have_settled() -> None:
    """NothingForgotten."""

    def settle_sender(writer: RecordWriter) -> None:
        writer.settled(START_NS, K, SOURCE)

    def settle_one(writer: RecordWriter) -> None:
        writer.settled(START_NS, K, SOURCE, TARGET)

    def settle_other(writer: RecordWriter) -> None:
        writer.settled(START_NS, K, SOURCE, OTHER)

    for order in itertools.permutations([settle_sender, settle_one, settle_other]):
        writer = received()
        writer.sent(START_NS, K, SOURCE, TARGET, b"1")
        writer.sent(START_NS, K, SOURCE, OTHER, b"2")
        memory = remember(writer)
        for settle in order:
            assert memory.deliveries
            settle(writer)
            for sealed in writer.take_blocks():
                memory.apply(open_block(memoryview(sealed.octets)))
        assert not memory.deliveries


def test_what_comes_late_about_a_forgotten_delivery_does_not_revive_it() -> None:
    """NothingRevived."""
    writer = received()
    writer.settled(START_NS, K, SOURCE)
    for tell in INPUTS.values():
        tell(writer)
    writer.part(START_NS, K, SOURCE, b"part", more=False, offset=0)
    writer.settled(START_NS, K, SOURCE)
    memory = remember(writer)
    assert memory.deliveries == {}
    assert memory.late_records == len(INPUTS) + 2


def test_a_delivery_that_came_settled_is_kept_until_it_was_sent() -> None:
    writer = new_writer()
    writer.received(START_NS, K, SOURCE, b"t", flags=RecordFlag.SETTLED, payload=b"p")
    memory = remember(writer)
    assert only(memory).is_waiting
    writer.sent(START_NS, K, SOURCE, TARGET, b"o", flags=RecordFlag.SETTLED)
    for sealed in writer.take_blocks():
        memory.apply(open_block(memoryview(sealed.octets)))
    assert not memory.deliveries


def test_a_delivery_to_be_sent_again_is_kept_though_its_sender_has_settled() -> None:
    writer = received()
    writer.sent(START_NS, K, SOURCE, TARGET, b"o")
    writer.settled(START_NS, K, SOURCE)
    writer.resolved(START_NS, K, SOURCE, TARGET, Resolution.SEND_AGAIN, by_person=True)
    delivery = only(remember(writer))
    assert delivery.is_waiting
    assert delivery.source_settled
    assert delivery.sendings == {}


def test_giving_up_a_delivery_that_waits_forgets_it() -> None:
    writer = new_writer()
    writer.received(START_NS, K, SOURCE, b"t", flags=RecordFlag.SETTLED, payload=b"p")
    writer.settled(START_NS, K, SOURCE)
    assert remember(writer).deliveries == {}


def test_what_the_router_decides_by_itself_is_remembered_for_the_sender() -> None:
    writer = received()
    writer.outcome(START_NS, K, SOURCE, NO_LINK, OutcomeCode.REJECTED, state=b"not-found")
    delivery = only(remember(writer))
    assert (delivery.outcome, delivery.state) == (OutcomeCode.REJECTED, b"not-found")
    writer = received()
    writer.outcome(START_NS, K, SOURCE, NO_LINK, OutcomeCode.RELEASED, flags=RecordFlag.SETTLED)
    assert remember(writer).deliveries == {}


def test_the_same_key_on_two_links_names_two_deliveries() -> None:
    writer = new_writer()
    writer.received(START_NS, K, SOURCE, b"t")
    writer.received(START_NS, K, OTHER, b"t")
    writer.settled(START_NS, K, SOURCE)
    assert [incoming for incoming, _ in remember(writer).deliveries] == [OTHER]


def test_a_new_delivery_under_a_known_key_takes_the_place_of_the_old() -> None:
    writer = received()
    writer.outcome(START_NS, K, SOURCE, TARGET, OutcomeCode.ACCEPTED)
    writer.received(START_NS + 1, K, SOURCE, b"new")
    delivery = only(remember(writer))
    assert (delivery.tag, delivery.sendings) == (b"new", {})


def test_a_resumed_delivery_keeps_what_is_known_of_it() -> None:
    writer = new_writer()
    writer.received(START_NS, K, SOURCE, b"t", payload=b"first", flags=RecordFlag.MORE)
    writer.sent(START_NS, K, SOURCE, TARGET, b"o")
    writer.received(
        START_NS + 1,
        K,
        SOURCE,
        b"t2",
        payload=b"whole",
        flags=RecordFlag.RESUMED,
        message_octets=5,
    )
    delivery = only(remember(writer))
    assert delivery.sendings[TARGET].stage is SendingStage.SENT
    assert (delivery.tag, delivery.payload, delivery.received_ns) == (b"t2", b"whole", START_NS)


def test_a_payload_is_there_only_when_its_last_part_is() -> None:
    writer = new_writer()
    writer.received(START_NS, K, SOURCE, b"t", payload=b"a", flags=RecordFlag.MORE)
    memory = remember(writer)
    assert only(memory).payload is None
    writer.part(START_NS, K, SOURCE, b"b", more=True, offset=1)
    writer.part(START_NS, K, SOURCE, b"c", more=False, offset=2)
    for sealed in writer.take_blocks():
        memory.apply(open_block(memoryview(sealed.octets)))
    assert only(memory).payload == b"abc"


ANSWERS: dict[str, tuple[bool, list[Callable[[RecordWriter], int]]]] = {
    "nothing": (True, []),
    "sent": (True, [INPUTS["sent"]]),
    "in doubt": (True, [INPUTS["sent"], INPUTS["in doubt"]]),
    "released": (
        True,
        [
            INPUTS["sent"],
            lambda w: w.outcome(START_NS, K, SOURCE, TARGET, OutcomeCode.RELEASED),
        ],
    ),
    "accepted by one of many": (
        True,
        [
            lambda w: w.sent(START_NS, K, SOURCE, TARGET, b"o", flags=RecordFlag.FANNED),
            lambda w: w.outcome(START_NS, K, SOURCE, TARGET, OutcomeCode.ACCEPTED),
        ],
    ),
    "accepted, its SENT is missing": (
        True,
        [lambda w: w.outcome(START_NS, K, SOURCE, TARGET, OutcomeCode.ACCEPTED)],
    ),
    "accepted, in doubt elsewhere": (
        True,
        [
            lambda w: w.sent(START_NS, K, SOURCE, OTHER, b"e"),
            INPUTS["sent"],
            lambda w: w.outcome(START_NS, K, SOURCE, TARGET, OutcomeCode.ACCEPTED),
        ],
    ),
    "accepted": (
        False,
        [
            INPUTS["sent"],
            lambda w: w.outcome(START_NS, K, SOURCE, TARGET, OutcomeCode.ACCEPTED),
        ],
    ),
    "accepted by a person": (False, [INPUTS["sent"], INPUTS["in doubt"], INPUTS["resolved"]]),
    "accepted, settled": (
        False,
        [
            INPUTS["sent"],
            lambda w: w.outcome(
                START_NS, K, SOURCE, TARGET, OutcomeCode.ACCEPTED, flags=RecordFlag.SETTLED
            ),
        ],
    ),
    "accepted after a release elsewhere": (
        False,
        [
            lambda w: w.sent(START_NS, K, SOURCE, OTHER, b"e"),
            lambda w: w.outcome(START_NS, K, SOURCE, OTHER, OutcomeCode.RELEASED),
            INPUTS["sent"],
            lambda w: w.outcome(START_NS, K, SOURCE, TARGET, OutcomeCode.ACCEPTED),
        ],
    ),
    "decided here": (
        False,
        [lambda w: w.outcome(START_NS, K, SOURCE, NO_LINK, OutcomeCode.REJECTED)],
    ),
    "decided here, then resumed": (
        False,
        [
            lambda w: w.outcome(START_NS, K, SOURCE, NO_LINK, OutcomeCode.REJECTED),
            lambda w: w.received(
                START_NS,
                K,
                SOURCE,
                b"t",
                payload=b"payload",
                flags=RecordFlag.RESUMED,
                message_octets=7,
            ),
        ],
    ),
}


@pytest.mark.parametrize("name", ANSWERS)
@pytest.mark.parametrize("copies", [False, True])
def test_a_payload_is_kept_as_long_as_somebody_may_be_sent_it(name: str, copies: bool) -> None:
    is_kept, answers = ANSWERS[name]
    writer = new_writer()
    writer.received(
        START_NS, K, SOURCE, b"t", payload=b"payload", flags=RecordFlag.SPLICED, message_octets=7
    )
    for answer in answers:
        answer(writer)
    memory = remember(writer)
    if copies:
        copy = new_writer(incarnation=2)
        write_memory(memory, lambda _: copy)
        memory, before = remember(copy), memory
        assert memory.deliveries == before.deliveries
    delivery = only(memory)
    assert delivery.payload == (b"payload" if is_kept else None)
    assert (delivery.is_spliced, delivery.message_octets) == (is_kept, 7)
    if name == "accepted by one of many":
        writer.sent(START_NS, K, SOURCE, OTHER, b"e", flags=RecordFlag.FANNED)
        for sealed in writer.take_blocks():
            memory.apply(open_block(memoryview(sealed.octets)))
        assert only(memory).payload == b"payload"


def test_a_delivery_belongs_to_the_worker_that_wrote_about_it_last() -> None:
    first, second = received(), new_writer(worker=2)
    second.sent(START_NS, K, SOURCE, TARGET, b"o")
    assert only(remember(first, second)).worker == 2


def test_a_cloud_covers_one_worker_or_all() -> None:
    one, two = new_writer(1), new_writer(2)
    one.received(START_NS, key(1), SOURCE, b"t")
    two.received(START_NS, key(2), SOURCE, b"t")
    memory = remember(one, two)
    memory.cloud(2)
    assert [d.clouded for d in memory.deliveries.values()] == [False, True]
    memory.cloud()
    assert [d.clouded for d in memory.deliveries.values()] == [True, True]


# ------------------------------------------------------------------ the short cut

USUAL_LIVES: dict[str, list[Callable[[RecordWriter], int]]] = {
    "at least once": [
        lambda w: w.received(START_NS, K, SOURCE, b"t"),
        lambda w: w.sent(START_NS, K, SOURCE, TARGET, b"o"),
        INPUTS["outcome settled"],
        lambda w: w.settled(START_NS, K, SOURCE),
    ],
    "exactly once": [
        lambda w: w.received(START_NS, K, SOURCE, b"t", payload=b"held"),
        lambda w: w.sent(START_NS, K, SOURCE, TARGET, b"o"),
        INPUTS["outcome"],
        lambda w: w.settled(START_NS, K, SOURCE),
        INPUTS["settled"],
    ],
    "at most once": [
        lambda w: w.received(START_NS, K, SOURCE, b"t", flags=RecordFlag.SETTLED),
        INPUTS["sent settled"],
    ],
}
TURNS: dict[str, Callable[[RecordWriter], int]] = {
    **INPUTS,
    "nothing": lambda w: 0,
    "received": lambda w: w.received(START_NS, K, SOURCE, b"t"),
    "received settled": lambda w: w.received(START_NS, K, SOURCE, b"t", flags=RecordFlag.SETTLED),
    "resumed": lambda w: w.received(START_NS, K, SOURCE, b"r", flags=RecordFlag.RESUMED),
    "part": lambda w: w.part(START_NS, K, SOURCE, b"part", more=False, offset=0),
    "settled by sender": lambda w: w.settled(START_NS, K, SOURCE),
    "decided": lambda w: w.outcome(START_NS, K, SOURCE, NO_LINK, OutcomeCode.REJECTED),
    "sent elsewhere": lambda w: w.sent(START_NS, K, SOURCE, OTHER, b"e"),
    "outcome elsewhere": lambda w: w.outcome(
        START_NS, K, SOURCE, OTHER, OutcomeCode.ACCEPTED, flags=RecordFlag.SETTLED
    ),
    "settled elsewhere": lambda w: w.settled(START_NS, K, SOURCE, OTHER),
}


def record_by_record(tellings: Sequence[Callable[[RecordWriter], int]]) -> Memory:
    """Applies each record by itself, every delivery being made before the next."""
    writer, memory = new_writer(), Memory()
    for tell_next in tellings:
        tell_next(writer)
        for sealed in writer.take_blocks():
            memory.apply(open_block(memoryview(sealed.octets)))
        memory.make()
    return memory


@pytest.mark.parametrize("name", USUAL_LIVES)
def test_a_usual_life_leaves_nothing(name: str) -> None:
    writer = new_writer()
    for tell_next in USUAL_LIVES[name]:
        tell_next(writer)
    memory = remember(writer)
    assert (memory.deliveries, memory.late_records) == ({}, 0)


@pytest.mark.parametrize("name", USUAL_LIVES)
def test_a_life_that_leaves_the_usual_way_anywhere_ends_as_the_table_says(name: str) -> None:
    life = USUAL_LIVES[name]
    for length, turn, rest in itertools.product(range(len(life) + 1), TURNS, range(len(life) + 1)):
        tellings = [*life[:length], TURNS[turn], *life[rest:]]
        writer = new_writer()
        for tell_next in tellings:
            tell_next(writer)
        followed, made = remember(writer), record_by_record(tellings)
        assert followed.deliveries == made.deliveries
        assert followed.late_records == made.late_records


# ------------------------------------------------------------------ links


def link(link_key: LinkKey = TARGET, *, is_incoming: bool = False) -> LinkDescription:
    return LinkDescription(
        key=link_key, is_incoming=is_incoming, local="dc1", remote="b", name="l", terminus=b"t"
    )


def test_a_link_is_remembered_as_it_was_told_last() -> None:
    writer = new_writer()
    writer.link_attached(START_NS, link())
    memory = remember(writer)
    assert memory.links[TARGET].stage is LinkStage.ATTACHED
    writer.link_suspended(START_NS + 1, outgoing=TARGET)
    for sealed in writer.take_blocks():
        memory.apply(open_block(memoryview(sealed.octets)))
    remembered = memory.links[TARGET]
    assert (remembered.description, remembered.since_ns) == (link(), START_NS + 1)
    assert remembered.stage == LinkStage.SUSPENDED


def test_a_link_to_a_trusted_router_is_remembered_as_one() -> None:
    writer = new_writer()
    trusted = attrs.evolve(link(), is_router=True)
    writer.link_attached(START_NS, trusted)
    assert remember(writer).links[TARGET].description == trusted


def test_a_copy_of_a_link_tells_nothing_to_who_knows_it() -> None:
    writer = new_writer()
    writer.link_attached(START_NS, link())
    writer.link_suspended(START_NS, outgoing=TARGET)
    writer.link_attached(START_NS, link(), flags=RecordFlag.COPY)
    assert remember(writer).links[TARGET].stage is LinkStage.SUSPENDED
    writer.link_attached(START_NS, link(), flags=RecordFlag.COPY)
    assert remember(writer).links[TARGET].stage is LinkStage.ATTACHED


def test_an_expired_link_is_kept_only_while_a_delivery_speaks_of_it() -> None:
    writer = received()
    writer.link_attached(START_NS, link(SOURCE, is_incoming=True))
    writer.link_attached(START_NS, link())
    writer.link_attached(START_NS, link(OTHER))
    writer.sent(START_NS, K, SOURCE, TARGET, b"o")
    writer.link_expired(START_NS, incoming=SOURCE)
    writer.link_expired(START_NS, outgoing=TARGET)
    writer.link_expired(START_NS, outgoing=OTHER)
    memory = remember(writer)
    memory.forget_links()
    assert set(memory.links) == {SOURCE, TARGET}


def test_records_that_cannot_be_understood_are_counted_and_passed_over() -> None:
    rows = b"".join(
        ROW.pack(kind, 0, 0, 0, 0, 0, 0, K, SOURCE, outgoing, 0, 0, 0, 0, 9, 0, 1)
        for kind, outgoing in ((RecordKind.RECEIVED, 0), (RecordKind.LINK_ATTACHED, 0), (99, 0))
    )
    octets = seal_block(rows, b"", first_sequence=1, worker=1, incarnation=1)
    memory = Memory()
    memory.apply(open_block(memoryview(octets)))
    assert (memory.deliveries, memory.links, memory.unreadable_records) == ({}, {}, 2)


# ------------------------------------------------------------------ against a model


@attrs.define
class Told:
    """One record as the model takes it."""

    what: str
    number: int
    outgoing: LinkKey
    outcome: OutcomeCode
    is_settled: bool


tellings = st.builds(
    Told,
    what=st.sampled_from(
        ["received", "resumed", "sent", "outcome", "settled", "in doubt", "again", "resolved"]
    ),
    number=st.integers(0, 2),
    outgoing=st.sampled_from([NO_LINK, TARGET, OTHER]),
    outcome=st.sampled_from([OutcomeCode.ACCEPTED, OutcomeCode.RELEASED]),
    is_settled=st.booleans(),
)


def tell(writer: RecordWriter, told: Told, now_ns: int) -> int:
    place = now_ns, key(told.number), SOURCE
    flags = RecordFlag.SETTLED if told.is_settled else RecordFlag(0)
    outgoing = told.outgoing or TARGET
    match told.what:
        case "received":
            writer.received(*place, b"t", flags=flags, payload=b"p" if told.outgoing else None)
        case "resumed":
            writer.received(*place, b"t", flags=flags | RecordFlag.RESUMED)
        case "sent":
            writer.sent(*place, outgoing, b"%d" % now_ns, flags=flags, delivery_count=3)
        case "outcome":
            writer.outcome(*place, told.outgoing, told.outcome, flags=flags, state=b"state")
        case "settled":
            writer.settled(*place, told.outgoing)
        case "in doubt":
            writer.in_doubt(*place, outgoing)
        case "again":
            writer.resolved(*place, told.outgoing, Resolution.SEND_AGAIN, is_unsent=told.is_settled)
        case "resolved":
            writer.resolved(*place, outgoing, Resolution.RELEASE, by_person=told.is_settled)
    return 0


def expected(tellings: list[Told]) -> dict[DeliveryKey, tuple[bool, bool, dict[LinkKey, str]]]:
    """Says by another way what is unsettled: (sender has settled, waits, sendings)."""
    known: dict[DeliveryKey, tuple[bool, bool, dict[LinkKey, str]]] = {}
    for told in tellings:
        name, out = key(told.number), told.outgoing
        if told.what == "received" or (told.what == "resumed" and name not in known):
            known[name] = (told.is_settled, True, {})
            continue
        if name not in known:
            continue
        source, waits, sendings = known[name]
        sending = sendings.get(out or TARGET)
        if told.what == "resumed":
            source |= told.is_settled
        elif told.what == "sent":
            sendings[out or TARGET] = "settled" if told.is_settled else "open"
            waits = False
        elif told.what == "outcome" and not out:
            source, waits = source or told.is_settled, waits and not told.is_settled
        elif told.what == "outcome" and sending != "settled":
            sendings[out] = "settled" if told.is_settled else "answered"
        elif told.what == "settled" and not out:
            source, waits = True, False
        elif told.what == "settled":
            sendings[out] = "settled"
        elif told.what == "in doubt" and sending is None:
            sendings[out or TARGET] = "open"
        elif told.what == "again" and not out:
            waits = True
        elif told.what == "again" and sending == "open":
            del sendings[out]
            waits = True
        elif told.what == "resolved" and sending == "open":
            sendings[out or TARGET] = "settled"
        known[name] = (source, waits, sendings)
        if source and not waits and set(sendings.values()) <= {"settled"}:
            del known[name]
    return known


STAGE_NAMES = {
    SendingStage.SENT: "open",
    SendingStage.IN_DOUBT: "open",
    SendingStage.ANSWERED: "answered",
    SendingStage.SETTLED: "settled",
}


def seen(memory: Memory) -> dict[DeliveryKey, tuple[bool, bool, dict[LinkKey, str]]]:
    return {
        delivery.key: (
            delivery.source_settled,
            delivery.is_waiting,
            {
                outgoing: STAGE_NAMES[sending.stage]
                for outgoing, sending in delivery.sendings.items()
            },
        )
        for delivery in memory.deliveries.values()
    }


@settings(max_examples=400, deadline=None)
@given(st.lists(tellings, max_size=25))
def test_any_records_leave_what_a_simple_model_says(tellings: list[Told]) -> None:
    """NothingRevived, NothingForgotten."""
    writer = new_writer()
    for now_ns, told in enumerate(tellings, start=START_NS):
        tell(writer, told, now_ns)
    memory = remember(writer)
    assert seen(memory) == expected(tellings)
    each = [
        functools.partial(tell, told=told, now_ns=START_NS + i) for i, told in enumerate(tellings)
    ]
    assert record_by_record(each).deliveries == memory.deliveries


@settings(max_examples=400, deadline=None)
@given(st.lists(tellings, max_size=25), st.booleans())
def test_a_memory_that_is_written_and_read_back_is_the_same(
    tellings: list[Told],
    clouds: bool,
) -> None:
    writers = [new_writer(worker) for worker in (1, 2)]
    for writer in writers:
        writer.link_attached(START_NS, link(LinkKey(writer.worker)))
    writers[1].link_suspended(START_NS + 1, outgoing=LinkKey(2))
    for now_ns, told in enumerate(tellings, start=START_NS):
        tell(writers[0], told, now_ns)
    writers[1].received(START_NS, key(9), OTHER, b"t", ttl_milliseconds=5, address="a", payload=b"")
    memory = remember(*writers)
    if clouds:
        memory.cloud()
    again: dict[int, RecordWriter] = {1: new_writer(1), 2: new_writer(2)}
    write_memory(memory, again.__getitem__)
    read = remember(*again.values())
    assert read.deliveries == memory.deliveries
    assert read.links == memory.links
    assert read.late_records == 0


@pytest.mark.parametrize("missing", [0, 1, 2, None])
@pytest.mark.parametrize("copies", [False, True])
def test_of_what_came_as_one_and_lacks_records_no_part_is_taken_for_the_whole(
    missing: int | None, copies: bool
) -> None:
    payload = bytes(range(256)) * 12288
    writer = new_writer()
    octets = len(payload)
    writer.received(START_NS, K, SOURCE, b"tag", payload=payload, message_octets=octets)
    blocks = [open_block(memoryview(each.octets)) for each in writer.take_blocks()]
    assert len(blocks) == 3
    memory = Memory()
    for number, block in enumerate(blocks):
        if number != missing:
            memory.apply(block)
    if copies:
        copy = new_writer(incarnation=2)
        write_memory(memory, lambda _: copy)
        memory = remember(copy)
    if missing == 0:
        assert not memory.deliveries
        return
    delivery = only(memory)
    assert delivery.is_cut_off == (missing is not None)
    assert delivery.payload == (payload if missing is None else None)


BODIES = (b"", b"one", b"two", b"three", b"four")


def in_parts(*, is_placed: bool = True, first: int = 0, incarnation: int = 1) -> list[Block]:
    """Gives a delivery in parts, each in a block of its own; or its parts from one on.

    Args:
        is_placed: parts say where they belong; those of the version before do not.
        first: number of the first part that is written.
        incarnation: of the worker that writes.
    """
    writer, blocks = new_writer(incarnation=incarnation), []
    for number, body in enumerate(BODIES[first:], first):
        more = number + 1 < len(BODIES)
        if number == 0:
            flags = RecordFlag.MORE
            writer.received(START_NS, K, SOURCE, b"tag", payload=body, flags=flags)
        elif is_placed:
            offset = len(b"".join(BODIES[:number]))
            writer.part(START_NS, K, SOURCE, body, more=more, offset=offset)
        else:
            flags = RecordFlag.MORE if more else RecordFlag(0)
            kind = RecordKind.PART
            writer.append(kind, START_NS, key=K, incoming=SOURCE, flags=flags, body=body)
        blocks += [open_block(memoryview(each.octets)) for each in writer.take_blocks()]
    return blocks


@pytest.mark.parametrize("missing", [*powerset(range(1, 5))])
@pytest.mark.parametrize("copies", [False, True])
def test_of_a_delivery_that_came_in_parts_nothing_behind_a_hole_counts(
    missing: tuple[int, ...], copies: bool
) -> None:
    """What is here is its beginning, with which its sender can go on (§2.6.13)."""
    blocks = [block for number, block in enumerate(in_parts()) if number not in missing]
    memory = Memory()
    for block in blocks:
        memory.apply(block)
    if copies:
        copy = new_writer(incarnation=2)
        write_memory(memory, lambda _: copy)
        memory = remember(copy)
    delivery = only(memory)
    known = min(missing, default=len(BODIES))
    assert b"".join(delivery.parts or []) == b"".join(BODIES[:known])
    assert delivery.payload == (None if missing else b"".join(BODIES))
    for block in in_parts(first=known, incarnation=3):  # its sender goes on where it stands
        memory.apply(block)
    assert delivery.payload == b"".join(BODIES)


@pytest.mark.parametrize("begins", [0, 1, 2])
def test_parts_of_another_life_whose_beginning_is_missing_are_not_put_behind_those_before(
    begins: int,
) -> None:
    """The later life may have had the delivery anew, from its beginning."""
    memory = Memory()
    for block in in_parts()[:3]:
        memory.apply(block)
    for block in in_parts(first=0, incarnation=2)[begins + 1 :]:
        memory.apply(block)
    payload = only(memory).payload
    assert payload is None or payload == b"".join(BODIES)


@pytest.mark.parametrize("missing", [None, 1, 2, 3])
def test_parts_of_the_version_before_count_unless_records_between_them_are_missing(
    missing: int | None,
) -> None:
    follower, memory = SequenceFollower(), Memory()
    for number, block in enumerate(in_parts(is_placed=False)):
        if number == missing:
            continue
        holes = len(follower.holes)
        assert follower.is_new(block)
        if len(follower.holes) > holes:
            memory.cloud(block.origin.worker)
        memory.apply(block)
    assert only(memory).payload == (b"".join(BODIES) if missing is None else None)


@pytest.mark.parametrize("is_placed", [True, False])
@pytest.mark.parametrize("sizes", [(8,), (4, 4), (15,), (15, 0)])
@pytest.mark.parametrize("clouds", [False, True])
def test_parts_behind_the_last_one_change_nothing(
    sizes: tuple[int, ...], is_placed: bool, clouds: bool
) -> None:
    """The version before recorded what a sender sent once more of a message that was all here."""
    memory, writer, whole = Memory(), new_writer(incarnation=2), b"".join(BODIES)
    for block in in_parts(is_placed=is_placed):
        memory.apply(block)
    if clouds:
        memory.cloud()
    at, placed = (len(whole), RecordFlag.PLACED) if is_placed else (0, RecordFlag(0))
    for number, size in enumerate(sizes, 1):
        writer.append(
            RecordKind.PART,
            START_NS,
            key=K,
            incoming=SOURCE,
            flags=placed | (RecordFlag.MORE if number < len(sizes) else 0),
            message_octets=at,
            body=whole[len(whole) - size :],
        )
        for sealed in writer.take_blocks():
            memory.apply(open_block(memoryview(sealed.octets)))
        assert only(memory).payload == whole
    assert memory.misplaced_parts == 0


@pytest.mark.parametrize("missing", [None, 0, 1, 2, 3, 4])
@pytest.mark.parametrize("is_sent", [True, False])
def test_what_comes_settled_in_the_end_is_the_routers_if_all_of_it_is_there(
    missing: int | None, is_sent: bool
) -> None:
    writer, memory = new_writer(incarnation=2), Memory()
    if is_sent:
        writer.sent(START_NS, K, SOURCE, TARGET, b"t")
    flags = RecordFlag.RESUMED | RecordFlag.SETTLED
    writer.received(START_NS, K, SOURCE, b"tag", flags=flags)
    settled = [open_block(memoryview(each.octets)) for each in writer.take_blocks()]
    for number, block in enumerate((*in_parts(), *settled)):
        if number != missing:
            memory.apply(block)
    delivery = only(memory)
    assert delivery.source_settled
    assert delivery.is_in_doubt == (is_sent and missing != 0)
    assert delivery.payload == (b"".join(BODIES) if missing is None else None)
    assert delivery.is_only_here == (missing is None and not is_sent)


@pytest.mark.parametrize("early", [*powerset(range(4))])
def test_deliveries_of_one_turn_keep_the_order_of_their_arrival(early: tuple[int, ...]) -> None:
    """Whichever of them leave the usual ways of a life, and however the clock is set meanwhile."""
    keys = [key(1000 - number) for number in range(4)]
    writer, later = new_writer(), new_writer(incarnation=2)
    writer.received_run(START_NS, SOURCE, keys[:3], [b"t"] * 3, [b""] * 3)
    later.received(START_NS - 5, keys[3], SOURCE, b"t")
    for number in reversed(early):
        later.resolved(START_NS, keys[number], SOURCE, NO_LINK, Resolution.SEND_AGAIN)
    memory = remember(writer, later)
    copy = new_writer(incarnation=3)
    write_memory(memory, lambda _: copy)
    for each in (memory, remember(copy)):
        assert [delivery.key for delivery in each.oldest_first()] == keys


def test_links_that_a_delivery_was_taken_back_from_are_remembered_with_it() -> None:
    writer = received()
    writer.link_attached(START_NS, link(TARGET))
    writer.sent(START_NS, K, SOURCE, TARGET, b"out")
    writer.resolved(START_NS, K, SOURCE, TARGET, Resolution.SEND_AGAIN, is_unsent=True)
    writer.link_expired(START_NS, outgoing=TARGET)
    memory, copy = remember(writer), new_writer(incarnation=2)
    memory.forget_links()
    write_memory(memory, lambda _: copy)
    for each in (memory, remember(copy)):
        delivery = only(each)
        assert (delivery.taken_back, delivery.was_sent, delivery.is_waiting) == (
            (TARGET,),
            False,
            True,
        )
        assert each.links[TARGET].stage is LinkStage.EXPIRED
