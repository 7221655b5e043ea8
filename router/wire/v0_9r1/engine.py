"""The engine of the draft, for either side of a connection."""

from router.wire.engine import EngineSettings
from router.wire.v0_9r1.client import DraftClient
from router.wire.v0_9r1.server import DraftServer


def make_engine(settings: EngineSettings) -> DraftServer | DraftClient:
    """Creates the engine of one connection, for the side that dialed or for the other."""
    return DraftServer(settings) if settings.is_server else DraftClient(settings)
