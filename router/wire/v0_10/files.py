"""Class file in one session of a client; the exchange of files is drawn in ``router.wire.staging``.

Theory of operation. All methods of the class are commands of the session; a publish is complete
when its outcome is known. A session that comes back has all its files, and commands that were not
completed are sent again; when it is detached for good, incomplete uploads go to the worker's shelf.

A file for a consumer that acknowledges, or that is not delivered yet, is among the session's
``unaccepted`` under its negated delivery-tag, which no command of class message uses; it is
acquired as soon as it is delivered. One that is missing when its turn comes was returned meanwhile:
if it is opened it is staged all the same, because an open requires that.
"""

from collections import deque
from collections.abc import Iterable
from typing import Any, ClassVar, Final
from typing import Protocol as Interface

import attrs

from router.errors import DecodeError, TranslationError
from router.model.condition import Condition
from router.model.outcome import ACCEPTED, MODIFIED_UNDELIVERABLE, DeliveryState, Rejected
from router.wire.staging import FILE_OCTETS, FileKey, Shelf, Upload, identifier_of, shelf_of
from router.wire.v0_10 import optional as o
from router.wire.v0_10 import packets
from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import encode_command
from router.wire.v0_10.outgoing import Ready
from router.wire.v0_10.publishing import Publishing
from router.wire.v0_10.queues import Queue, SubscriptionSession
from router.wire.v0_10.reply import REJECTED, ErrorCode, SessionFaultError, decode_fault
from router.wire.v0_10.server_links import ServerLinks
from router.wire.v0_10.subscription import MODE_CREDIT, UNBOUNDED_CAPACITY, Subscription
from router.wire.v0_10.unaccepted import Unaccepted

FILES_AHEAD: Final = 4
"""Files under way to one consumer: each is in memory."""

LARGEST_OCTETS: Final = 48 << 20
"""The largest file that is accepted: when published, it may have to wait for credit as a whole,
beside others (``machine.HELD_LIMIT_OCTETS``)."""

_STAGE_HEAD: Final = encode_command(o.FileStage())[:2]


class FileConsumer(Subscription):
    """A consumer of files; its ``destination`` is its tag.

    Attributes:
        under_way: files that have not arrived at the client yet.
    """

    codes: ClassVar[tuple[int, int]] = (o.FILE_CLASS, 3)
    kind: ClassVar[int] = o.FILE_CLASS
    shows_files: ClassVar[bool] = True
    session: "FilesSession"

    def __init__(self, session: "FilesSession", queue: Queue, tag: str, *, no_ack: bool) -> None:
        asked = r.MessageSubscribe(destination=tag, accept_mode=int(no_ack))
        super().__init__(session, queue, asked)
        self.label = label_of(tag)
        self.mode = MODE_CREDIT
        self.messages = self.octets = None
        self.under_way = 0

    @property
    def capacity(self) -> int:
        """Number of files that the consumer accepts now."""
        left = FILES_AHEAD - self.under_way
        return left if self.settles else min(left, self.session.files.capacity)


def label_of(tag: str) -> str:
    """Returns a consumer's label among the subscriptions of its session."""
    return f"file {tag}"


@attrs.define(eq=False)
class Parcel:
    """A file under way to the client.

    Attributes:
        tag: its delivery-tag.
        header: its header segment as a file.
        delivery_properties: those of the message.
    """

    consumer: FileConsumer
    tag: int
    header: bytes
    body: bytes
    delivery_properties: r.DeliveryProperties
    identifier: str


class FilesSession(SubscriptionSession, Interface):
    """The part of a session that files use."""

    channel: int
    unaccepted: dict[int, Unaccepted]
    subscriptions: dict[str, Subscription]

    @property
    def files(self) -> "Files":
        """The files of the session."""

    @property
    def publishing(self) -> Publishing:
        """The client's transfers."""

    @property
    def server(self) -> ServerLinks:
        """The engine of the connection."""

    def send(
        self,
        command: r.Command | o.OptionalCommand,
        *,
        sync: bool = False,
        note: Any = None,
        content: tuple[bytes, bytes] | None = None,
    ) -> int:
        """Sends a command; returns its number."""

    def settle_entries(self, entries: Iterable[Unaccepted], state: DeliveryState) -> None:
        """Settles deliveries that the client has received."""

    def review(self, queue: Queue) -> None:
        """Reviews a queue's credit at the end of the turn."""


class Files:
    """The files of one session.

    Attributes:
        prefetch: most files unacknowledged or under way to consumers that acknowledge; 0: any.
    """

    def __init__(self, session: "FilesSession") -> None:
        self._session = session
        self.prefetch = 0
        self._upload: Upload | None = None
        self._staged: dict[str, Upload] = {}
        self._line: deque[Parcel] = deque()
        self._opened: Parcel | None = None
        self._tags = 0

    # --- from the client --------------------------------------------------------------------------

    @property
    def octets(self) -> int:
        """Octets of the client's uploads, when they are complete."""
        opened = 0 if self._upload is None else self._upload.size
        return opened + sum(upload.size for upload in self._staged.values())

    def open(self, command: o.FileOpen) -> None:
        """Handles ``open``: answers how much of the file is here."""
        session = self._session
        self._put_away()
        identifier, size = command.identifier or "", command.content_size or 0
        if size > LARGEST_OCTETS:
            text = f"a file of {size} octets, at most {LARGEST_OCTETS} are accepted"
            raise SessionFaultError(ErrorCode.RESOURCE_LIMIT_EXCEEDED, text)
        key = FileKey(session.server.user, session.server.vhost, identifier)
        found = self._staged.pop(identifier, None) or self._shelf.take(key)
        if found is None or found.size != size:
            found = Upload(key, size)
        self._upload = found
        if session.server.files_octets > FILE_OCTETS:
            self._put_away()
            text = "the files under way are too large together"
            raise SessionFaultError(ErrorCode.RESOURCE_LIMIT_EXCEEDED, text)
        session.send(o.FileOpenOk(len(found.body)))

    @property
    def _shelf(self) -> Shelf:
        return shelf_of(self._session.server.settings.memory)

    def _put_away(self) -> None:
        """Ends the current upload; its incomplete file is kept for a later attempt."""
        upload, self._upload = self._upload, None
        if upload is not None:
            self._shelf.keep(upload)

    def stage(self, header: bytes, body: bytes) -> None:
        """Handles the remainder of the file that was opened."""
        upload = self._upload
        if upload is None:
            raise SessionFaultError(ErrorCode.ILLEGAL_STATE, "file.stage where no file was opened")
        if len(body) != upload.missing:
            text = f"{len(body)} octets are staged where {upload.missing} are missing"
            raise SessionFaultError(ErrorCode.ILLEGAL_ARGUMENT, text)
        try:
            packets.read_properties(o.FILE_CLASS, header)
        except DecodeError as error:
            raise decode_fault(error) from error
        self._upload = None
        upload.body += body
        upload.header = header
        self._staged[upload.key.identifier] = upload

    def publish(self, number: int, command: o.FilePublish) -> None:
        """Handles ``publish``: hands the file on."""
        upload = self._staged.get(command.identifier or "")
        if upload is None:
            text = f"no file {command.identifier or ''!r} is staged"
            raise SessionFaultError(ErrorCode.NOT_FOUND, text)
        self._session.publishing.publish(number, command, upload.header, upload.body)
        del self._staged[upload.key.identifier]

    # --- to the client ----------------------------------------------------------------------------

    @property
    def used(self) -> int:
        """Number of files unacknowledged by, or under way to, consumers that acknowledge."""
        entries = self._session.unaccepted.items()
        return sum(number < 0 and not entry.subscription.settles for number, entry in entries)

    @property
    def capacity(self) -> int:
        """Number of further files that these consumers accept together."""
        return max(self.prefetch - self.used, 0) if self.prefetch else UNBOUNDED_CAPACITY

    def qos(self, command: o.FileQos) -> None:
        """Sets the prefetch; the limit in octets is ignored, since nothing is sent ahead."""
        if command.global_:
            raise SessionFaultError(
                ErrorCode.NOT_IMPLEMENTED, "global: each session has a prefetch of its own"
            )
        self.prefetch = 1 if command.prefetch_size else command.prefetch_count or 0

    def take(self, consumer: FileConsumer, ready: Ready) -> int:
        """Queues a file for a consumer; returns its delivery-tag.

        Raises:
            TranslationError: the message's properties are invalid.
        """
        try:
            header, delivery_properties = packets.from_message(o.FILE_CLASS, ready.header)
        except DecodeError as error:
            raise TranslationError("header-segment", error.rule) from error
        self._tags += 1
        consumer.under_way += 1
        identifier = identifier_of(header, ready.body)
        self._line.append(
            Parcel(consumer, self._tags, header, ready.body, delivery_properties, identifier)
        )
        return self._tags

    def go_on(self) -> None:
        """Opens the next file that was not returned meanwhile, if none is being staged."""
        while self._opened is None and self._line:
            parcel = self._line.popleft()
            if -parcel.tag in self._session.unaccepted:
                self._opened = parcel
                self._session.send(o.FileOpen(parcel.identifier, len(parcel.body)))
            else:
                parcel.consumer.under_way -= 1

    def open_ok(self, command: o.FileOpenOk) -> None:
        """Handles ``open-ok``: stages the missing part, and delivers."""
        parcel, start = self._opened, command.staged_size or 0
        if parcel is None:
            raise SessionFaultError(
                ErrorCode.ILLEGAL_STATE, "file.open-ok where nothing was opened"
            )
        if start > len(parcel.body):
            text = f"staged-size {start} of {len(parcel.body)} octets"
            raise SessionFaultError(ErrorCode.ILLEGAL_ARGUMENT, text)
        self._opened = None
        self._session.send(o.FileStage(), content=(parcel.header, parcel.body[start:]))
        parcel.consumer.under_way -= 1
        self._deliver(parcel)
        self.go_on()
        self.review()

    def _deliver(self, parcel: Parcel) -> None:
        session, consumer = self._session, parcel.consumer
        entry = session.unaccepted.get(-parcel.tag)
        if entry is None:
            return
        session.send(
            o.FileDeliver(
                consumer_tag=consumer.destination,
                delivery_tag=parcel.tag,
                redelivered=parcel.delivery_properties.redelivered,
                exchange=parcel.delivery_properties.exchange,
                routing_key=parcel.delivery_properties.routing_key,
                identifier=parcel.identifier,
            )
        )
        entry.is_acquired = True
        if consumer.settles:
            del session.unaccepted[-parcel.tag]
            session.settle_entries([entry], ACCEPTED)

    def review(self) -> None:
        """Sends files as far as consumers have capacity again."""
        for each in list(self._session.subscriptions.values()):
            if each.kind == o.FILE_CLASS:
                each.queue.dispatch()
                self._session.review(each.queue)

    def settled(self, tag: int, *, multiple: bool) -> dict[int, Any]:
        """Removes and returns the unaccepted files that an ack or reject names.

        Args:
            tag: of a delivered file; 0 with multiple: the last one.
            multiple: all earlier ones, too.

        Raises:
            SessionFaultError: no such file was delivered (0-10 file.ack, validation).
        """
        table = self._session.unaccepted
        named = table.get(-tag)
        if not (multiple and not tag) and (named is None or not tag or not named.is_acquired):
            text = f"no file with the delivery-tag {tag} waits for that"
            raise SessionFaultError(ErrorCode.ILLEGAL_ARGUMENT, text)
        if not multiple:
            return {-tag: table.pop(-tag)}
        tags = [
            each
            for each, entry in table.items()
            if each < 0 and entry.is_acquired and (not tag or -each <= tag)
        ]
        return {each: table.pop(each) for each in tags}

    # --- ends -------------------------------------------------------------------------------------

    def drop(self) -> None:
        """Removes returned files from the line when a consumer has left."""
        gone = [each for each in self._line if -each.tag not in self._session.unaccepted]
        for parcel in gone:
            self._line.remove(parcel)
            parcel.consumer.under_way -= 1

    def ended(self) -> None:
        """Keeps incomplete uploads for another session."""
        session = self._session
        part = session.server.partial(session.channel)
        if self._upload is not None and part is not None and part[0][:2] == _STAGE_HEAD:
            self._upload.body += part[1][: self._upload.missing]
        self._put_away()
        for upload in self._staged.values():
            self._shelf.keep(upload)
        self._staged.clear()
        self._line.clear()
        self._opened = None


def rejected(requeue: bool) -> DeliveryState:
    """Returns the outcome for a reject (0-10 file.reject)."""
    if requeue:  # for another client
        return MODIFIED_UNDELIVERABLE
    return Rejected(Condition(REJECTED, "file.reject"))
