"""The shared state of a client's connection in the draft: files, and streams with a rate."""

from router.wire.engine import EngineSettings
from router.wire.staging import FileKey, Upload, shelf_of
from router.wire.v0_9_1.server_links import ServerLinks
from router.wire.v0_9r1.consuming import StreamConsumer
from router.wire.v0_9r1.machine import DraftMachine


class DraftLinks(DraftMachine, ServerLinks):
    """The shared state of one connection's channels.

    Attributes:
        vhost: the virtual host that the client requested.
        uploads: files that are, or were, being staged, and are not published.
        files_octets: their size when they are complete.
        shelf: keeps incomplete files beyond the connection.
        paced: consumers of streams whose next packet is due at a time.
    """

    spoken = "AMQP 0.9r1"

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self.vhost = ""
        self.uploads: dict[FileKey, Upload] = {}
        self.files_octets = 0
        self.shelf = shelf_of(settings.memory)
        self.paced: dict[StreamConsumer, None] = {}
