"""The supported protocols: one row each, for serving and dialing.

Listeners, connectors, the client behind ``router send`` and the choices of the configuration file
use this table. A protocol without a row is not served, and is refused by name in the file.
Translation between protocols is the table of ``wire.hub``; detection by the first octets, that of
``wire.detect``.

The engines are half of the router's code, and are imported when the first of a protocol is created:
the supervisor needs none, and most commands need one protocol at most. Workers import all of them
before they serve (``load_engines``).
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Final

import attrs

from router.at_rest import at_rest
from router.model.capabilities import Protocol
from router.wire.engine import Engine, EngineSettings
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


def _make_1_0(settings: EngineSettings, express: Express | None) -> Engine:
    engine: Engine = _module("v1_0").Engine10(settings, express)
    return engine


def _maker(folder: str) -> EngineFactory:
    """Returns a factory for a protocol that has no express lane."""

    def make(settings: EngineSettings, express: Express | None) -> Engine:
        engine: Engine = _module(folder).make_engine(settings)
        return engine

    return make


def _module(folder: str) -> Any:
    return import_module(f"router.wire.{folder}.engine")


_FOLDERS: Final = ("v1_0", "v0_9_1", "v0_9r1", "v0_10", "fast")

PROTOCOLS: Final[Mapping[Protocol, ProtocolRow]] = {
    Protocol.AMQP_1_0: ProtocolRow(make=_make_1_0, vhost=None),
    Protocol.AMQP_0_9_1: ProtocolRow(make=_maker("v0_9_1")),
    Protocol.AMQP_0_9R1: ProtocolRow(make=_maker("v0_9r1")),
    Protocol.AMQP_0_10: ProtocolRow(make=_maker("v0_10")),
    Protocol.AMQP_FAST: ProtocolRow(make=_maker("fast")),
}
"""The supported protocols, in the order in which they are shown to people."""


def load_engines() -> None:
    """Imports all engines, so that no connection waits for the import."""
    with at_rest():
        for folder in _FOLDERS:
            _module(folder)


def vhost_to_ask_for(protocol: Protocol, named: str | None, host: str) -> str:
    """Returns the virtual host to request when dialing.

    Args:
        protocol: the protocol.
        named: the configured virtual host; None or empty: none.
        host: the dialed host.
    """
    return named or PROTOCOLS[protocol].vhost or host
