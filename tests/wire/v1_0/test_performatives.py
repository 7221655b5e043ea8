import contextlib
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.errors import DecodeError, MisuseError
from router.model.condition import DECODE_ERROR, INVALID_FIELD, Condition
from router.model.outcome import (
    Accepted,
    Declared,
    Modified,
    Received,
    Rejected,
    Released,
    TransactionalState,
    UnknownState,
)
from router.model.terminus import (
    Coordinator,
    Durability,
    ExpiryPolicy,
    ReceiverSettleMode,
    Role,
    SenderSettleMode,
    Source,
    Target,
)
from router.wire.v1_0.performatives import (
    TABLES,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Flow,
    Open,
    SaslChallenge,
    SaslCode,
    SaslInit,
    SaslMechanisms,
    SaslOutcome,
    SaslResponse,
    Transfer,
    decode,
    decode_by_table,
    decode_state,
    encode,
    encode_disposition,
    encode_flow,
    encode_state,
    encode_transfer,
)
from router.wire.v1_0.types import (
    Array,
    Described,
    Symbol,
    Ubyte,
    Uint,
    Ulong,
    decode_value,
    encode_value,
)
from tests.support.amqp_values import leaves, mutated, small_values, values_and_forms

uints = st.sampled_from([0, 1, 255, 256, 2**32 - 1]) | st.integers(0, 2**32 - 1)
ushorts = st.integers(0, 0xFFFF)
ulongs = st.integers(0, 2**64 - 1)
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.just("x" * 300)
names = st.text(st.characters(max_codepoint=127), max_size=8)
capabilities = st.lists(names, max_size=3).map(tuple)
comparable = leaves.filter(lambda value: bool(value == value))  # noqa: PLR0124 (NaN is not)
fields = st.dictionaries(names.map(Symbol), comparable, max_size=2)
tags = st.binary(max_size=32)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


conditions = st.builds(Condition, names, maybe(texts), maybe(fields))
outcomes = st.one_of(
    st.just(Accepted()),
    st.just(Released()),
    st.builds(Rejected, maybe(conditions)),
    st.builds(Modified, st.booleans(), st.booleans(), maybe(fields)),
)
_known = frozenset((0x23, 0x24, 0x25, 0x26, 0x27, 0x33, 0x34))
unknown_states = values_and_forms(
    st.builds(Described, ulongs.filter(lambda n: n not in _known).map(Ulong), small_values)
).map(lambda case: UnknownState(case[1]))
states = st.one_of(
    outcomes,
    st.builds(Received, uints, ulongs),
    st.builds(Declared, st.binary(max_size=8)),
    st.builds(TransactionalState, st.binary(max_size=8), maybe(outcomes)),
    unknown_states,
)
_terminus = {
    "address": maybe(texts),
    "durability": st.sampled_from(Durability),
    "expiry_policy": st.sampled_from(ExpiryPolicy),
    "expiry_seconds": uints,
    "dynamic": st.booleans(),
    "dynamic_node_properties": maybe(fields),
    "capabilities": capabilities,
}
sources = st.builds(
    Source,
    **_terminus,
    distribution_mode=maybe(names),
    filters=maybe(fields),
    default_outcome=maybe(outcomes),
    outcomes=capabilities,
)
targets = st.builds(Target, **_terminus) | st.builds(Coordinator, capabilities)
_capabilities = {
    "offered_capabilities": capabilities,
    "desired_capabilities": capabilities,
    "properties": maybe(fields),
}
transfers = st.builds(
    Transfer,
    uints,
    maybe(uints),
    maybe(tags),
    maybe(uints | st.just(0)),
    maybe(st.booleans()),
    st.booleans(),
    maybe(st.sampled_from(ReceiverSettleMode)),
    maybe(states),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
plain_transfers = st.builds(
    Transfer,
    uints,
    maybe(uints),
    maybe(tags),
    maybe(st.just(0)),
    maybe(st.booleans()),
    st.booleans(),
)
dispositions = st.builds(
    Disposition,
    st.sampled_from(Role),
    uints,
    maybe(uints),
    st.booleans(),
    maybe(states),
    st.booleans(),
)
flows = st.builds(
    Flow,
    maybe(uints),
    uints,
    uints,
    uints,
    maybe(uints),
    maybe(uints),
    maybe(uints),
    maybe(uints),
    st.booleans(),
    st.booleans(),
    maybe(fields),
)
performatives: dict[type, st.SearchStrategy[Any]] = {
    Open: st.builds(
        Open,
        container_id=texts,
        hostname=maybe(texts),
        max_frame_size=uints,
        channel_max=ushorts,
        idle_time_out=maybe(uints),
        outgoing_locales=capabilities,
        incoming_locales=capabilities,
        **_capabilities,
    ),
    Begin: st.builds(
        Begin,
        remote_channel=maybe(ushorts),
        next_outgoing_id=uints,
        incoming_window=uints,
        outgoing_window=uints,
        handle_max=uints,
        **_capabilities,
    ),
    Attach: st.builds(
        Attach,
        name=texts,
        handle=uints,
        role=st.sampled_from(Role),
        snd_settle_mode=st.sampled_from(SenderSettleMode),
        rcv_settle_mode=st.sampled_from(ReceiverSettleMode),
        source=maybe(sources),
        target=maybe(targets),
        unsettled=maybe(st.dictionaries(tags, maybe(states), max_size=3)),
        incomplete_unsettled=st.booleans(),
        initial_delivery_count=maybe(uints),
        max_message_size=maybe(ulongs),
        **_capabilities,
    ),
    Flow: flows,
    Transfer: transfers | plain_transfers,
    Disposition: dispositions,
    Detach: st.builds(Detach, uints, st.booleans(), maybe(conditions)),
    End: st.builds(End, maybe(conditions)),
    Close: st.builds(Close, maybe(conditions)),
    SaslMechanisms: st.builds(SaslMechanisms, capabilities.filter(bool)),
    SaslInit: st.builds(SaslInit, names, maybe(tags), maybe(texts)),
    SaslChallenge: st.builds(SaslChallenge, tags),
    SaslResponse: st.builds(SaslResponse, tags),
    SaslOutcome: st.builds(SaslOutcome, st.sampled_from(SaslCode), maybe(tags)),
}


def test_every_performative_is_proved_below() -> None:
    assert {table.record for table in TABLES} == set(performatives)


@pytest.mark.parametrize("kind", list(performatives), ids=lambda kind: kind.__name__)
@settings(max_examples=60)
@given(st.data())
def test_encoding_and_decoding_are_inverse(kind: type, data: st.DataObject) -> None:
    performative = data.draw(performatives[kind])
    body = encode(performative)
    before, payload = b"\x99" * 3, b"payload"
    for form in (bytes, bytearray, memoryview):
        octets = form(before + body + payload)
        assert decode(octets, 3, len(octets)) == (performative, 3 + len(body))
    if "UnknownState" not in repr(performative):
        assert encode_value(decode_value(body)[0]) == body


@given(st.sampled_from(list(performatives)), st.data())
def test_a_performative_is_read_in_every_legal_form(kind: type, data: st.DataObject) -> None:
    performative = data.draw(
        performatives[kind].filter(lambda record: "UnknownState" not in repr(record))
    )
    value = decode_value(encode(performative))[0]
    if data.draw(st.booleans()):
        table = next(table for table in TABLES if table.record is kind)
        value = Described(Symbol(table.symbol), value.value)
    _, octets = data.draw(values_and_forms(st.just(value)))
    assert decode(octets, 0, len(octets)) == (performative, len(octets))


@given(transfers | plain_transfers | dispositions | flows, st.binary(max_size=4))
def test_the_paths_by_hand_read_what_the_table_reads(performative: Any, payload: bytes) -> None:
    octets = encode(performative) + payload
    assert decode(octets, 0, len(octets)) == decode_by_table(octets, 0, len(octets))


def outcome_of(reader: Any, octets: bytes) -> Any:
    try:
        return reader(octets, 0, len(octets))
    except DecodeError as error:
        return (error.offset, error.rule, error.condition)


@given(
    mutated(
        (plain_transfers | transfers | dispositions | flows).map(encode)
        | values_and_forms(
            (plain_transfers | dispositions | flows).map(lambda p: decode_value(encode(p))[0])
        ).map(lambda case: case[1])
    )
)
@settings(max_examples=1000)
def test_the_paths_by_hand_refuse_what_the_table_refuses(octets: bytes) -> None:
    by_hand, by_table = outcome_of(decode, octets), outcome_of(decode_by_table, octets)
    assert repr(by_hand) == repr(by_table)  # not ==: NaN is not itself, and True is 1


@given(plain_transfers)
def test_encode_transfer_writes_what_the_table_writes(transfer: Transfer) -> None:
    assert encode_transfer(
        transfer.handle,
        transfer.delivery_id,
        transfer.delivery_tag,
        transfer.message_format,
        transfer.settled,
        transfer.more,
    ) == encode(transfer)


@given(dispositions.filter(lambda disposition: not disposition.batchable))
def test_encode_disposition_writes_what_the_table_writes(disposition: Disposition) -> None:
    assert encode_disposition(
        disposition.role,
        disposition.first,
        disposition.last,
        disposition.settled,
        disposition.state,
    ) == encode(disposition)


@given(flows.filter(lambda flow: flow.properties is None))
def test_encode_flow_writes_what_the_table_writes(flow: Flow) -> None:
    assert encode_flow(
        flow.next_incoming_id,
        flow.incoming_window,
        flow.next_outgoing_id,
        flow.outgoing_window,
        flow.handle,
        flow.delivery_count,
        flow.link_credit,
        flow.available,
        flow.drain,
        flow.echo,
    ) == encode(flow)


@pytest.mark.parametrize(
    ("performative", "octets"),
    [
        (Open(container_id="c"), "005310c00401a10163"),
        (
            Begin(next_outgoing_id=0, incoming_window=1, outgoing_window=256),
            "005311c00a0440435201" + "7000000100",
        ),
        (Transfer(0, 1, b"t", 0, False), "005314c009054352" + "01a0017443" + "42"),
        (Transfer(300, more=True), "005314c00b06700000012c4040404041"),
        (Disposition(Role.RECEIVER, 0, 9, True, Accepted()), "005315c00a0541435209410053" + "2445"),
        (Flow(None, 1, 2, 3), "005313c0080440" + "520152025203"),
        (Detach(1, True), "005316c00402520141"),
        (End(), "00531745"),
        (Close(Condition("a")), "005318c00a0100531dc00401a30161"),
        (SaslOutcome(SaslCode.OK), "005344c003015000"),
    ],
)
def test_performatives_have_these_octets(performative: Any, octets: str) -> None:
    assert encode(performative).hex() == octets
    assert decode(bytes.fromhex(octets), 0, len(octets) // 2) == (performative, len(octets) // 2)


@pytest.mark.parametrize(("role", "octet"), [(Role.SENDER, b"\x42"), (Role.RECEIVER, b"\x41")])
def test_a_role_is_sent_in_one_octet_and_read_in_either_form(role: Role, octet: bytes) -> None:
    long_form = b"\x56\x01" if role is Role.RECEIVER else b"\x56\x00"
    disposition = encode(Disposition(role, 5))
    assert disposition == b"\x00\x53\x15\xc0\x04\x02" + octet + b"\x52\x05"
    assert encode_disposition(role, 5) == disposition
    longer = b"\x00\x53\x15\xc0\x05\x02" + long_form + b"\x52\x05"
    assert decode(longer, 0, len(longer))[0] == Disposition(role, 5)
    attach = encode(Attach(name="", handle=0, role=role))
    assert octet in attach
    assert b"\x56" not in attach


def test_outcomes_of_no_fields_are_read_with_any_empty_list() -> None:
    for code, state in (
        (0x24, Accepted()),
        (0x25, Rejected()),
        (0x26, Released()),
        (0x27, Modified()),
    ):
        for empty in (b"\x45", b"\xc0\x01\x00", b"\xd0\x00\x00\x00\x04\x00\x00\x00\x00"):
            fields_octets = b"\x41\x43\x40\x41\x00\x53" + bytes([code]) + empty
            octets = b"\x00\x53\x15\xc0" + bytes([len(fields_octets) + 1, 5]) + fields_octets
            assert decode(octets, 0, len(octets)) == (
                Disposition(Role.RECEIVER, 0, None, True, state),
                len(octets),
            )


def test_a_state_that_is_not_known_keeps_its_octets() -> None:
    octets = bytes.fromhex("0080000000000000ffffd00000000700000002560140")
    assert decode_state(octets, 0, len(octets)) == (UnknownState(octets), len(octets))
    assert encode_state(UnknownState(octets)) == octets
    for symbolic in (b"\x00\xa3\x03x:y\x45", b"\x00\xa1\x03x:y\x40"):
        assert decode_state(symbolic, 0, len(symbolic))[0] == UnknownState(symbolic)


def test_a_state_that_is_not_known_must_still_be_a_value() -> None:
    octets = b"\x00\x53\xff\xc0\x02\x01\x46"
    with pytest.raises(DecodeError, match="0x46 is not known"):
        decode_state(octets, 0, len(octets))


def test_unsettled_states_may_be_null_and_keep_unknown_octets() -> None:
    unknown = b"\x00\x80" + bytes(7) + b"\xff\xd0\x00\x00\x00\x04\x00\x00\x00\x00"
    attach = Attach(
        name="l",
        handle=0,
        role=Role.SENDER,
        unsettled={b"1": None, b"2": Accepted(), b"3": UnknownState(unknown)},
    )
    octets = encode(attach)
    assert unknown in octets
    assert decode(octets, 0, len(octets))[0] == attach


def an_attach(unsettled: str) -> bytes:
    items = b"\xa1\x00\x43\x42" + b"\x40" * 4 + bytes.fromhex(unsettled)
    return b"\x00\x53\x12\xc0" + bytes([len(items) + 1, 8]) + items


@pytest.mark.parametrize(
    ("unsettled", "rule"),
    [
        ("45", "is no map"),
        ("c10302a000", "ends beyond"),
        ("c10401a00040", "count of the map is odd"),
        ("c104ffa00040", "count of the map is odd, or exceeds"),
        ("c10502a3017840", "is no binary"),
        ("c1040240" + "4040", "is no binary"),
        ("c10704a00040a00040", "same delivery-tag twice"),
        ("c10402a00045", "is not described"),
        ("c10502a0004040", "end before the size"),
        ("c12502a021" + "00" * 33 + "40", "more than 32 octets"),
    ],
)
def test_an_unsettled_map_that_breaks_a_rule_is_refused(unsettled: str, rule: str) -> None:
    octets = an_attach(unsettled)
    with pytest.raises(DecodeError, match=rf"attach\.unsettled: .*{rule}"):
        decode(octets, 0, len(octets))


@pytest.mark.parametrize(
    ("value", "rule"),
    [
        (Described(Ulong(0x15), [True]), r"disposition\.first is mandatory"),
        (Described(Ulong(0x15), [None, Uint(1)]), r"disposition\.role is mandatory"),
        (Described(Ulong(0x15), [Uint(1), Uint(1)]), r"disposition\.role: is no boolean"),
        (
            Described(Ulong(0x15), [True, Uint(1), None, None, None, None, None]),
            "7 fields, 6 are known",
        ),
        (Described(Ulong(0x14), []), r"transfer\.handle is mandatory"),
        (Described(Ulong(0x14), [Ulong(1)]), r"transfer\.handle: is no uint"),
        (
            Described(Ulong(0x14), [Uint(1), None, b"x" * 33]),
            r"transfer\.delivery-tag: has more than 32",
        ),
        (
            Described(Ulong(0x14), [Uint(1), Uint(1), b"x" * 33, Uint(0)]),
            r"delivery-tag: has more than 32",
        ),
        (
            Described(Ulong(0x13), [None, None, Uint(1), Uint(1)]),
            r"flow\.incoming-window is mandatory",
        ),
        (
            Described(
                Ulong(0x13), [None, Uint(1), Uint(1), Uint(1), None, None, None, None, Uint(1)]
            ),
            r"flow\.drain: is no boolean",
        ),
        (Described(Ulong(0x12), ["l", Uint(0), True, Ubyte(3)]), "3 is no sender-settle-mode"),
        (
            Described(Ulong(0x12), ["l", Uint(0), True, None, Ubyte(2)]),
            "2 is no receiver-settle-mode",
        ),
        (
            Described(Ulong(0x12), ["l", Uint(0), True, None, None, Described(Ulong(0x29), [])]),
            r"attach\.source: is no source",
        ),
        (
            Described(
                Ulong(0x12),
                ["l", Uint(0), True, None, None, Described(Ulong(0x28), [None, Uint(3)])],
            ),
            r"source\.durable: 3 is no terminus-durability",
        ),
        (
            Described(
                Ulong(0x12),
                ["l", Uint(0), True, None, None, Described(Ulong(0x28), [None, None, Symbol("x")])],
            ),
            r"'x' is no terminus-expiry-policy",
        ),
        (
            Described(Ulong(0x18), [Described(Ulong(0x1D), [])]),
            r"close\.error: error\.condition is mandatory",
        ),
        (Described(Ulong(0x40), []), "sasl-mechanisms.sasl-server-mechanisms is mandatory"),
        (Described(Ulong(0x44), [Ubyte(5)]), "5 is no sasl-code"),
    ],
)
def test_a_field_that_breaks_its_rule_is_invalid_and_named(value: Any, rule: str) -> None:
    octets = encode_value(value)
    with pytest.raises(DecodeError, match=rule) as caught:
        decode(octets, 0, len(octets))
    assert caught.value.condition == INVALID_FIELD


@pytest.mark.parametrize(
    "octets",
    [
        "",
        "00",
        "0053",
        "005310",
        "40",
        "00531945",
        "0053004045",
        "00a3017845",
        "00a10178" + "45",
        "a3",
        "005314c0",
        "005315c0ff",
        "005313c00901",
    ],
)
def test_what_is_no_performative_cannot_be_decoded(octets: str) -> None:
    broken = bytes.fromhex(octets)
    with pytest.raises(DecodeError) as caught:
        decode(broken, 0, len(broken))
    assert caught.value.condition == DECODE_ERROR


@given(st.sampled_from(list(performatives)), st.data())
@settings(max_examples=500)
def test_damaged_performatives_raise_nothing_but_decode_errors(
    kind: type, data: st.DataObject
) -> None:
    octets = data.draw(mutated(performatives[kind].map(encode)))
    with contextlib.suppress(DecodeError):
        performative, after = decode(octets, 0, len(octets))
        assert after <= len(octets)
        again = encode(performative)
        assert repr(decode(again, 0, len(again))) == repr((performative, len(again)))


@given(st.binary(max_size=60), st.sampled_from([table.prefix for table in TABLES]))
@settings(max_examples=500)
def test_random_octets_raise_nothing_but_decode_errors(octets: bytes, prefix: bytes) -> None:
    for body in (octets, prefix + octets, prefix + b"\xc0" + octets):
        with contextlib.suppress(DecodeError):
            assert decode(body, 0, len(body))[1] <= len(body)


@given(performatives[Attach])
@settings(max_examples=30)
def test_no_performative_ends_before_its_last_octet(attach: Attach) -> None:
    octets = encode(attach)
    for end in range(len(octets)):
        with pytest.raises(DecodeError):
            decode(octets, 0, end)


@given(plain_transfers | dispositions | flows)
def test_no_hot_performative_reads_beyond_its_end(performative: Any) -> None:
    octets = encode(performative)
    for end in range(len(octets)):
        with pytest.raises(DecodeError):
            decode(octets, 0, end)


def test_names_from_the_wire_are_plain_text_in_the_model() -> None:
    value = Described(
        Ulong(0x10),
        ["c", None, None, None, None, Array(Symbol, [Symbol("en")]), None, Symbol("a")],
    )
    octets = encode_value(value)
    opened, _ = decode(octets, 0, len(octets))
    assert isinstance(opened, Open)
    assert [type(name) for name in (*opened.outgoing_locales, *opened.offered_capabilities)] == [
        str,
        str,
    ]


def test_passwords_are_not_shown() -> None:
    assert "secret" not in repr(SaslInit("PLAIN", b"\0user\0secret"))
    assert "secret" not in repr(SaslResponse(b"secret"))


@pytest.mark.parametrize("number", [-1, 2**32])
def test_numbers_out_of_range_are_our_own_misuse(number: int) -> None:
    calls: list[Callable[[], object]] = [
        lambda: encode_transfer(number, 1, b"t", 0, False),
        lambda: encode_transfer(1, number, b"t", 0, False),
        lambda: encode_transfer(number, more=True),
        lambda: encode_transfer(1, 1, b"t" * 33, 0, False),
        lambda: encode_disposition(Role.SENDER, number, None, True, Accepted()),
        lambda: encode_disposition(Role.SENDER, 1, number, True, Accepted()),
        lambda: encode_disposition(Role.SENDER, number),
        lambda: encode_flow(1, number, 1, 1),
        lambda: encode_flow(1, 1, 1, 1, 1, 1, number),
        lambda: encode(Flow(1, 1, 1, number)),
    ]
    for call in calls:
        with pytest.raises(MisuseError):
            call()
