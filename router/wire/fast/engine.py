"""The engine of AMQP/Fast, for either side of a connection."""

from typing import Final

from router.wire.engine import EngineSettings
from router.wire.fast.area import Area
from router.wire.fast.client import ClientEngine
from router.wire.fast.server import ServerEngine

AREA: Final = Area()
"""Shared by all connections of this process, for a transfer goes on by another one."""


def make_engine(settings: EngineSettings, area: Area = AREA) -> ServerEngine | ClientEngine:
    """Makes the engine of one connection, by who dialed it."""
    kind = ServerEngine if settings.is_server else ClientEngine
    return kind(settings, area)
