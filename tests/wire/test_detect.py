"""First octets: what is found, what is refused and with which header."""

import attrs
import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.model.capabilities import Protocol
from router.wire.detect import (
    HEADER_1_0,
    HEADER_1_0_SASL,
    HEADER_1_0_TLS,
    LONGEST_PREFIX,
    AmbiguousHeader,
    Door,
    Refused,
    Speaks,
    StartsTls,
    TlsOffer,
    describe_answer,
    detect,
)

ALL = Door(protocols=frozenset(Protocol))
ONLY_1_0 = Door(protocols=frozenset({Protocol.AMQP_1_0}))
HEADER_0_9_1 = b"AMQP\x00\x00\x09\x01"
HEADER_0_9 = b"AMQP\x01\x01\x00\x09"
HEADER_0_8 = b"AMQP\x01\x01\x08\x00"
HEADER_0_10 = b"AMQP\x01\x01\x00\x0a"
HEADER_0_9R1 = b"AMQP\x01\x01\x09\x01"
CLIENT_HELLO = b"\x16\x03\x01\x02\x00\x01"


@pytest.mark.parametrize(
    ("octets", "protocol"),
    [
        (HEADER_1_0, Protocol.AMQP_1_0),
        (HEADER_1_0_SASL, Protocol.AMQP_1_0),
        (HEADER_0_9_1, Protocol.AMQP_0_9_1),
        (HEADER_0_9, Protocol.AMQP_0_9_1),
        (HEADER_0_8, Protocol.AMQP_0_9_1),
        (HEADER_0_10, Protocol.AMQP_0_10),
        (HEADER_0_9R1, Protocol.AMQP_0_9R1),
        (b"\x80\x01", Protocol.AMQP_FAST),
        (b"\x80\x07", Protocol.AMQP_FAST),  # a later version, which may take this one
    ],
)
def test_each_start_finds_its_protocol_and_no_octet_sooner(
    octets: bytes, protocol: Protocol
) -> None:
    for length in range(len(octets)):
        assert detect(octets[:length], ALL) is None
    assert detect(octets, ALL) == Speaks(protocol)
    assert detect(octets + b"pipelined", ALL) == Speaks(protocol)


@pytest.mark.parametrize(
    ("meant", "protocol"),
    [
        (AmbiguousHeader.DRAFT, Protocol.AMQP_0_9R1),
        (AmbiguousHeader.AS_0_8, Protocol.AMQP_0_9_1),
    ],
)
def test_the_header_of_two_protocols_means_what_the_door_says(
    meant: AmbiguousHeader, protocol: Protocol
) -> None:
    door = attrs.evolve(ALL, header_1_1_9_1=meant)
    assert detect(HEADER_0_9R1, door) == Speaks(protocol)
    without = attrs.evolve(door, protocols=ALL.protocols - {protocol})
    assert isinstance(detect(HEADER_0_9R1, without), Refused)


@pytest.mark.parametrize(
    ("octets", "served", "answer"),
    [
        # the highest version not above the requested one
        (HEADER_1_0, {Protocol.AMQP_0_9_1, Protocol.AMQP_0_10}, HEADER_0_10),
        (HEADER_0_10, {Protocol.AMQP_0_9_1, Protocol.AMQP_1_0}, HEADER_0_9_1),
        (HEADER_0_9_1, {Protocol.AMQP_0_9R1, Protocol.AMQP_1_0}, HEADER_0_9R1),
        (b"AMQP\x00\x02\x00\x00", {Protocol.AMQP_0_9_1, Protocol.AMQP_1_0}, HEADER_1_0),
        # none is not above it: the highest
        (HEADER_0_9_1, {Protocol.AMQP_0_10, Protocol.AMQP_1_0}, HEADER_1_0),
        (HEADER_0_8, {Protocol.AMQP_1_0}, HEADER_1_0),
        (b"AMQP\x01\x01\x07\x00", {Protocol.AMQP_0_9R1, Protocol.AMQP_0_10}, HEADER_0_10),
        # no header at all: the highest
        (b"GET / HTTP/1.1\r\n", {Protocol.AMQP_0_9_1, Protocol.AMQP_1_0}, HEADER_1_0),
        (b"\x80\x01", {Protocol.AMQP_1_0}, HEADER_1_0),
        (CLIENT_HELLO, {Protocol.AMQP_1_0}, HEADER_1_0),
        (b"AMQ/", {Protocol.AMQP_0_10}, HEADER_0_10),
        (b"\x00", {Protocol.AMQP_1_0}, HEADER_1_0),
        # AMQP/Fast has no header to answer with
        (HEADER_1_0, {Protocol.AMQP_FAST}, b""),
        (b"\x80\x00", {Protocol.AMQP_FAST, Protocol.AMQP_1_0}, b""),
    ],
)
def test_what_is_not_served_is_answered_with_the_nearest_header_that_is(
    octets: bytes, served: set[Protocol], answer: bytes
) -> None:
    verdict = detect(octets, Door(protocols=served))
    assert isinstance(verdict, Refused)
    assert verdict.answer == answer


def test_a_refusal_names_what_the_peer_wanted() -> None:
    verdict = detect(b"AMQP\x00\x00\x09\x01", ONLY_1_0)
    assert isinstance(verdict, Refused)
    assert verdict.reason == "AMQP 0 0 9 1 is not served on this port"
    http = detect(b"GET /livez", ONLY_1_0)
    assert isinstance(http, Refused)
    assert http.reason.startswith("HTTP")


def test_where_sasl_is_required_the_answer_is_the_sasl_header() -> None:
    door = Door(protocols={Protocol.AMQP_1_0}, sasl_required=True)
    assert detect(HEADER_0_9_1, door) == Refused(
        HEADER_1_0_SASL, "AMQP 0 0 9 1 is not served on this port"
    )


@pytest.mark.parametrize("offer", [TlsOffer.OFFERED, TlsOffer.REQUIRED])
def test_tls_starts_at_a_client_hello_or_after_the_header_that_asks_for_it(offer: TlsOffer) -> None:
    door = Door(protocols={Protocol.AMQP_1_0}, tls=offer)
    assert detect(CLIENT_HELLO[:1], door) is None
    assert detect(CLIENT_HELLO, door) == StartsTls(b"", 0)
    assert detect(HEADER_1_0_TLS, door) == StartsTls(HEADER_1_0_TLS, 8)


def test_tls_is_refused_with_a_plain_header_where_it_is_not_served() -> None:
    for octets in (CLIENT_HELLO, HEADER_1_0_TLS):
        assert detect(octets, ONLY_1_0) == Refused(HEADER_1_0, "TLS is not served on this port")


@pytest.mark.parametrize(
    ("octets", "answer"),
    [
        (HEADER_1_0, HEADER_1_0_TLS),
        (HEADER_1_0_SASL, HEADER_1_0_TLS),
        (b"\x80\x01", HEADER_1_0_TLS),
        (HEADER_0_9_1, HEADER_0_9_1),  # 0-9-1 has no header that asks for TLS
    ],
)
def test_where_tls_is_required_nothing_is_served_before_it(octets: bytes, answer: bytes) -> None:
    verdict = detect(octets, Door(protocols=frozenset(Protocol), tls=TlsOffer.REQUIRED))
    assert isinstance(verdict, Refused)
    assert verdict.answer == answer


@given(
    octets=st.binary(max_size=24)
    | st.builds(lambda tail: b"AMQP" + tail, st.binary(max_size=8))
    | st.builds(lambda tail: b"\x16" + tail, st.binary(max_size=8)),
    protocols=st.frozensets(st.sampled_from(Protocol)),
    tls=st.sampled_from(TlsOffer),
    sasl_required=st.booleans(),
    meant=st.sampled_from(AmbiguousHeader),
)
def test_any_octets_are_decided_within_eight_and_decisions_are_final(
    octets: bytes,
    protocols: frozenset[Protocol],
    tls: TlsOffer,
    sasl_required: bool,
    meant: AmbiguousHeader,
) -> None:
    door = Door(protocols=protocols, tls=tls, sasl_required=sasl_required, header_1_1_9_1=meant)
    decided = None
    for length in range(len(octets) + 1):
        verdict = detect(octets[:length], door)
        assert decided is None or isinstance(verdict, type(decided))
        decided = verdict
        assert verdict is not None or length < LONGEST_PREFIX
    if isinstance(decided, Speaks):
        assert decided.protocol in protocols
        assert tls is not TlsOffer.REQUIRED
    is_no_fast = octets.startswith(b"\x80\x00")  # such a peer knows no header of anybody's
    if isinstance(decided, Refused) and protocols - {Protocol.AMQP_FAST} and not is_no_fast:
        assert decided.answer.startswith(b"AMQP")


@pytest.mark.parametrize(
    ("octets", "said"),
    [
        (HEADER_0_9_1, "the peer speaks amqp-0-9-1 (it began with 41 4d 51 50 00 00 09 01)"),
        (HEADER_0_10, "the peer speaks amqp-0-10"),
        (HEADER_0_9R1, "the peer speaks amqp-0-9r1"),
        (HEADER_1_0, "the peer speaks amqp-1.0 without SASL"),
        (HEADER_1_0_SASL, "the peer wants SASL"),
        (HEADER_1_0_TLS, "the peer wants TLS"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "the peer wants TLS"),
        (b"HTTP/1.1 400 Bad Request", "the peer speaks HTTP (it began with 'HTTP/1.1')"),
        (b"<!DOCTYPE html>", "the peer speaks HTTP (it began with '<!DOCTYP')"),
        (b"AMQP\x05\x05\x05\x05", "the peer speaks another version of AMQP"),
        (b"220 mail", "the peer speaks no AMQP"),
    ],
)
def test_a_peer_that_answers_with_another_header_is_told_by_what_it_speaks(
    octets: bytes, said: str
) -> None:
    assert describe_answer(octets).startswith(said)
