"""A channel's subscriptions, deliveries and acknowledgments (§3.5.4-12).

Theory of operation. Acknowledgments concern the channel: all messages up to a number, of any handle
(§3.3.3). Messages that are unacknowledged when a handle or channel ends are returned. The
specification defines twice and differently which messages CHANNEL COMMIT confirms (§3.3.4): the
acknowledged ones, or all that were sent. Here a client that acknowledges gets the first and one
that never does the second.

On routes that promise exactly-once a reply to acknowledgments waits until they are on record
(``confirming``). The link of a handle that ends stays until they are, and while a transaction has
acknowledgments for it. If a link is gone with them, the commit fails, and the channel is closed.

Requests that a router cannot meet are refused::

    durable subscriptions (identifier), no-local, selectors      540   not supported
    HANDLE QUERY of a destination that is not the handle's own   540   a router holds no queue
    HANDLE BROWSE of an unknown message                          310   as reply, the handle stays
    empty names                                                  404
"""

import struct
from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar, Final

import attrs

from router.errors import TranslationError
from router.model.delivery import OutgoingDelivery
from router.model.events import CreditGranted
from router.model.identity import DeliveryNumber
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, RELEASED, DeliveryState
from router.model.serial import distance
from router.wire.fast import commands as c
from router.wire.fast.confirming import Confirming
from router.wire.fast.consuming import Kind, Outlet
from router.wire.fast.downstream import Downstream
from router.wire.fast.handle import Handle, HandleChannel, Service
from router.wire.fast.line import Line
from router.wire.fast.outgoing import Ready, refusal
from router.wire.fast.publishing import Publishing
from router.wire.fast.reply import Level, PeerError, Reply
from router.wire.fast.server_links import ServerLinks
from router.wire.machine import Handlers
from router.wire.runs import Runs

_NOTIFY: Final = struct.Struct(">HBHIIB").pack
_DELIVERED: Final = 8
"""Bit of HANDLE NOTIFY: the message is to be processed, and acknowledged."""

_MASK: Final = 0xFFFF_FFFF


@attrs.define(eq=False)
class Unacked:
    """A message that the client has received and not acknowledged.

    Attributes:
        number: the core's number; None if the core has settled it already.
        is_lost: its link is gone, and the core has no outcome of it.
    """

    outlet: Outlet
    number: DeliveryNumber | None
    is_lost: bool = False


@attrs.define(eq=False)
class Notice:
    """A message under way to the client, a ``Parcel``.

    Attributes:
        delivery: its delivery; None for a browsed message.
        message_nbr: its number, assigned when it begins.
    """

    receiving: "Receiving"
    outlet: Outlet
    delivery: OutgoingDelivery | None
    ready: Ready
    message_nbr: int = 0

    @property
    def handle(self) -> int:
        """The handle by which it is sent."""
        return self.outlet.handle.id

    @property
    def flows(self) -> bool:
        """False: it has an end."""
        return False

    @property
    def head(self) -> bytes:
        """The message's head."""
        return self.ready.head

    @property
    def body(self) -> bytes:
        """The message's body."""
        return self.ready.body

    def begin(self) -> bool:
        """Numbers the message, and counts it as sent."""
        if not self.outlet.handle.is_open:
            return False
        if self.delivery is not None:
            self.message_nbr = self.receiving.begun(self.outlet, self.delivery)
        return True

    def frame(self, size: int, partial: bool, recovery: bool) -> bytes:
        """Encodes the frame of HANDLE NOTIFY."""
        tail = b"\x00\xce" if partial else self.outlet.tail
        bits = partial | recovery << 2 | self.ready.redelivered << 4
        if self.delivery is not None:
            bits |= _DELIVERED
        number = self.message_nbr & _MASK
        return _NOTIFY(12 + len(tail), 41, self.outlet.handle.id, number, size, bits) + tail


class Receiving:
    """The receiving part of one channel.

    Attributes:
        line: outgoing messages.
        confirming: replies to acknowledgments.
        unacked: by message number, ascending; numbers are not limited to 32 bits here.
    """

    def __init__(
        self,
        engine: ServerLinks,
        channel: HandleChannel,
        publishing: Publishing,
        *,
        is_restartable: bool,
    ) -> None:
        self.engine = engine
        self.channel = channel
        self._publishing = publishing
        self.line = Line(engine.output.append, engine.frame_max, is_restartable=is_restartable)
        self.confirming = Confirming(engine, channel)
        self.unacked: dict[int, Unacked] = {}
        self._leaving: list[Outlet] = []
        self._last = 0
        self._has_acked = False
        self._done: dict[int, Unacked] = {}  # acknowledged in the transaction
        self._back: dict[int, Unacked] = {}  # returned in it
        self._committing: list[tuple[dict[int, Unacked], dict[int, Unacked]]] = []

    def take(self, command: Any, *arguments: Any) -> None:
        """Handles a command on the channel, or on one of its handles."""
        self.handlers[type(command)](self, *arguments, command)

    def _not_for_peers(self, handle: Handle, command: str) -> None:
        if handle.service is Service.PEER:
            text = f"HANDLE {command} is not valid for peer services"
            raise PeerError(Reply.NOT_VALID_NOW, text)

    def _consume(self, handle: Handle, command: c.HandleConsume) -> None:
        self._not_for_peers(handle, "CONSUME")
        if not handle.command.consumer:
            raise PeerError(Reply.ACCESS_REFUSED, "the handle was not opened as a consumer's")
        if not command.prefetch:
            raise PeerError(Reply.SYNTAX_ERROR, "prefetch: 0; at least 1 is needed")
        if command.identifier:
            if handle.service is Service.QUEUE:
                raise PeerError(Reply.SYNTAX_ERROR, "identifier: queues have no subscriptions")
            raise PeerError(Reply.NOT_IMPLEMENTED, "durable subscriptions: a router keeps nothing")
        if command.selector:
            raise PeerError(Reply.NOT_IMPLEMENTED, "selectors")
        if command.no_local:
            raise PeerError(Reply.NOT_IMPLEMENTED, "no-local: a router does not know its own")
        if handle.own is not None:
            if command.dest_name not in ("", handle.own.address):
                raise PeerError(Reply.NOT_FOUND, f"{command.dest_name!r} is not this handle's")
            outlet, is_new = handle.own, False
        else:
            address = handle.prefix + command.dest_name
            if not address:
                text = "no name: a router cannot know all destinations there are"
                raise PeerError(Reply.NOT_FOUND, text)
            found = handle.outlets.get(address)
            is_new = found is None
            outlet = found or Outlet(self.engine.next_link(), handle, Kind.SUBSCRIPTION, address)
        outlet.prefetch = command.prefetch
        outlet.is_unreliable = command.unreliable
        outlet.may_reduce = True
        if is_new:
            outlet.confirm_tag = command.confirm_tag
            handle.outlets[outlet.address] = outlet
            self.engine.ask_for_outlet(outlet)
            return
        handle.reply(command.confirm_tag)
        outlet.dispatch()
        self.engine.review(outlet)

    def _cancel(self, handle: Handle, command: c.HandleCancel) -> None:
        if handle.service is not Service.TOPIC:
            raise PeerError(Reply.NOT_VALID_NOW, "HANDLE CANCEL is valid for topics only")
        raise PeerError(Reply.NOT_FOUND, f"no durable subscription {command.identifier!r}")

    def _flow(self, handle: Handle, command: c.HandleFlow) -> None:
        self._not_for_peers(handle, "FLOW")
        handle.is_paused = command.flow_pause
        handle.reply(command.confirm_tag)
        for outlet in handle.all_outlets():
            outlet.may_reduce = True
            outlet.dispatch()
            self.engine.review(outlet)

    def deliver(self, outlet: Outlet, delivery: OutgoingDelivery) -> None:
        """Sends a delivery to the client; one that cannot be sent is refused."""
        if delivery.more:
            outlet.unacknowledged += 1
            outlet.stream = Downstream(self, outlet, delivery)
            outlet.stream.push(delivery.payload, True)
            return
        try:
            ready = self.engine.outgoing.ready(delivery)
        except TranslationError as error:
            if not delivery.settled:
                self.engine.runs.update(outlet.link, [delivery.number], refusal(error), True)
            return
        outlet.unacknowledged += 1
        self.line.send(Notice(self, outlet, delivery, ready))

    def number(self) -> int:
        """Returns the number of the next message."""
        self._last += 1
        return self._last

    def begun(self, outlet: Outlet, delivery: OutgoingDelivery) -> int:
        """Numbers a message, and records that it has to be acknowledged."""
        self.number()
        if outlet.is_unreliable or outlet.kind is Kind.ANSWERS:
            outlet.unacknowledged -= 1
            if not delivery.settled:
                self.engine.runs.update(outlet.link, [delivery.number], ACCEPTED, True)
        else:
            number = None if delivery.settled else delivery.number
            self.unacked[self._last] = Unacked(outlet, number)
        return self._last

    # --- browsing ---------------------------------------------------------------------------------

    def _in_order(self, own: Outlet, then: Callable[[], None]) -> None:
        """Continues when the channel's messages to a handle's own destination are there (§2.2.5).

        The core is asked to drain: to send what it has, and to report that. The drain follows the
        messages in the order of events, so its answer does, too.
        """
        own.asked.append(then)
        if len(own.asked) == 1:
            self._go_on(own)

    def _go_on(self, own: Outlet) -> None:
        """Answers pending questions about a handle's own destination, one by one, in order."""
        while own.asked:
            if not own.is_attached:  # it has no name yet, or is gone
                own.follows = _handle_of(own).later is not None
                return
            if own.address in self._publishing.inlets:
                own.review()
                if own.credit > 0:
                    own.follows = self._publishing.is_next(own.address)
                    if not own.follows:
                        own.drains = True
                        self.engine.runs.add(CreditGranted(own.link, own.credit, drain=True))
                    return
            self._answer(own)

    def _answer(self, own: Outlet) -> None:
        then = own.asked.popleft()
        if own.handle.is_open:
            self.engine.guard(then, self.channel, _handle_of(own))

    def pumped(self, own: Outlet) -> None:
        """Records that messages to a handle's own destination may have been handed on."""
        if own.follows:
            own.follows = False
            self._go_on(own)

    def drained(self, own: Outlet) -> None:
        """Records that a drain is complete and the credit used up."""
        own.credit = 0
        own.drains = False
        if own.asked:
            self._answer(own)
            self._go_on(own)
        self.engine.review(own)
        self.channel.drained()

    def _query(self, handle: Handle, command: c.HandleQuery) -> None:
        self._not_for_peers(handle, "QUERY")
        if not handle.command.browser:
            raise PeerError(Reply.ACCESS_REFUSED, "the handle was not opened as a browser's")
        if command.selector:
            raise PeerError(Reply.NOT_IMPLEMENTED, "selectors")
        own = handle.own
        if own is None or command.dest_name not in ("", own.address):
            text = "a router holds no queue that could be listed"
            raise PeerError(Reply.NOT_IMPLEMENTED, text)
        self._in_order(own, lambda: self._list(own, command))

    def _list(self, own: Outlet, command: c.HandleQuery) -> None:
        found = [number for number, _ in own.backlog if number > command.message_nbr]
        listed, more = list_of(found)
        self.engine.send(c.HandleIndex(own.handle.id, more, listed))

    def _browse(self, handle: Handle, command: c.HandleBrowse) -> None:
        self._not_for_peers(handle, "BROWSE")
        if not handle.command.browser:
            raise PeerError(Reply.ACCESS_REFUSED, "the handle was not opened as a browser's")
        own = handle.own
        if own is None:
            self._find(handle, command)
        else:
            self._in_order(own, lambda: self._find(handle, command))

    def _find(self, handle: Handle, command: c.HandleBrowse) -> None:
        own = handle.own
        for number, delivery in () if own is None else own.backlog:
            if number == command.message_nbr:
                assert own is not None
                self._show(own, number, delivery, command.confirm_tag)
                return
        text = f"message {command.message_nbr} is not here"
        self.engine.send(
            c.HandleReply(handle.id, command.confirm_tag, Reply.MESSAGE_NOT_FOUND, text)
        )

    def _show(
        self, outlet: Outlet, number: int, delivery: OutgoingDelivery, confirm_tag: int
    ) -> None:
        try:
            ready = self.engine.outgoing.ready(delivery)
        except TranslationError as error:
            outlet.handle.reply(confirm_tag, Reply.CONTENTS_INVALID, str(error))
            return
        outlet.handle.reply(confirm_tag)
        self.line.send(Notice(self, outlet, None, ready, number))

    def _ready(self, handle: Handle, command: c.HandleReady) -> None:
        self.line.ready(handle.id, command.message_size)

    # --- acknowledging ----------------------------------------------------------------------------

    def _ack(self, command: c.ChannelAck) -> None:
        self._has_acked = True
        entries = self._up_to(command.message_nbr)
        if self.channel.transacted:
            self._done.update(entries)
            self.channel.reply(command.confirm_tag)
        elif command.confirm_tag:
            reply = partial(self.channel.reply, command.confirm_tag)
            self._confirm([(entries, ACCEPTED)], reply)
        else:
            self._settle(entries, ACCEPTED)

    def _confirm(
        self, groups: list[tuple[dict[int, Unacked], DeliveryState]], reply: Callable[[], None]
    ) -> None:
        """Settles deliveries, and replies when their outcomes are on record."""

        def settle() -> None:
            for entries, state in groups:
                self._settle(entries, state)

        found = [entry for entries, _ in groups for entry in entries.values()]
        outlets = [entry.outlet for entry in found if entry.number is not None]
        self.confirming.settle(outlets, settle, reply)

    def _up_to(self, message_nbr: int) -> dict[int, Unacked]:
        """Removes and returns messages up to a number, which need not exist (§3.3.3)."""
        behind = distance(message_nbr, self._last & _MASK)
        limit = self._last - behind if behind > 0 else self._last
        taken = []
        for number in self.unacked:
            if number > limit:
                break
            taken.append(number)
        return {number: self.unacked.pop(number) for number in taken}

    def _unget(self, handle: Handle, command: c.HandleUnget) -> None:
        if handle.service is not Service.QUEUE:
            raise PeerError(Reply.NOT_VALID_NOW, "HANDLE UNGET is valid for queues only")
        behind = distance(command.message_nbr, self._last & _MASK)
        number = self._last - behind
        entry = self.unacked.get(number)
        if entry is None or entry.outlet.handle is not handle:
            text = f"message {command.message_nbr} cannot be returned"
            raise PeerError(Reply.MESSAGE_NOT_FOUND, text)
        del self.unacked[number]
        if self.channel.transacted:
            self._back[number] = entry
            handle.reply(command.confirm_tag)
        elif command.confirm_tag:
            reply = partial(_reply_if_open, handle, command.confirm_tag)
            self._confirm([({number: entry}, MODIFIED_FAILED)], reply)
        else:
            self._settle({number: entry}, MODIFIED_FAILED)

    def _settle(self, entries: dict[int, Unacked], state: DeliveryState) -> None:
        """Reports the outcome of deliveries to the core, and frees capacity."""
        runs: Runs = self.engine.runs
        outlets: dict[int, Outlet] = {}
        for entry in entries.values():
            outlet = entry.outlet
            outlet.unacknowledged -= 1
            outlets[id(outlet)] = outlet
            if entry.number is not None and outlet.is_attached:
                runs.update(outlet.link, [entry.number], state, True)
        for outlet in outlets.values():
            if outlet.is_leaving:
                self.let_go(outlet)
            elif outlet.is_attached:
                outlet.dispatch()

    # --- transactions -----------------------------------------------------------------------------

    def _check_transacted(self, command: str) -> None:
        if not self.channel.transacted:
            text = f"CHANNEL {command} on a channel without transactions"
            raise PeerError(Reply.NOT_VALID_NOW, text, Level.CHANNEL)

    def _commit(self, command: c.ChannelCommit) -> None:
        self._check_transacted("COMMIT")
        if not self._has_acked:
            self._done.update(self.unacked)
            self.unacked = {}
        error = _loss_in(self._done, self._back)
        if error is not None:
            raise error
        self._committing.append((self._done, self._back))
        self._done, self._back = {}, {}
        self._publishing.commit(command.confirm_tag)

    def committed(self, confirm_tag: int) -> None:
        """Records that all messages of the oldest commit were accepted."""
        done, back = self._committing.pop(0)
        error = _loss_in(done, back)
        if error is not None:
            self.engine.fault(error, self.channel, None)
            return
        reply = partial(self.channel.reply, confirm_tag)
        self._confirm([(done, ACCEPTED), (back, MODIFIED_FAILED)], reply)
        self.channel.drained()

    def _roll_back(self, command: c.ChannelRollback) -> None:
        self._check_transacted("ROLLBACK")
        self._publishing.roll_back()
        entries = {**self._done, **self._back, **self.unacked}
        self._done, self._back, self.unacked = {}, {}, {}
        self._settle(dict(sorted(entries.items())), MODIFIED_FAILED)
        self.channel.reply(command.confirm_tag)

    # --- end --------------------------------------------------------------------------------------

    def lose(self, outlet: Outlet) -> None:
        """Records that a link is gone, with its unsettled deliveries."""
        for entries in self._all_unacked():
            for entry in entries.values():
                if entry.outlet is outlet and entry.number is not None:
                    entry.number, entry.is_lost = None, True
        if outlet.stream is not None:
            outlet.stream.ended()
        outlet.backlog.clear()

    def _all_unacked(self) -> list[dict[int, Unacked]]:
        found = [self.unacked, self._done, self._back]
        for done, back in self._committing:
            found += (done, back)
        return found

    def end_handle(self, handle: Handle) -> None:
        """Ends a handle's links; its unacknowledged messages are returned."""
        for outlet in handle.all_outlets():
            if outlet.stream is not None:
                outlet.stream.given_up()
        for parcel in self.line.drop(handle.id):
            if isinstance(parcel, Notice) and parcel.delivery is not None:
                parcel.outlet.unacknowledged -= 1
                self.give_back(parcel.outlet, [parcel.delivery])
        for outlet in handle.all_outlets():
            entries = {
                number: entry for number, entry in self.unacked.items() if entry.outlet is outlet
            }
            for number in entries:
                del self.unacked[number]
            self._settle(entries, MODIFIED_FAILED)
            self.give_back(outlet, [delivery for _, delivery in outlet.backlog])
            outlet.backlog.clear()
            self._leaving.append(outlet)
            self.let_go(outlet)
        handle.outlets.clear()
        handle.own = None
        handle.later = None

    def let_go(self, outlet: Outlet) -> None:
        """Detaches the link of an ended handle, unless a transaction or a reply needs it."""
        if outlet not in self._leaving:
            return
        is_needed = outlet.unrecorded or any(
            entry.outlet is outlet for entries in self._all_unacked() for entry in entries.values()
        )
        if not (is_needed and outlet.is_attached):
            self._leaving.remove(outlet)
            self.engine.drop_outlet(outlet)
        elif not outlet.is_leaving:
            self.engine.keep_outlet(outlet)

    def let_go_all(self) -> None:
        """Returns what ended handles have left, and detaches their links: the channel ends."""
        for outlet in list(self._leaving):
            entries = {at: one for at, one in self.unacked.items() if one.outlet is outlet}
            for number in entries:
                del self.unacked[number]
            self._settle(entries, MODIFIED_FAILED)
            self.engine.drop_outlet(outlet)
        self._leaving.clear()

    def give_back(self, outlet: Outlet, deliveries: list[OutgoingDelivery]) -> None:
        """Returns deliveries that the client was not sent."""
        numbers = [delivery.number for delivery in deliveries if not delivery.settled]
        if numbers and outlet.is_attached:
            self.engine.runs.update(outlet.link, numbers, RELEASED, True)

    def roll_back_all(self) -> None:
        """Forgets all transactions: their acknowledgments are void."""
        for entries in self._all_unacked()[1:]:
            self.unacked.update(entries)
        self._done, self._back, self._committing = {}, {}, []

    handlers: ClassVar[Handlers] = {
        c.ChannelAck: _ack,
        c.ChannelCommit: _commit,
        c.ChannelRollback: _roll_back,
        c.HandleConsume: _consume,
        c.HandleCancel: _cancel,
        c.HandleFlow: _flow,
        c.HandleUnget: _unget,
        c.HandleQuery: _query,
        c.HandleBrowse: _browse,
        c.HandleReady: _ready,
    }


def _reply_if_open(handle: Handle, confirm_tag: int) -> None:
    if handle.is_open:
        handle.reply(confirm_tag)


def list_of(numbers: list[int]) -> tuple[bytes, int]:
    """Returns a message-list, "5,9,15-40,80", and the highest number if not all fit (§3.5.12)."""
    ranges: list[list[int]] = []
    for number in numbers:
        if ranges and number == ranges[-1][1] + 1:
            ranges[-1][1] = number
        else:
            ranges.append([number, number])
    words: list[str] = []
    octets = 0
    for first, last in ranges:
        word = str(first) if first == last else f"{first}-{last}"
        octets += len(word) + 1
        if octets > LIST_OCTETS:
            return ",".join(words).encode(), int(words[-1].rpartition("-")[2])
        words.append(word)
    return ",".join(words).encode(), 0


LIST_OCTETS: Final = 1024
"""Most octets of a message-list: its command must fit any frame."""


def _loss_in(done: dict[int, Unacked], back: dict[int, Unacked]) -> PeerError | None:
    """Returns why a commit fails of which not all can be passed on to the core; None: all can."""
    entries = (*done.values(), *back.values())
    lost = sum(entry.is_lost and entry.outlet.is_exact for entry in entries)
    if not lost:
        return None
    text = f"the links of {lost} acknowledged messages are gone; their outcome is unknown"
    return PeerError(Reply.FORBIDDEN_NOW, text, Level.CHANNEL)


def _handle_of(own: Outlet) -> Handle:
    """Returns the handle with an outlet as its own destination."""
    assert isinstance(own.handle, Handle)
    return own.handle
