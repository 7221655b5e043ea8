"""The supported protocols: one row each, for serving and dialing.

Listeners, connectors, the client behind ``router send`` and the choices of the configuration file
use this table. A protocol without a row is not served, and is refused by name in the file.
Translation between protocols is the table of ``wire.hub``; detection by the first octets, that of
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
"""Creates the engine of one connection, on the side that ``EngineSettings.is_server`` names."""

ROOT_VHOST: Final = "/"
"""The default virtual host of brokers of the older protocols."""


@attrs.frozen(kw_only=True)
class ProtocolRow:
    """A row of the table.

    Attributes:
        make: creates its engines; those without an express lane ignore that argument.
        vhost: the virtual host to request if a URL names none; None: the dialed host.
    """

    make: EngineFactory
    vhost: str | None = ROOT_VHOST


PROTOCOLS: Final[Mapping[Protocol, ProtocolRow]] = {
    Protocol.AMQP_1_0: ProtocolRow(make=Engine10, vhost=None),
    Protocol.AMQP_0_9_1: ProtocolRow(make=lambda settings, express: make_0_9_1(settings)),
    Protocol.AMQP_0_9R1: ProtocolRow(make=lambda settings, express: make_0_9r1(settings)),
    Protocol.AMQP_0_10: ProtocolRow(make=lambda settings, express: make_0_10(settings)),
    Protocol.AMQP_FAST: ProtocolRow(make=lambda settings, express: make_fast(settings)),
}
"""The supported protocols, in the order in which they are shown to people."""


def vhost_to_ask_for(protocol: Protocol, named: str | None, host: str) -> str:
    """Returns the virtual host to request when dialing.

    Args:
        protocol: the protocol.
        named: the configured virtual host; None or empty: none.
        host: the dialed host.
    """
    return named or PROTOCOLS[protocol].vhost or host
