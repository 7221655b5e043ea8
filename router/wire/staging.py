"""Contents that are staged before they are delivered: class file, in 0-10 and the draft of 0-9.

Theory of operation. Both directions are alike: *open* names a content and its size, *open-ok* says
how much of it the other side has, *stage* sends the rest, and only then *publish* or *deliver* says
what to do with it, so an interrupted transfer is continued::

    client                                us
    open(identifier, size)            ->      looks for it, unless its size was another
                                      <-  open-ok(staged-size)
    stage + header + rest of body     ->      it is complete, and waits for its publish
    publish(identifier, route)        ->      it is handed on, and forgotten here

    us                                    client
    open(identifier, size)            ->
                                      <-  open-ok(staged-size)
    stage + header + rest of body     ->
    deliver(tag, identifier)          ->  ack, reject

``open-ok`` names no content, so one is opened at a time and the others wait. What has arrived of a
file when the connection is lost, or before the publish, is kept for a client that reconnects.

"The recipient MAY decide how long to hold partially-staged content" (0-8, file.open-ok): here up to
``KEPT_OCTETS`` in one worker, the oldest being dropped first. Another worker has nothing and says
so, which costs time and loses nothing.
"""

import hashlib
from typing import Final

import attrs

FILE_OCTETS: Final = 64 << 20
"""The largest accepted file, and the limit of all files of one connection: the address follows the
content, so the file must be complete here before it can be handed on."""

KEPT_OCTETS: Final = 64 << 20
"""Octets that one worker keeps for clients that are gone."""

_MEMORY: Final = "files that have come in part"


@attrs.frozen
class FileKey:
    """Identifies a file: by its sender, virtual host and identifier."""

    user: str | None
    vhost: str
    identifier: str


@attrs.define(eq=False)
class Upload:
    """A file that is being received.

    Attributes:
        size: octets of the complete body.
        body: the part of it that has arrived.
        header: its content header as between engines; empty while it is incomplete.
    """

    key: FileKey
    size: int
    body: bytes = b""
    header: bytes = b""

    @property
    def missing(self) -> int:
        """Number of octets that are missing."""
        return self.size - len(self.body)


@attrs.define(eq=False)
class Shelf:
    """The incomplete files of one worker.

    Attributes:
        octets: their size.
    """

    limit: int = KEPT_OCTETS
    octets: int = 0
    _files: dict[FileKey, Upload] = attrs.field(factory=dict)

    def keep(self, upload: Upload) -> None:
        """Keeps an incomplete file, unless it is empty or too large."""
        self.take(upload.key)
        size = len(upload.body)
        if not size or size > self.limit:
            return
        while self.octets + size > self.limit:
            self.take(next(iter(self._files)))
        self._files[upload.key] = upload
        self.octets += size

    def take(self, key: FileKey) -> Upload | None:
        """Removes and returns an incomplete file; None: there is none."""
        found = self._files.pop(key, None)
        if found is not None:
            self.octets -= len(found.body)
        return found


def identifier_of(header: bytes, body: bytes) -> str:
    """Returns the identifier of a file of ours, its SHA-1, so that it can be continued."""
    digest = hashlib.sha1(header, usedforsecurity=False)
    digest.update(body)
    return digest.hexdigest()


def shelf_of(memory: dict[str, object]) -> Shelf:
    """Returns the worker's shelf from the memory that its engines share."""
    found = memory.setdefault(_MEMORY, Shelf())
    assert isinstance(found, Shelf)
    return found
