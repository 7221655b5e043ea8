"""What a connection's peer and protocol can do; the core asks this, never a protocol's name."""

import enum

import attrs


class Protocol(enum.StrEnum):
    """The wire protocols, named as the configuration names them."""

    AMQP_1_0 = "amqp-1.0"
    AMQP_0_9_1 = "amqp-0-9-1"
    AMQP_0_10 = "amqp-0-10"
    AMQP_0_9R1 = "amqp-0-9r1"
    AMQP_FAST = "amqp-fast"


class Credit(enum.Enum):
    """How a peer that receives tells how much it can take."""

    LINK = "link"  # exact credit per link
    PREFETCH = "prefetch"  # a bound on what is unsettled
    PAUSE = "pause"  # only stop and go


@attrs.frozen(kw_only=True)
class Capabilities:
    """Facts about one connection, settled when it opens.

    Attributes:
        protocol: which of the five; also the encoding of the payloads that it takes natively.
        tells_outcomes: a receiving peer reports outcomes richer than "settled".
        learns_outcomes: a sending peer can be told released, rejected and modified apart.
        settles_second: receiver-settle-mode second works towards this peer.
        resumes_links: suspended links and their unsettled deliveries are resumed (§2.6.13).
        streams: a delivery may go out part by part before its end is known.
        credit: how the peer's credit comes.
        express: its links may be paired by the express lane.
        is_router: the peer is this program, and trusted: delivery keys are carried.
        is_neighbor: the peer says that it is this program, trusted or not.
        names_itself: the peer has a container-id; that of another one is made up and stands for its
            connection alone.
        declares: asked to, by a link's property ``declare``, it makes the queue or exchange that
            is not there.
        annotates: delivery annotations reach the peer.
        names_links: the names of links are the peer's, and mean the same on all its connections.
        sends_ahead: the protocol has no credit for senders, so settled deliveries may be taken
            before receivers have any (``GrantCredit.ahead``).
        drains: a sending peer may be asked to use its credit up or to give it back.
        frame_octets: the largest frame that the peer is sent; what cannot be split over several,
            as an unsettled map, must fit it. 0: any.
    """

    protocol: Protocol
    tells_outcomes: bool = True
    learns_outcomes: bool = True
    settles_second: bool = False
    resumes_links: bool = False
    streams: bool = False
    credit: Credit = Credit.LINK
    express: bool = False
    is_router: bool = False
    is_neighbor: bool = False
    names_itself: bool = True
    declares: bool = False
    annotates: bool = False
    names_links: bool = False
    sends_ahead: bool = False
    drains: bool = True
    frame_octets: int = 0

    @property
    def traces(self) -> bool:
        """Whether hops are carried, and both tell on which ways receivers are reached there."""
        return self.is_router or self.is_neighbor
