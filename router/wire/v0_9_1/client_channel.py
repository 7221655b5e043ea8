"""The interface of a client's channel to its parts: consumers, publishes, gets, answers."""

from typing import Any
from typing import Protocol as Interface

from router.model.condition import Condition
from router.model.delivery import OutgoingDelivery
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.channel import Channel, ChannelPhase
from router.wire.v0_9_1.outlets import Outlet
from router.wire.v0_9_1.prefetch import Window
from router.wire.v0_9_1.reply import PeerError, Reply
from router.wire.v0_9_1.server_links import ServerLinks


class Addresser(Interface):
    """Sets the reply address in content headers (``replying``)."""

    def addressed(self, header: bytes) -> bytes:
        """Returns a content header whose reply-to has the address of the channel's answers."""


class ClientChannel(Channel):
    """The methods that the parts of a channel use.

    Attributes:
        replies: direct replies to the channel.
        window: the prefetch of all its consumers together.
        is_paused: the client has stopped deliveries (channel.flow).
        queue_name: the queue declared last, which "" means.
    """

    machine: ServerLinks
    replies: Addresser

    def __init__(self, engine: ServerLinks, number: int) -> None:
        super().__init__(engine, number)
        self.window = Window()
        self.is_paused = False
        self.queue_name = ""

    @property
    def is_open(self) -> bool:
        """Whether methods are handled."""
        return self.phase is ChannelPhase.OPEN

    def reply(self, method: m.Method, no_wait: bool) -> None:
        """Sends an answer, unless the client wants none."""
        if not no_wait:
            self.send(method)

    def name_of(self, queue: str) -> str:
        """Returns the queue that a method means; "" is the one declared last (0-9-1 §1.7.2.3)."""
        name = queue or self.queue_name
        if not name:
            raise PeerError(Reply.NOT_FOUND, "no queue was declared on this channel")
        return name

    def deliver_head(self, tag: str) -> bytes:
        """Encodes the first octets of deliveries to a consumer: class, method, consumer tag."""
        raise NotImplementedError

    def deliver(self, consumer: Any, outlet: Outlet, delivery: OutgoingDelivery) -> None:
        """Sends a delivery to a consumer."""
        raise NotImplementedError

    def cancelled(self, consumer: Any, condition: Condition | None) -> None:
        """Notifies the client that a consumer's queue is gone."""
        raise NotImplementedError

    def give(self, outlet: Outlet, delivery: OutgoingDelivery, no_ack: bool, left: int) -> bool:
        """Answers a ``basic.get``; returns whether the delivery could be sent."""
        raise NotImplementedError

    def review(self, *, may_reduce: bool = False) -> None:
        """Reviews the credit of all queues that this channel consumes from."""
        raise NotImplementedError

    def lost(self, outlet: Outlet) -> None:
        """Records that a link is gone, with its unsettled deliveries."""
        raise NotImplementedError

    def pumped(self) -> None:
        """Records that publishes that waited may have been handed on."""
        raise NotImplementedError

    def committed(self) -> None:
        """Records that the transaction's publishes are all decided."""
        raise NotImplementedError
