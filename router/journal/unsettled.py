"""The unsettled deliveries, as the records describe them: the state that must survive a crash.

A delivery exists from its RECEIVED record on, under (incoming link key, delivery key), and waits to
be sent until a SENT record follows. It is forgotten when it does not wait, its sender has
settled it, and every sending, one for each outgoing link it was sent to, is settled too. Later
records about a forgotten delivery are ignored, so no settled delivery is revived. A sending goes
through these stages:

                SENT     OUTCOME             SETTLED  IN_DOUBT  RESOLVED
                                                                send again  other
    (none)      SENT *   ANSWERED *          SETTLED  IN_DOUBT  -           -
    SENT        SENT *   ANSWERED *          SETTLED  IN_DOUBT  (none)      SETTLED
    IN_DOUBT    SENT *   ANSWERED *          SETTLED  IN_DOUBT  (none)      SETTLED
    ANSWERED    SENT *   ANSWERED *          SETTLED  -         -           -
    SETTLED     SENT *   -                   SETTLED  -         -           -

    (none) after RESOLVED: the sending is gone and the delivery waits again. RESOLVED without an
       outgoing link makes it wait, too; SETTLED without one: nobody need send it any more.
       Without the flag UNSENT, RESOLVED says that the delivery may have arrived there
       (``was_returned``), so sending it again is a further attempt.
    *  or SETTLED, if the record's flags say so: it was sent settled and nothing is awaited, or the
       receiver settled with its outcome
    -  the record changes nothing

After a crash a sending in SENT is as much in doubt as one in IN_DOUBT: the record was durable
    before
the transfer, which may or may not have gone out. A delivery belongs to the worker that wrote about
it last; a successor of that worker takes it over.

A delivery that is decided (``is_decided``) is kept for its outcome alone: nobody is sent it again,
so its payload is let go. Senders that redeliver leave hundreds of these on each link.

If records are missing, the deliveries that they may have concerned are ``clouded``: the known state
is a lower bound, and only their peers or a person know the rest.
"""

import enum
from collections.abc import Mapping
from typing import Final

import attrs

from router.journal.keys import LinkKey
from router.journal.record import GuaranteeCode, LinkDescription, OutcomeCode, RecordKind
from router.model.identity import DeliveryKey, DeliveryTag

KEPT_GUARANTEES: Final = (GuaranteeCode.EXACTLY_ONCE, GuaranteeCode.UNKNOWN)
"""Promises for which deliveries are brought back; those of other routes are only recorded."""


class SendingStage(enum.IntEnum):
    """The progress of a delivery on one outgoing link; see the table of the module."""

    SENT = 1
    IN_DOUBT = 2
    ANSWERED = 3
    SETTLED = 4


@attrs.define(kw_only=True)
class Sending:
    """A delivery on one outgoing link.

    Attributes:
        outgoing: the link.
        stage: see the table of the module.
        tag: on that link; empty if the record of it is missing.
        sent_ns: when it was sent last, since 1970.
        address: that it was sent to, where it is not the link's.
        delivery_count: of its last attempt.
        is_fanned: the link is one of several that each get the message.
        outcome: an ``OutcomeCode``, 0 until there is one.
        outcome_flags: DELIVERY_FAILED, UNDELIVERABLE_HERE, BY_PERSON.
        state: the state that the outcome came with, in AMQP 1.0's encoding.
    """

    outgoing: LinkKey
    stage: SendingStage
    tag: bytes = b""
    sent_ns: int = 0
    address: str = ""
    delivery_count: int = 0
    is_fanned: bool = False
    outcome: int = 0
    outcome_flags: int = 0
    state: bytes = b""


@attrs.define(kw_only=True)
class Unsettled:
    """A delivery that is not forgotten.

    Attributes:
        key: which delivery.
        incoming: the link on which it was received.
        worker: who wrote about it last.
        tag: on the incoming link.
        received_ns: since 1970.
        arrival: block and row that tell of it, as they were read: the order of arrival.
        guarantee: a ``GuaranteeCode``.
        protocol: encoding of the payload, one of ``PROTOCOL_CODES``.
        address: its own, if its link had the anonymous terminus.
        message_octets: size of the message as far as it was known; 0 if it came in parts.
        message_format: §2.8.11.
        delivery_count: as it was received.
        ttl_milliseconds: as it was received, None if absent.
        parts: of the payload, None if the journal does not hold it, or nobody needs it any more.
        held_octets: of ``parts``.
        is_whole: the last part of the payload is there.
        is_torn: parts that do not say where they belong may stand behind a hole.
        is_waiting: it has to be sent, for the first time or again.
        source_settled: the sender has settled it, or sent it settled.
        outcome: an ``OutcomeCode`` that the router itself decided, 0 if it did not.
        outcome_flags: as in ``Sending``.
        state: as in ``Sending``.
        sendings: by outgoing link.
        was_returned: it may have arrived by a sending that is gone.
        taken_back: outgoing links of such sendings, and of those that certainly did not arrive.
        clouded: records about it may be missing.
        is_spliced: the payload is as it came, and leaves with the context of its hop.
    """

    key: DeliveryKey
    incoming: LinkKey
    worker: int
    tag: DeliveryTag
    received_ns: int
    arrival: tuple[int, int] = attrs.field(default=(0, 0), eq=False)
    guarantee: int = 0
    protocol: int = 0
    address: str = ""
    message_octets: int = 0
    message_format: int = 0
    delivery_count: int = 0
    ttl_milliseconds: int | None = None
    parts: list[bytes] | None = None
    held_octets: int = 0
    is_whole: bool = True
    is_torn: bool = attrs.field(default=False, eq=False)
    is_waiting: bool = True
    source_settled: bool = False
    outcome: int = 0
    outcome_flags: int = 0
    state: bytes = b""
    sendings: dict[LinkKey, Sending] = attrs.Factory(dict)
    was_returned: bool = False
    taken_back: tuple[LinkKey, ...] = ()
    clouded: bool = False
    is_spliced: bool = False

    @property
    def was_sent(self) -> bool:
        """Whether some receiver may have had the delivery."""
        return self.was_returned or bool(self.sendings)

    @property
    def is_cut_off(self) -> bool:
        """Whether it came as one, in several records, of which the journal lacks some.

        A worker that is killed leaves the first ones. Then nobody was sent it, as a transfer goes
        out after all records of its message.
        """
        if self.parts is None or not self.message_octets:
            return False
        is_long = len(self.parts) > 1
        return not self.is_whole or (is_long and self.held_octets < self.message_octets)

    @property
    def payload(self) -> bytes | None:
        """The message, if the journal holds all of it."""
        if self.parts is None or not self.is_whole or self.is_cut_off:
            return None
        return b"".join(self.parts)

    @property
    def is_in_doubt(self) -> bool:
        """Returns whether the delivery was sent and its outcome is unknown."""
        return any(sending.stage <= SendingStage.IN_DOUBT for sending in self.sendings.values())

    @property
    def is_decided(self) -> bool:
        """Whether its sender gets an outcome, whatever follows, and nobody else the message.

        That is what the router decided, or a receiver's acceptance if all others are answered too.
        One of several receivers that each get the message decides nothing: others may follow. So
        may one be of which SENT is missing.
        """
        if self.outcome:
            return True
        return not (self.is_waiting or self.is_in_doubt) and any(
            sending.outcome == OutcomeCode.ACCEPTED and sending.sent_ns and not sending.is_fanned
            for sending in self.sendings.values()
        )

    @property
    def is_only_here(self) -> bool:
        """Whether it is to be sent again, and its sender has forgotten it."""
        return self.is_waiting and self.payload is not None and self.source_settled

    @property
    def is_open(self) -> bool:
        """Whether somebody may still ask for it, or it is for this router to see to."""
        return self.is_in_doubt or not self.source_settled or self.is_only_here

    def drop_payload(self) -> None:
        """Lets go of the payload, and of what says how it is to leave."""
        self.parts, self.held_octets, self.is_spliced = None, 0, False

    @property
    def is_forgotten(self) -> bool:
        """Whether nobody waits for anything any more."""
        return (
            self.source_settled
            and not self.is_waiting
            and all(sending.stage is SendingStage.SETTLED for sending in self.sendings.values())
        )


class LinkStage(enum.Enum):
    """A link that was attached when a worker died is as good as suspended."""

    ATTACHED = "attached"
    SUSPENDED = "suspended"
    EXPIRED = "expired"


@attrs.define(kw_only=True)
class LinkMemory:
    """A link that lives, or that an unsettled delivery speaks of.

    Attributes:
        description: as it was attached last.
        stage: its last recorded stage.
        worker: who said it.
        since_ns: when, since 1970.
    """

    description: LinkDescription
    stage: LinkStage
    worker: int
    since_ns: int


@attrs.frozen(kw_only=True)
class NumbersMemory:
    """Which numbers attaches of ours may have had (``core.numbers``).

    Attributes:
        epoch: of the count.
        limit: they are below this.
        worker: who said so.
        since_ns: when, since 1970.
    """

    epoch: int
    limit: int
    worker: int
    since_ns: int


NEXT_STAGE: Final[Mapping[tuple[SendingStage | None, int], SendingStage]] = {
    **{(stage, RecordKind.SENT): SendingStage.SENT for stage in (None, *SendingStage)},
    **{(stage, RecordKind.SETTLED): SendingStage.SETTLED for stage in (None, *SendingStage)},
    (None, RecordKind.OUTCOME): SendingStage.ANSWERED,
    (SendingStage.SENT, RecordKind.OUTCOME): SendingStage.ANSWERED,
    (SendingStage.IN_DOUBT, RecordKind.OUTCOME): SendingStage.ANSWERED,
    (SendingStage.ANSWERED, RecordKind.OUTCOME): SendingStage.ANSWERED,
    (None, RecordKind.IN_DOUBT): SendingStage.IN_DOUBT,
    (SendingStage.SENT, RecordKind.IN_DOUBT): SendingStage.IN_DOUBT,
    (SendingStage.IN_DOUBT, RecordKind.IN_DOUBT): SendingStage.IN_DOUBT,
    (SendingStage.SENT, RecordKind.RESOLVED): SendingStage.SETTLED,
    (SendingStage.IN_DOUBT, RecordKind.RESOLVED): SendingStage.SETTLED,
}
"""The table of the module; RESOLVED with SEND_AGAIN takes the sending away instead."""
