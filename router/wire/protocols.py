"""The protocols that are spoken here: one row each, for whoever serves or dials.

A listener, a connector, the client behind ``router send`` and the choices of the configuration
file all ask this table. A protocol without a row is not served, and is refused by name in the
file. How payloads meet is the table of ``wire.hub``; how first octets are told apart, that of
``wire.detect``.
"""

from collections.abc import Callable, Mapping
from typing import Final

import attrs

from router.model.capabilities import Protocol
from router.wire.engine import Engine, EngineSettings
from router.wire.fast.engine import make_engine as make_fast
from router.wire.v0_9_1.engine import make_engine as make_0_9_1
from router.wire.v0_9r1.engine import make_engine as make_0_9r1
from router.wire.v0_10.engine import make_engine as make_0_10
from router.wire.v1_0.engine import Engine10
from router.wire.v1_0.express import Express

EngineFactory = Callable[[EngineSettings, Express | None], Engine]
"""Makes the engine of one connection, on the side that ``EngineSettings.is_server`` names."""

ROOT_VHOST: Final = "/"
"""The virtual host that brokers of the older protocols have when nobody made another."""


@attrs.frozen(kw_only=True)
class Spoken:
    """What a protocol needs to be spoken.

    Attributes:
        make: makes its engines; those without an express lane ignore what they get of it.
        vhost: the virtual host to ask for where a URL names none; None: the host that is dialed.
    """

    make: EngineFactory
    vhost: str | None = ROOT_VHOST


PROTOCOLS: Final[Mapping[Protocol, Spoken]] = {
    Protocol.AMQP_1_0: Spoken(make=Engine10, vhost=None),
    Protocol.AMQP_0_9_1: Spoken(make=lambda settings, express: make_0_9_1(settings)),
    Protocol.AMQP_0_9R1: Spoken(make=lambda settings, express: make_0_9r1(settings)),
    Protocol.AMQP_0_10: Spoken(make=lambda settings, express: make_0_10(settings)),
    Protocol.AMQP_FAST: Spoken(make=lambda settings, express: make_fast(settings)),
}
"""The engines that exist, in the order in which they are shown to people."""


def vhost_to_ask_for(protocol: Protocol, named: str | None, host: str) -> str:
    """Returns the virtual host to ask for when dialing.

    Args:
        protocol: that is spoken.
        named: by whoever has us dial; None or empty if nobody did.
        host: that is dialed.
    """
    return named or PROTOCOLS[protocol].vhost or host
