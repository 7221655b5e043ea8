"""Section ``limits``: resource limits of one peer, and of all peers together."""

import attrs

from router.service.config.kinds import OrWord
from router.service.config.options import Placed, option
from router.service.config.scalars import Octets, Seconds, Whole


@attrs.frozen(kw_only=True)
class Limits(Placed):
    """Limits for every connection; a refusal names the limit that was reached."""

    connections: int = option(
        Whole(1),
        default=10_000,
        unit="connections",
        help="accepted connections at a time, of all listeners",
    )
    connections_per_identity: int | None = option(
        OrWord(Whole(1)),
        default=None,
        unit="connections",
        help="connections at a time, of one identity",
    )
    connections_per_source: int | None = option(
        OrWord(Whole(1)),
        default=None,
        unit="connections",
        help="connections at a time, from one IPv4 address or IPv6 network of 64 bits",
    )
    handshake_seconds: float = option(
        Seconds(0.1, 3600),
        default=15.0,
        help="time in which a peer must complete its first octets, TLS, SASL and open",
    )
    idle_seconds: float = option(
        Seconds(),
        default=120.0,
        help="silence after which a connection is closed; the router sends at least"
        " twice as often; 0s: never",
    )
    max_frame_octets: int = option(
        Octets(512, 1 << 31), default=64 << 10, help="largest frame that a peer may send"
    )
    max_message_octets: int | None = option(
        OrWord(Octets(1)), default=None, help="largest message that a peer may send"
    )
    sessions_per_connection: int | None = option(
        Whole(1, 65536),
        default=None,
        default_text="256, and 2047 channels of AMQP 0-9-1",
        unit="sessions",
        help="sessions on one connection (channels, in protocols that have these)",
    )
    links_per_session: int = option(
        Whole(1, 1 << 20),
        default=4096,
        unit="links",
        help="links attached at a time in one session",
    )
    links_per_connection: int = option(
        Whole(1, 1 << 20),
        default=10_000,
        unit="links",
        help="links attached at a time on one connection",
    )
    suspended_links: int = option(
        Whole(0),
        default=10_000,
        unit="links",
        help="suspended links kept for absent peers, in all; the oldest is dropped for a new one;"
        " those to containers and of chains between sites do not count, and are not dropped",
    )
    expiry_seconds: float = option(
        Seconds(),
        default=3600.0,
        help="longest time that a suspended link is kept, whatever its peer asks for",
    )
    link_credit: int = option(
        Whole(1, 1 << 20),
        default=250,
        unit="deliveries",
        help="largest credit that a peer is granted on a link",
    )
    unsettled_per_link: int | None = option(
        OrWord(Whole(1, 1 << 20)),
        default=None,
        unit="deliveries",
        help="unsettled deliveries at a time on one link of a sender; credit stops"
        " there. Links with such a"
        " limit, or the next one, do not take the express lane",
    )
    messages_per_second: int | None = option(
        OrWord(Whole(1)),
        default=None,
        unit="messages per second",
        help="rate at which one connection may send; credit is withheld above it",
    )
    session_window_frames: int = option(
        Whole(1, 1 << 20),
        default=4096,  # between two sites 50 ms apart: 80,000 messages a second
        unit="frames",
        help="widest incoming window of a session, in transfer frames (§2.5.6); it is no wider than"
        " 512 at first and behind a frame of more than 8 KiB, and while a large message waits no"
        " more than 32 MiB of such frames come",
    )
    connection_octets: int = option(
        Octets(64 << 10),
        default=64 << 20,
        help="payload of deliveries without an outcome that one connection may send; beyond"
        " it no credit is granted",
    )
    process_octets: int = option(
        Octets(1 << 20), default=256 << 20, help="the same limit for all connections of one worker"
    )
    output_octets: int = option(
        Octets(64 << 10),
        default=1 << 20,
        help="waiting output of a connection above which the router stops reading from it",
    )
    attempts: int = option(
        Whole(1, 1000),
        default=10,
        unit="attempts",
        help="attempts to forward one delivery before its sender gets the outcome"
        " modified, delivery-failed; with exactly-once, what was in doubt is none",
    )
    hop_limit: int = option(
        Whole(1, 255), default=16, unit="routers", help="routers that a delivery may pass"
    )
    linger_seconds: float = option(
        Seconds(), default=30.0, help="how long an unused link to a container stays attached"
    )
