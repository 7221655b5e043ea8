"""What is measured: the cases of the benchmark, and the questions that they answer."""

from typing import Final

import attrs


@attrs.frozen(kw_only=True)
class Case:
    """One load, put on the relay and on a router.

    Attributes:
        name: stable, for the history.
        senders, receivers: connections with a link each.
        size: octets of a message's body.
        settle: ``unsettled``, ``settled`` or ``second``.
        window: most unsettled deliveries per sender.
        ack: most deliveries per disposition; 0: any number.
        rate: messages per second of all senders; 0: as many as possible.
        routes: in the routing table.
        idle: connections that do nothing meanwhile.
        express: ``ROUTER_EXPRESS``; empty: the default.
        guarantee: of the route; ``exactly-once`` goes through the journal.
        sends, takes: protocol of senders and of receivers, ``1.0`` or ``0-9-1``.
        tls: all connections are inside TLS, those of the relay on both of its sides, too.
        dials: ``amqps`` or ``wss``: the router dials itself by this scheme, and each message passes
            this connection twice, there and back; empty: it does not.
        program: the load program: ``load``, or ``lean``, which does less for each message.
        has_own_ids: messages have properties and headers, an id and a time of their own among them.
        is_quick: part of the short run.
    """

    name: str
    senders: int = 10
    receivers: int = 10
    size: int = 100
    settle: str = "unsettled"
    window: int = 256
    ack: int = 0
    rate: int = 0
    routes: int = 10
    idle: int = 0
    express: str = ""
    guarantee: str = "at-least-once"
    sends: str = "1.0"
    takes: str = "1.0"
    tls: bool = False
    dials: str = ""
    program: str = "load"
    has_own_ids: bool = False
    is_quick: bool = False

    @property
    def load(self) -> dict[str, object]:
        """Options of the load program."""
        return {
            "senders": self.senders,
            "receivers": self.receivers,
            "size": self.size,
            "settle": self.settle,
            "window": self.window,
            "ack": self.ack,
            "rate": self.rate,
            "send": self.sends,
            "take": self.takes,
            "own": int(self.has_own_ids),
            "tls": int(self.tls),
        }

    @property
    def relay_load(self) -> dict[str, object]:
        """The same for the relay, which can only pass on what comes: in pairs."""
        pairs = max(self.senders, self.receivers)
        return self.load | {"senders": pairs, "receivers": pairs}


def _links() -> tuple[Case, ...]:
    return (
        Case(name="links 1", senders=1, receivers=1, window=8192),
        Case(name="links 10", is_quick=True),
        Case(name="links 100", senders=100, receivers=100, is_quick=True),
        Case(name="links 1000", senders=1000, receivers=1000),
        Case(name="links 100, window 10", senders=100, receivers=100, window=10, is_quick=True),
        Case(name="links 10, an outcome each", ack=1),
    )


def _lean() -> tuple[Case, ...]:
    """With the load program that takes least, so that the subjects are what limits."""
    ten = Case(name="lean 10", program="lean", is_quick=True)
    hundred = attrs.evolve(ten, name="lean 100", senders=100, receivers=100)
    return (
        ten,
        hundred,
        attrs.evolve(hundred, name="lean 100, window 10", window=10),
        attrs.evolve(ten, name="lean 1 KiB", size=1024),
    )


def _sizes() -> tuple[Case, ...]:
    return (
        Case(name="16 octets", size=16),
        Case(name="1 KiB", size=1024, is_quick=True),
        Case(name="10 KiB", size=10240),
        Case(name="64 KiB", size=65536, window=64),
        Case(name="1 MiB", size=1 << 20, window=8, is_quick=True),
    )


def _settling() -> tuple[Case, ...]:
    return (
        Case(name="settled", settle="settled"),
        Case(name="second", settle="second", is_quick=True),
    )


def _journaled() -> tuple[Case, ...]:
    """Receivers settle second, and what they say is on disk before anybody hears it."""
    exactly_once = Case(
        name="exactly-once", senders=1, receivers=1, settle="second", guarantee="exactly-once"
    )
    return (
        attrs.evolve(exactly_once, name="exactly-once, window 1", window=1),
        attrs.evolve(exactly_once, name="exactly-once, window 64", window=64),
        attrs.evolve(exactly_once, name="exactly-once, window 4,096", window=4096, is_quick=True),
        attrs.evolve(
            exactly_once, name="exactly-once, 10 links", senders=10, receivers=10, window=410
        ),
    )


def _translated() -> tuple[Case, ...]:
    """One sender and one receiver, for the load program sends 0-9-1 to one address."""
    up = Case(name="0-9-1 to 1.0", senders=1, receivers=1, window=4096, sends="0-9-1")
    own = attrs.evolve(up, name="0-9-1 to 1.0, own ids", has_own_ids=True, is_quick=True)
    return (
        up,
        own,
        attrs.evolve(own, name="1.0 to 0-9-1, own ids", sends="1.0", takes="0-9-1", is_quick=False),
        attrs.evolve(own, name="0-9-1 to 0-9-1, own ids", takes="0-9-1", is_quick=False),
        attrs.evolve(
            up, name="0-9-1 to 0-9-1, 10 KB", takes="0-9-1", size=10_000, window=256, is_quick=True
        ),
    )


def _fans() -> tuple[Case, ...]:
    return (
        Case(name="fan-in 10 to 1", receivers=1),
        Case(name="fan-in 100 to 1", senders=100, receivers=1, is_quick=True),
        Case(name="fan-out 1 to 10", senders=1, window=2560),
        Case(name="fan-out 1 to 100", senders=1, receivers=100, window=8192, is_quick=True),
    )


def _tables() -> tuple[Case, ...]:
    return (
        Case(name="1,000 routes", routes=1000),
        Case(name="100,000 routes", routes=100_000),
        Case(name="1,000 idle connections", idle=1000),
        Case(name="10,000 idle connections", idle=10_000),
    )


def _secured() -> tuple[Case, ...]:
    return (
        Case(name="TLS, 100 octets", tls=True, is_quick=True),
        Case(name="TLS, 1 KiB", tls=True, size=1024, is_quick=True),
        Case(name="TLS, 16 KiB", tls=True, size=16_384, window=64, is_quick=True),
        Case(name="TLS, paced 20,000/s", tls=True, rate=20_000, is_quick=True),
        Case(
            name="TLS, 1,000 links, 10/s each", tls=True, senders=1000, receivers=1000, rate=10_000
        ),
    )


def _dialed() -> tuple[Case, ...]:
    return (
        Case(name="dialed over TLS", dials="amqps", is_quick=True),
        Case(name="dialed over WebSocket", dials="wss", is_quick=True),
        Case(name="dialed over WebSocket, 16 KiB", dials="wss", size=16_384, window=64),
        Case(name="dialed over TLS, 16 KiB", dials="amqps", size=16_384, window=64),
    )


def _paced() -> tuple[Case, ...]:
    return (
        Case(name="paced 5,000/s", rate=5000),
        Case(name="paced 20,000/s", rate=20_000, is_quick=True),
        Case(name="paced 200,000/s", rate=200_000),
        Case(name="1,000 links, 10/s each", senders=1000, receivers=1000, rate=10_000),
    )


CASES: Final = (
    *_links(),
    *_lean(),
    Case(name="lane off", express="off", is_quick=True),
    *_sizes(),
    *_settling(),
    *_journaled(),
    *_translated(),
    *_fans(),
    *_tables(),
    *_paced(),
    *_secured(),
    *_dialed(),
)
