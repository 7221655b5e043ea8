"""Class file on one channel of a client; the exchange of files is drawn in ``router.wire.staging``.

Theory of operation. A published file is passed to the core like a delivery of class basic. Staged
and
unpublished files belong to the connection: any of its channels may publish them.

A file whose consumer leaves is returned; if it is opened already it is staged all the same, because
an open requires that, and not delivered.
"""

from collections import deque
from collections.abc import Sequence
from typing import Protocol as Interface

import attrs

from router.model.delivery import OutgoingDelivery
from router.model.identity import DeliveryNumber
from router.model.outcome import RELEASED
from router.wire.staging import FILE_OCTETS, FileKey, Upload, identifier_of
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.acknowledging import Acknowledging
from router.wire.v0_9_1.outgoing import Ready
from router.wire.v0_9_1.outlets import Outlet
from router.wire.v0_9_1.prefetch import Window
from router.wire.v0_9_1.reply import PeerError, Reply
from router.wire.v0_9r1 import kinds
from router.wire.v0_9r1 import optional as o
from router.wire.v0_9r1.consuming import FileConsumer
from router.wire.v0_9r1.kinds import FILE
from router.wire.v0_9r1.publishing import DraftPublishing
from router.wire.v0_9r1.server_links import DraftLinks


@attrs.define(eq=False)
class Parcel:
    """A file under way to the client.

    Attributes:
        number: the core's number; None if the core has settled it, or it was returned.
        is_void: it is no longer to be delivered.
    """

    consumer: FileConsumer
    outlet: Outlet
    delivery: OutgoingDelivery
    number: DeliveryNumber | None
    ready: Ready
    identifier: str
    is_void: bool = False


class FilesChannel(Interface):
    """The part of a channel that files use."""

    number: int
    is_paused: bool
    window: Window

    @property
    def machine(self) -> DraftLinks:
        """The connection."""

    @property
    def publishing(self) -> DraftPublishing:
        """The client's publishes on the channel."""

    @property
    def acknowledging(self) -> Acknowledging:
        """The client's unacknowledged deliveries."""

    def send(self, method: m.Method) -> None:
        """Sends a method."""

    def next_tag(self) -> int:
        """Returns the next delivery tag."""

    def route_of(self, ready: Ready, outlet: Outlet) -> tuple[str, str]:
        """Returns exchange and routing key of a delivery; its link's if it has none."""


class Files:
    """The files of one channel."""

    def __init__(self, channel: FilesChannel) -> None:
        self._channel = channel
        self._upload: Upload | None = None
        self._line: deque[Parcel] = deque()
        self._opened: Parcel | None = None

    # --- from the client --------------------------------------------------------------------------

    def open(self, method: o.FileOpen) -> None:
        """Handles ``open``: answers how much of the file is here."""
        engine = self._channel.machine
        self.keep(())
        if method.content_size > FILE_OCTETS:
            text = f"a file of {method.content_size} octets, at most {FILE_OCTETS} are accepted"
            raise PeerError(Reply.CONTENT_TOO_LARGE, text)
        key = FileKey(engine.user, engine.vhost, method.identifier)
        found = engine.uploads.pop(key, None)
        if found is not None:
            engine.files_octets -= found.size
        else:
            found = engine.shelf.take(key)
        if found is None or found.size != method.content_size:
            found = Upload(key, method.content_size)
        self._upload = found
        if engine.files_octets + found.size > FILE_OCTETS:
            self.keep(())
            raise PeerError(Reply.RESOURCE_ERROR, "the files under way are too large together")
        engine.files_octets += found.size
        self._channel.send(o.FileOpenOk(len(found.body)))

    def check_stage(self, body_octets: int) -> None:
        """Checks the header of a staged content."""
        upload = self._upload
        if upload is None:
            raise PeerError(Reply.COMMAND_INVALID, "file.stage where no file was opened", 7, 7)
        if body_octets != upload.missing:
            text = f"{body_octets} octets are staged where {upload.missing} are missing"
            raise PeerError(Reply.SYNTAX_ERROR, text, 7, 7)

    def stage(self, header: bytes, body: bytes) -> None:
        """Handles the remainder of the file that was opened."""
        upload, engine = self._upload, self._channel.machine
        assert upload is not None
        header = kinds.to_basic(FILE, header)
        self._upload = None
        upload.body += body
        upload.header = header[:4] + len(upload.body).to_bytes(8, "big") + header[12:]
        before = engine.uploads.get(upload.key)
        if before is not None:  # another channel has staged it, too
            engine.files_octets -= before.size
        engine.uploads[upload.key] = upload

    def publish(self, method: o.FilePublish) -> None:
        """Handles ``publish``: hands the file on."""
        engine = self._channel.machine
        key = FileKey(engine.user, engine.vhost, method.identifier)
        upload = engine.uploads.get(key)
        if upload is None or not upload.header:
            raise PeerError(Reply.NOT_FOUND, f"no file {method.identifier!r} is staged")
        del engine.uploads[key]
        engine.files_octets -= upload.size
        publish = m.BasicPublish(
            exchange=method.exchange,
            routing_key=method.routing_key,
            mandatory=method.mandatory,
            immediate=method.immediate,
        )
        self._channel.publishing.publish_file(publish, upload.header, upload.body)

    def keep(self, parts: Sequence[bytes]) -> None:
        """Ends the current upload; its incomplete file is kept for a later attempt.

        Args:
            parts: of the body, received after ``stage``.
        """
        upload, self._upload = self._upload, None
        if upload is not None:
            engine = self._channel.machine
            upload.body = b"".join((upload.body, *parts))
            engine.files_octets -= upload.size
            if upload.key not in engine.uploads:
                engine.shelf.keep(upload)

    # --- to the client ----------------------------------------------------------------------------

    def send(
        self, consumer: FileConsumer, outlet: Outlet, delivery: OutgoingDelivery, ready: Ready
    ) -> None:
        """Sends a file, after earlier ones are staged."""
        number = None if delivery.settled else delivery.number
        consumer.under_way += 1
        identifier = identifier_of(ready.header, ready.body)
        self._line.append(Parcel(consumer, outlet, delivery, number, ready, identifier))
        self.go_on()

    def go_on(self) -> None:
        """Opens the next file, if none is being staged and the client accepts one."""
        if self._opened is None and self._line and not self._channel.is_paused:
            parcel = self._opened = self._line.popleft()
            self._channel.send(o.FileOpen(parcel.identifier, len(parcel.ready.body)))

    def open_ok(self, method: o.FileOpenOk) -> None:
        """Handles ``open-ok``: stages the missing part, and delivers."""
        parcel = self._opened
        if parcel is None:
            raise PeerError(Reply.COMMAND_INVALID, "file.open-ok where nothing was opened")
        start, size = method.staged_size, len(parcel.ready.body)
        if start > size:
            raise PeerError(Reply.SYNTAX_ERROR, f"staged-size {start} of {size} octets")
        self._opened = None
        channel = self._channel
        header = kinds.from_basic(FILE, parcel.ready.header, size - start)
        channel.send(o.FileStage())
        channel.machine.output.append(
            channel.machine.framing.content_frames(
                channel.number, header, parcel.ready.body[start:], channel.machine.frame_max
            )
        )
        self._deliver(parcel)
        self.go_on()

    def _deliver(self, parcel: Parcel) -> None:
        consumer, channel = parcel.consumer, self._channel
        consumer.under_way -= 1
        if not parcel.is_void:
            tag = channel.next_tag()
            exchange, key = channel.route_of(parcel.ready, parcel.outlet)
            channel.send(
                o.FileDeliver(
                    consumer_tag=int(consumer.tag),
                    delivery_tag=tag,
                    redelivered=parcel.ready.redelivered,
                    exchange=exchange,
                    routing_key=key,
                    identifier=parcel.identifier,
                )
            )
            if not consumer.no_ack:
                consumer.window.used += 1
                channel.window.used += 1
                channel.acknowledging.expect(tag, parcel.outlet, parcel.delivery, consumer)
            else:
                channel.acknowledging.finish_delivery(parcel.outlet, parcel.delivery)
        consumer.queue.dispatch()
        channel.machine.review(consumer.queue)

    # --- ends -------------------------------------------------------------------------------------

    def _all(self) -> list[Parcel]:
        """Returns files that the client does not have yet, the last one first."""
        return [*reversed(self._line), *(() if self._opened is None else (self._opened,))]

    def drop(self, consumer: FileConsumer) -> None:
        """Returns files under way to a consumer that leaves."""
        for parcel in self._all():
            if parcel.consumer is consumer:
                self._void(parcel)

    def lose(self, outlet: Outlet) -> None:
        """Records that a link is gone, with its unsettled deliveries."""
        for parcel in self._all():
            if parcel.outlet is outlet:
                parcel.number = None
                self._void(parcel)

    def _void(self, parcel: Parcel) -> None:
        if parcel.is_void:
            return
        number, parcel.number = parcel.number, None
        parcel.is_void = True
        if parcel is not self._opened:
            self._line.remove(parcel)
            parcel.consumer.under_way -= 1
        if number is not None:
            self._channel.machine.settle(parcel.outlet, [number], RELEASED)
        elif parcel.delivery.settled:
            self._channel.acknowledging.put_back(parcel.outlet, parcel.delivery)

    def ended(self, *, reports: bool) -> None:
        """Ends everything on the channel.

        Args:
            reports: undelivered files are returned to the core.
        """
        for parcel in self._all() if reports else ():
            self._void(parcel)
        self._line.clear()
        self._opened = None
