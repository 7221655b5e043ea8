"""What a connection of a client of the draft has beside 0-9-1's: files, and streams with a rate."""

from router.wire.engine import EngineSettings
from router.wire.staging import FileKey, Upload, shelf_of
from router.wire.v0_9_1.server_links import ServerLinks
from router.wire.v0_9r1.consuming import StreamConsumer
from router.wire.v0_9r1.machine import DraftMachine


class DraftLinks(DraftMachine, ServerLinks):
    """What the channels of one connection share.

    Attributes:
        vhost: the virtual host that the client asked for.
        uploads: files that are staged, or were once, and are not published.
        files_octets: of those, and of files that are being staged, when they are whole.
        shelf: what of files outlives the connection.
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
