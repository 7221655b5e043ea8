"""The methods of the draft, and their numbers (draft 0.9r1, "Method Frames").

Classes and methods are numbered in the order of their declaration, from 1. Fields and numbers of
access, exchange, queue, basic and tx are those that were published with this protocol header in
December 2005. Most methods have the fields of their namesakes in 0-9-1, and are the same records
here; a *ticket* is in the place of 0-9-1's first reserved field.

INFERRED. Classes connection and channel were not published with this header. Their numbers are
those of July 2005, the nearest that were: connection 1 to 11 in the order start, secure, tune,
open, redirect, close, with each answer behind its question; channel open 1 and 2, flow 3 without
an answer, close 4 and 5. Their fields are those of 0-8, the next version that was published, but
for ``channel.open-ok``, which has none; class and method numbers in ``close`` are of 16 bits, as
ids are since July 2005.

Optional classes are in ``optional``. Class dtx (10) has no rows: its methods are refused with 540,
because a router stores nothing that a transaction manager could ask for after a crash.
"""

from typing import Final

import attrs

from router.wire.v0_9_1 import codec
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.codec import MethodCodec, Sender, Spec
from router.wire.v0_9_1.methods import Bit, Long, LongLong, OtherMethod, Short, ShortStr
from router.wire.v0_9r1 import optional
from router.wire.v0_9r1.tables import TABLES


@attrs.frozen(kw_only=True)
class BasicConsume(OtherMethod):
    """Starts a consumer, with its prefetch."""

    ticket: Short = 0
    queue: ShortStr = ""
    prefetch_size: Long = 0
    prefetch_count: Short = 0
    no_local: Bit = False
    auto_ack: Bit = False
    exclusive: Bit = False


@attrs.frozen
class BasicConsumeOk(OtherMethod):
    """The consumer is started; with the tag that the server chose."""

    consumer_tag: Short = 0


@attrs.frozen
class BasicCancel(OtherMethod):
    """Cancels a consumer."""

    consumer_tag: Short = 0


@attrs.frozen
class BasicCancelOk(OtherMethod):
    """The consumer is cancelled."""


@attrs.frozen(kw_only=True)
class BasicDeliver(OtherMethod):
    """Delivers a message to a consumer; content follows."""

    consumer_tag: Short = 0
    delivery_tag: LongLong = 0
    redelivered: Bit = False
    exchange: ShortStr = ""
    routing_key: ShortStr = ""


_C, _S, _E = Sender.CLIENT, Sender.SERVER, Sender.EITHER
_NO_WAIT: Final = ("no_wait",)

INFERRED_SPECS: Final = (
    Spec(1, 1, m.ConnectionStart, _S),
    Spec(1, 2, m.ConnectionStartOk, _C),
    Spec(1, 3, m.ConnectionSecure, _S),
    Spec(1, 4, m.ConnectionSecureOk, _C),
    Spec(1, 5, m.ConnectionTune, _S),
    Spec(1, 6, m.ConnectionTuneOk, _C),
    Spec(1, 7, m.ConnectionOpen, _C),
    Spec(1, 8, m.ConnectionOpenOk, _S),
    Spec(1, 9, m.ConnectionRedirect, _S),
    Spec(1, 10, m.ConnectionClose, _E),
    Spec(1, 11, m.ConnectionCloseOk, _E),
    Spec(2, 1, m.ChannelOpen, _C),
    Spec(2, 2, m.ChannelOpenOk, _S, omitted=("reserved_1",)),
    Spec(2, 3, m.ChannelFlow, _E),
    Spec(2, 4, m.ChannelClose, _E),
    Spec(2, 5, m.ChannelCloseOk, _E),
)
"""Rows whose numbers and fields are inferred (see the module)."""

SPECS: Final = (
    *INFERRED_SPECS,
    Spec(3, 1, m.AccessRequest, _C),
    Spec(3, 2, m.AccessRequestOk, _S),
    Spec(4, 1, m.ExchangeDeclare, _C, omitted=_NO_WAIT),
    Spec(4, 2, m.ExchangeDeclareOk, _S),
    Spec(4, 3, m.ExchangeDelete, _C, omitted=_NO_WAIT),
    Spec(4, 4, m.ExchangeDeleteOk, _S),
    Spec(5, 1, m.QueueDeclare, _C, omitted=_NO_WAIT),
    Spec(5, 2, m.QueueDeclareOk, _S),
    Spec(5, 3, m.QueueBind, _C, omitted=_NO_WAIT),
    Spec(5, 4, m.QueueBindOk, _S),
    Spec(5, 5, m.QueuePurge, _C, omitted=_NO_WAIT),
    Spec(5, 6, m.QueuePurgeOk, _S),
    Spec(5, 7, m.QueueDelete, _C, omitted=_NO_WAIT),
    Spec(5, 8, m.QueueDeleteOk, _S),
    Spec(6, 1, BasicConsume, _C),
    Spec(6, 2, BasicConsumeOk, _S),
    Spec(6, 3, BasicCancel, _C),
    Spec(6, 4, BasicCancelOk, _S),
    Spec(6, 5, m.BasicPublish, _C, has_content=True),
    Spec(6, 6, m.BasicReturn, _S, has_content=True),
    Spec(6, 7, BasicDeliver, _S, has_content=True),
    Spec(6, 8, m.BasicGet, _C),
    Spec(6, 9, m.BasicGetOk, _S, has_content=True),
    Spec(6, 10, m.BasicGetEmpty, _S, omitted=("reserved_1",)),
    Spec(6, 11, m.BasicAck, _C),
    Spec(6, 12, m.BasicReject, _C),
    *optional.SPECS,
    Spec(9, 1, m.TxSelect, _C),
    Spec(9, 2, m.TxSelectOk, _S),
    Spec(9, 3, m.TxCommit, _C),
    Spec(9, 4, m.TxCommitOk, _S),
    Spec(9, 5, m.TxRollback, _C),
    Spec(9, 6, m.TxRollbackOk, _S),
)
"""Every supported method."""

BASIC_CLASS: Final = 6

CODEC: Final = MethodCodec(SPECS, TABLES, has_booleans=False)

DELIVER_HEAD: Final = b"\x00\x06\x00\x07"
GET_OK_HEAD: Final = b"\x00\x06\x00\x09"
ACK_HEAD: Final = b"\x00\x06\x00\x0b"
"""Class and method of a frame that is encoded without the codec."""

_NAMESAKES: Final[dict[type, type]] = {
    m.BasicConsume: BasicConsume,
    m.BasicConsumeOk: BasicConsumeOk,
    m.BasicCancel: BasicCancel,
    m.BasicCancelOk: BasicCancelOk,
    m.BasicDeliver: BasicDeliver,
}

_RECORDS: Final = {spec.record for spec in SPECS}


def _indexes() -> dict[tuple[int, int], tuple[int, int]]:
    found = {}
    for spec in codec.SPECS:
        record = _NAMESAKES.get(spec.record, spec.record)
        if record in _RECORDS:
            own = CODEC.spec_of(record)
            found[spec.class_id, spec.method_id] = (own.class_id, own.method_id)
    return found


INDEXES: Final = _indexes()
"""Class and method in 0-9-1 → the same method's here: faults use 0-9-1's."""
