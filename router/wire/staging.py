"""Contents that are staged before they are delivered: class file, in 0-10 and the draft of 0-9.

Theory of operation. Both directions go alike: *open* names a content and its size, *open-ok* says
how much of it the other side has, *stage* sends the rest, and only then *publish* or *deliver* says
what to do with it, so a transfer that was cut off goes on where it was::

    client                                us
    open(identifier, size)            ->      what is here of that name, unless its size was another
                                      <-  open-ok(staged-size)
    stage + header + rest of body     ->      it is whole, and waits for its publish
    publish(identifier, route)        ->      it goes on, and is forgotten here

    us                                    client
    open(identifier, size)            ->
                                      <-  open-ok(staged-size)
    stage + header + rest of body     ->
    deliver(tag, identifier)          ->  ack, reject

``open-ok`` names no content, so one is opened at a time and the others wait in line. What has come
of a file when the connection is lost in the middle, or before the publish, is kept for whoever
comes back.

"The recipient MAY decide how long to hold partially-staged content" (0-8, file.open-ok): here up to
``KEPT_OCTETS`` in one worker, the oldest making room for the new. Another worker knows nothing and
says so, which costs time and loses nothing.
"""

import hashlib
from typing import Final

import attrs

FILE_OCTETS: Final = 64 << 20
"""The largest file that is taken, and what the files of one connection have together: the address
comes behind the content, so it must be here as a whole before any of it can go on."""

KEPT_OCTETS: Final = 64 << 20
"""What one worker keeps for clients that are gone."""

_MEMORY: Final = "files that have come in part"


@attrs.frozen
class FileKey:
    """Names a file: by whom it is sent, to which virtual host, and as what."""

    user: str | None
    vhost: str
    identifier: str


@attrs.define(eq=False)
class Upload:
    """A file that comes.

    Attributes:
        size: octets of the whole body.
        body: what is here of it.
        header: its content header as it is between engines; empty as long as it is not whole.
    """

    key: FileKey
    size: int
    body: bytes = b""
    header: bytes = b""

    @property
    def missing(self) -> int:
        """How many octets are to come."""
        return self.size - len(self.body)


@attrs.define(eq=False)
class Shelf:
    """What one worker keeps.

    Attributes:
        octets: how much.
    """

    limit: int = KEPT_OCTETS
    octets: int = 0
    _files: dict[FileKey, Upload] = attrs.field(factory=dict)

    def keep(self, upload: Upload) -> None:
        """Keeps what has come of a file; nothing, if it is nothing or too much."""
        self.take(upload.key)
        size = len(upload.body)
        if not size or size > self.limit:
            return
        while self.octets + size > self.limit:
            self.take(next(iter(self._files)))
        self._files[upload.key] = upload
        self.octets += size

    def take(self, key: FileKey) -> Upload | None:
        """Takes out what is kept of a file."""
        found = self._files.pop(key, None)
        if found is not None:
            self.octets -= len(found.body)
        return found


def identifier_of(header: bytes, body: bytes) -> str:
    """Names a file of ours by its SHA-1: whoever is sent it again has what it has of it."""
    digest = hashlib.sha1(header, usedforsecurity=False)
    digest.update(body)
    return digest.hexdigest()


def shelf_of(memory: dict[str, object]) -> Shelf:
    """Finds the worker's shelf in what its engines share."""
    found = memory.setdefault(_MEMORY, Shelf())
    assert isinstance(found, Shelf)
    return found
