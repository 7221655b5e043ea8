"""The engine of AMQP/Fast, for either side of a connection."""

from router.wire.engine import EngineSettings
from router.wire.fast.area import Area
from router.wire.fast.client import ClientEngine
from router.wire.fast.server import ServerEngine


def make_engine(settings: EngineSettings) -> ServerEngine | ClientEngine:
    """Creates the engine of one connection, for the side that dialed or for the other."""
    kind = ServerEngine if settings.is_server else ClientEngine
    return kind(settings, Area.of(settings.memory))
