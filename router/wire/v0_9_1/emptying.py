"""Purging and deleting queues (0-9-1 §1.7.2.7, §1.7.2.9).

Theory of operation. Both count the messages in a queue of this connection, and those that the
channel has published to it before (``getting``). Messages that are still held by the channel and
for no other queue are removed as if they had been consumed. Messages that go to other queues, too,
have to arrive there first: a purge waits for that; so does a deletion, as long as the queue has
capacity for it. A routed queue is purged by a link (``purging``), and cannot be deleted by a
connection.
"""

from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.asking import Asking
from router.wire.v0_9_1.client_channel import ClientChannel
from router.wire.v0_9_1.getting import Getting
from router.wire.v0_9_1.publishing import Publishing
from router.wire.v0_9_1.purging import Purge
from router.wire.v0_9_1.queues import Queue
from router.wire.v0_9_1.reply import PeerError, Reply
from router.wire.v0_9_1.server_links import ServerLinks


class Emptying:
    """The purges and deletions of one channel."""

    def __init__(
        self,
        engine: ServerLinks,
        channel: ClientChannel,
        publishing: Publishing,
        asking: Asking,
        getting: Getting,
    ) -> None:
        self._engine = engine
        self._channel = channel
        self._publishing = publishing
        self._asking = asking
        self._getting = getting

    # --- purging ----------------------------------------------------------------------------------

    def purge(self, method: m.QueuePurge) -> None:
        """Drops the messages in a queue."""
        name = self._channel.name_of(method.queue)
        queue = self._engine.queues.get(name)
        if queue is None or not queue.is_local:
            here = 0 if queue is None else queue.purge()
            Purge(self._engine, self._channel, name, here, method.no_wait).begin()
            return
        self._purge_local(queue, method.no_wait)

    def _purge_local(self, queue: Queue, no_wait: bool, before: int = 0) -> None:
        """Drops the messages in a queue of this connection, and the channel's held ones for it.

        Args:
            queue: the queue.
            no_wait: no answer is wanted.
            before: number of messages dropped already.
        """
        publishing, getting = self._publishing, self._getting

        def purge() -> None:
            given = publishing.given
            count = before + queue.purge() + publishing.drop_held(queue.own_address)
            if publishing.given != given:  # messages held after it
                self._purge_local(queue, no_wait, count)
            elif publishing.count_for(queue):  # goes to other queues, too: wait until it has
                getting.await_line(queue, lambda: self._purge_local(queue, no_wait, count))
            else:
                self._channel.reply(m.QueuePurgeOk(count), no_wait)

        getting.follow(queue, purge)

    # --- deleting ---------------------------------------------------------------------------------

    def delete(self, method: m.QueueDelete) -> None:
        """Deletes a queue of this connection; of another it only checks that it exists."""
        name = self._channel.name_of(method.queue)
        queue = self._engine.queues.get(name)
        if queue is not None and queue.is_local:
            self._delete_local(queue, method)
        else:
            self._asking.find_queue(name, lambda: _refuse(name), (50, 40))

    def _delete_local(self, queue: Queue, method: m.QueueDelete, dropped: int = 0) -> None:
        """Deletes a queue of this connection; waiting deliveries of others are returned to them.

        Args:
            queue: the queue.
            method: its conditions.
            dropped: number of the channel's publishes dropped already.
        """
        publishing, getting = self._publishing, self._getting

        def delete() -> None:
            count = dropped + getting.count(queue)
            _check(queue, count, method)
            given = publishing.given
            taken = dropped + publishing.drop_held(queue.own_address)
            if publishing.given != given:  # messages held after it
                self._delete_local(queue, method, taken)
                return
            if publishing.count_for(queue) and queue.has_capacity:  # it goes to other queues, too
                getting.await_line(queue, lambda: self._delete_local(queue, method, taken))
                return
            queue.delete()
            self._channel.reply(m.QueueDeleteOk(count), method.no_wait)

        getting.follow(queue, delete)


def _check(queue: Queue, count: int, method: m.QueueDelete) -> None:
    """Refuses to delete a queue if a condition of the client's is not met."""
    wrong = ""
    if method.if_unused and queue.consumers:
        wrong = "has consumers"
    elif method.if_empty and count:
        wrong = "is not empty"
    if wrong:
        raise PeerError(Reply.PRECONDITION_FAILED, f"queue {queue.name!r} {wrong}", 50, 40)


def _refuse(name: str) -> None:
    raise PeerError(
        Reply.ACCESS_REFUSED,
        f"queue {name!r} is a route's address, or another connection's: not this one's to delete",
        50,
        40,
    )
