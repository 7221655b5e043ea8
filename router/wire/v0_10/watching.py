"""Topic bindings with wildcards: queues follow the addresses of a pattern (0-10 exchange.bind).

Theory of operation. A binding whose key has wildcards matches the addresses of a pattern that are
in use. The core reports these (``AddressesWatched``), and every change; the queue gets an outlet
for each, and closes those that it no longer needs. The binding command is complete when the core
has accepted the pattern and answered for every address that was in use by then. An address that it
refuses does not affect the others.

A suspended session watches nothing: its links wait, and when it comes back it asks again. A binding
that had not been answered by then counts as never received.

The pattern of an exchange whose name is a wildcard, or has one, matches addresses of other
exchanges, too; those are not the binding's (``topics``).
"""

from collections.abc import Callable

from router.model.commands import AddressesChanged, AttachLink
from router.model.condition import Condition
from router.model.events import AddressesReached, AddressesWatched, LinkDetached
from router.wire.asking import Question
from router.wire.topics import watchable
from router.wire.v0_10.bindings import Binding
from router.wire.v0_10.client_session import ClientSession
from router.wire.v0_10.queues import Queue, Watch


class Watching:
    """The patterns of one session's queues."""

    def __init__(self, session: ClientSession) -> None:
        self._session = session

    def begin(
        self,
        queue: Queue,
        binding: Binding,
        accepted: Callable[[], None],
        refused: Callable[[Condition], None],
    ) -> None:
        """Watches a pattern for a queue; the session waits until its addresses are attached."""
        pattern = binding.address
        if pattern in queue.watches:
            accepted()
            return
        session = self._session
        watch = Watch(session, session.server.next_link(), queue, binding)

        def begun() -> None:
            session.go_on(accepted)

        def not_begun(condition: Condition) -> None:
            queue.watches.pop(pattern, None)
            session.go_on(lambda: refused(condition))

        watch.accepted, watch.refused = begun, not_begun
        queue.watches[pattern] = watch
        self._ask(watch)
        session.park()

    def _ask(self, watch: Watch) -> None:
        engine = self._session.server
        engine.watches[watch.link] = watch
        engine.runs.add(AddressesWatched(watch.link, watchable(watch.binding.address)))

    def follow(self, watch: Watch, command: AddressesChanged) -> None:
        """Attaches a queue to the addresses that are in use, and to no others."""
        for address in command.gone:
            watch.addresses.discard(address)
            watch.queue.let_go(address)
        for address in command.come:
            if watch.binding.covers(address):
                watch.addresses.add(address)
                self._reach(watch, address)
        self._settle_down(watch)

    def _reach(self, watch: Watch, address: str) -> None:
        queue, session = watch.queue, self._session
        outlet = queue.outlets.get(address)
        if outlet is not None and outlet.is_attached:
            outlet.is_leaving = False
            session.review(queue)
            return
        watch.unanswered += 1
        outlet = queue.open_outlet(address, queue.name)

        def attached(answer: AttachLink) -> None:
            outlet.accepted(answer)
            queue.detach_if_done(outlet)
            session.review(queue)
            watch.unanswered -= 1
            self._settle_down(watch)

        def refused(condition: Condition) -> None:
            queue.forget(outlet)
            watch.unanswered -= 1
            self._settle_down(watch)

        session.server.ask(outlet.link, Question(session, attached, refused))

    def _settle_down(self, watch: Watch) -> None:
        """Continues what waits for a watch, if all its outlets are attached."""
        if watch.unanswered:
            return
        self._session.engine.runs.add(AddressesReached(watch.link))
        accepted = watch.accepted
        if accepted is not None:
            watch.accepted = watch.refused = None
            accepted()

    def end(self, watch: Watch) -> None:
        """Ends the watch of a pattern."""
        watch.queue.watches.pop(watch.binding.address, None)
        self._forget(watch)
        for address in watch.addresses:
            watch.queue.let_go(address)

    def _forget(self, watch: Watch) -> None:
        engine = self._session.server
        if engine.watches.pop(watch.link, None) is not None and engine.reports_links:
            engine.runs.add(LinkDetached(watch.link, closed=True))

    # --- the session's end and return -------------------------------------------------------------

    def _all(self) -> list[Watch]:
        queues = self._session.queues.values()
        return [watch for queue in queues for watch in queue.watches.values()]

    def suspend(self) -> None:
        """Records that the session has no channel."""
        for watch in self._all():
            self._forget(watch)
            if watch.accepted is not None:
                del watch.queue.watches[watch.binding.address]
            watch.addresses.clear()
            watch.unanswered = 0

    def come_back(self) -> None:
        """Registers the watches again, when the session has a channel again."""
        for watch in self._all():
            watch.link = self._session.server.next_link()

            def settled(queue: Queue = watch.queue) -> None:
                for address in list(queue.outlets):
                    queue.let_go(address)  # no longer in use

            watch.accepted = settled
            self._ask(watch)

    def ended(self) -> None:
        """Ends all watches."""
        for watch in self._all():
            self._forget(watch)
