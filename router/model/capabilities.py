"""What a connection's peer and protocol can do; the core checks this, never a protocol's name."""

import enum
import functools

import attrs


class Protocol(enum.StrEnum):
    """The wire protocols, named as the configuration names them."""

    AMQP_1_0 = "amqp-1.0"
    AMQP_0_9_1 = "amqp-0-9-1"
    AMQP_0_10 = "amqp-0-10"
    AMQP_0_9R1 = "amqp-0-9r1"
    AMQP_FAST = "amqp-fast"


class Credit(enum.Enum):
    """How a receiving peer limits the deliveries that it is sent."""

    LINK = "link"  # exact credit per link
    PREFETCH = "prefetch"  # a bound on what is unsettled
    PAUSE = "pause"  # only stop and go


@attrs.frozen(kw_only=True)
class Capabilities:
    """Facts about one connection, settled when it opens.

    Attributes:
        protocol: which of the five; also the encoding of the payloads that the peer reads natively.
        reports_outcomes: a receiving peer reports outcomes richer than "settled".
        learns_outcomes: the protocol can send a sending peer released, rejected and modified as
            different outcomes.
        settles_second: receiver-settle-mode second works towards this peer.
        resumes_links: suspended links and their unsettled deliveries are resumed (§2.6.13).
        streams: a delivery may be sent part by part before its last part has arrived.
        credit: how the peer limits what it is sent.
        express: its links may be paired by the express lane.
        is_router: the peer is this program, and trusted: delivery keys are passed on.
        is_neighbor: the peer claims to be this program, trusted or not.
        is_site: the connection is one between routers of a mesh, or came where these connect.
        names_itself: the peer has a container-id; otherwise the engine makes one up that is valid
            for the connection alone.
        declares: the peer creates a missing queue or exchange if a link's property ``declare``
            asks for it.
        subscribes: a durable queue is bound to a source that is an exchange, if a link's property
            ``SUBSCRIPTION`` names it.
        releases_unroutable: a peer without a binding for a delivery may release it; others reject
            it with amqp:not-found.
        annotates: delivery annotations reach the peer.
        names_links: the peer chooses link names, and they mean the same on all its connections.
        writes_urls: the peer may write addresses as URLs (``url_address``).
        sends_ahead: the protocol has no credit for senders, so settled deliveries may be accepted
            before receivers have any credit (``GrantCredit.ahead``).
        has_links: the peer knows of its links. To one that does not, the end of a link is not said:
            what it sends there afterwards is refused.
        drains: a sending peer may be asked to use up its credit or to return it.
        filters: a link's source has filters, which the peer may apply (§3.5.8).
        accepts_links: links may be attached to the peer, whichever side has dialed.
        frame_octets: the largest frame that the peer is sent; what cannot be split over several
            frames, such as an unsettled map, must fit into one. 0: no limit.
    """

    protocol: Protocol
    reports_outcomes: bool = True
    learns_outcomes: bool = True
    settles_second: bool = False
    resumes_links: bool = False
    streams: bool = False
    credit: Credit = Credit.LINK
    express: bool = False
    is_router: bool = False
    is_neighbor: bool = False
    is_site: bool = False
    names_itself: bool = True
    declares: bool = False
    subscribes: bool = False
    releases_unroutable: bool = False
    annotates: bool = False
    names_links: bool = False
    writes_urls: bool = False
    sends_ahead: bool = False
    has_links: bool = True
    drains: bool = True
    filters: bool = False
    accepts_links: bool = False
    frame_octets: int = 0

    @property
    def traces(self) -> bool:
        """Whether hops are passed on, and both ends report their ways to receivers."""
        return self.is_router or self.is_neighbor

    @property
    def routes_by_key(self) -> bool:
        """Whether deliveries go on at the peer under their keys.

        Our clients count as trusted routers where the policy trusts them, but they are ends.
        """
        return self.is_router and self.is_neighbor


@functools.lru_cache(maxsize=256)
def shared(capabilities: Capabilities) -> Capabilities:
    """Returns the record that all connections have which can do the same."""
    return capabilities
