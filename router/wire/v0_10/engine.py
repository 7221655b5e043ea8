"""The engine of AMQP 0-10, for either side of a connection."""

from router.wire.engine import EngineSettings
from router.wire.v0_10.client import ClientEngine
from router.wire.v0_10.server import ServerEngine


def make_engine(settings: EngineSettings) -> ServerEngine | ClientEngine:
    """Creates the engine of one connection, for the side that dialed or for the other."""
    return ServerEngine(settings) if settings.is_server else ClientEngine(settings)
