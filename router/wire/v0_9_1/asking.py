"""Questions of a channel to the routing table (``router.wire.asking``): addresses and patterns.

Theory of operation. The channel waits for the answer (``Channel.park``) and continues when it
arrives. Consecutive questions form a chain: later frames of the channel are handled after the last
answer.
"""

from collections.abc import Callable

from router.model import condition as conditions
from router.model.commands import AttachLink
from router.model.condition import Condition
from router.model.events import AddressesReached
from router.model.terminus import Role
from router.wire.asking import Question, probe, trial
from router.wire.v0_9_1.client_channel import ClientChannel
from router.wire.v0_9_1.exchanges import Reach
from router.wire.v0_9_1.outlets import Outlet
from router.wire.v0_9_1.queues import Queue
from router.wire.v0_9_1.reply import PeerError, Reply, channel_reply
from router.wire.v0_9_1.server_links import ServerLinks
from router.wire.v0_9_1.waiting import Waiter, Watch


class Asking:
    """The questions of one channel.

    Attributes:
        channel: waits for the answers.
    """

    def __init__(self, engine: ServerLinks, channel: ClientChannel) -> None:
        self._engine = engine
        self.channel = channel

    # --- asking -----------------------------------------------------------------------------------

    def probe(
        self,
        address: str,
        role: Role,
        accepted: Callable[[], None],
        refused: Callable[[Condition], None],
    ) -> None:
        """Asks whether an address is routed, by a link that is detached at once."""
        link = self._engine.next_link()
        attach = trial(link, f"{self.channel.number}:{link}", address, role)
        probe(self._engine, self.channel, attach, accepted, refused)

    def find_queue(self, name: str, found: Callable[[], None], index: tuple[int, int]) -> None:
        """Asks whether a queue of a name that is not this connection's exists.

        A client that may not send to it may still be allowed to receive from it.

        Args:
            name: its name.
            found: continues; not called if the client is at fault.
            index: class and method of the client's request.
        """

        def refused(condition: Condition) -> None:
            if condition.name == conditions.NOT_ALLOWED:
                found()  # it exists, though not for every user
            elif condition.name == conditions.UNAUTHORIZED_ACCESS:
                self.probe(name, Role.SENDER, found, missing)
            else:
                missing(condition)

        def missing(condition: Condition) -> None:
            raise self.refusal(condition, f"queue {name!r}", index)

        self.probe(name, Role.RECEIVER, found, refused)

    def ask(
        self,
        queue: Queue,
        address: str,
        accepted: Callable[[], None],
        refused: Callable[[Condition], None],
    ) -> None:
        """Attaches a lasting outlet for a queue; continues at once if it has one."""
        outlet = queue.outlets.get(address)
        if outlet is not None and outlet.is_attached:
            outlet.is_leaving = False
            accepted()
            return
        channel = self.channel

        def attached() -> None:
            channel.go_on(accepted)

        def not_attached(condition: Condition) -> None:
            channel.go_on(lambda: refused(condition))

        self._open(queue, address, attached, not_attached)
        channel.park()

    def _open(
        self,
        queue: Queue,
        address: str,
        accepted: Callable[[], None],
        refused: Callable[[Condition], None],
    ) -> None:
        """Attaches an outlet for a queue; the channel does not wait for it."""
        engine, channel = self._engine, self.channel
        outlet = queue.open_outlet(address, f"{channel.number}")

        def attach(answer: AttachLink) -> None:
            self._name(queue, outlet, answer)
            queue.detach_if_done(outlet)
            engine.review(queue)
            accepted()

        def refuse(condition: Condition) -> None:
            queue.forget(outlet)
            refused(condition)

        engine.ask(outlet.link, Question(channel, attach, refuse))

    # --- patterns ---------------------------------------------------------------------------------

    def watch(
        self,
        queue: Queue,
        pattern: str,
        accepted: Callable[[], None],
        refused: Callable[[Condition], None],
        *,
        is_probe: bool = False,
    ) -> None:
        """Watches a pattern for a queue; continues when all its addresses in use are attached."""
        known = queue.watches.get(pattern)
        if known is not None and known.is_answered:
            for address in known.addresses - queue.outlets.keys():
                self.reach(queue, known, address)  # the binding wants more of their messages now
            accepted()
            return
        engine, channel = self._engine, self.channel

        def not_begun(condition: Condition) -> None:
            queue.watches.pop(pattern, None)
            refused(condition)

        waiter = Waiter(channel, accepted, not_begun)
        if known is not None:
            known.waiting.append(waiter)  # another channel has asked
        else:
            watch = Watch(engine.next_link(), pattern, is_probe, waiting=[waiter])
            queue.watches[pattern] = watch
            engine.begin_watch(watch, queue, self)
        channel.park()

    def probe_pattern(
        self, pattern: str, accepted: Callable[[], None], refused: Callable[[Condition], None]
    ) -> None:
        """Asks whether any route has a pattern, by a watch that is ended at once."""
        queue = Queue(self._engine, "", is_local=False)

        def routed() -> None:
            for watch in list(queue.watches.values()):
                queue.end_watch(watch)
            accepted()

        self.watch(queue, pattern, routed, refused, is_probe=True)

    def reach(self, queue: Queue, watch: Watch, address: str) -> None:
        """Attaches a watch's queue to an address that now has a sender."""
        outlet = queue.outlets.get(address)
        if outlet is not None and outlet.is_attached:
            outlet.is_leaving = False
            self._engine.review(queue)
            return
        if not queue.wants(address):
            return  # another pattern on the way from the exchange does not match it
        watch.unanswered += 1

        def answered(condition: Condition | None = None) -> None:
            watch.unanswered -= 1
            self.settle_down(watch)

        self._open(queue, address, answered, answered)

    def settle_down(self, watch: Watch) -> None:
        """Continues what waits for a watch, if all its outlets are attached."""
        if not watch.unanswered:
            watch.is_answered = True
            self._engine.runs.add(AddressesReached(watch.link))
            for waiter in watch.take_waiting():
                self._engine.guard(waiter.channel, waiter.channel.go_on, waiter.accepted)

    def _name(self, queue: Queue, outlet: Outlet, answer: AttachLink) -> None:
        """Handles the core's answer, which names a dynamic node."""
        outlet.is_attached = True
        if not outlet.address and answer.source is not None and answer.source.address:
            del queue.outlets[""]
            outlet.address = queue.own_address = answer.source.address
            queue.name = queue.name or outlet.address
            queue.outlets[outlet.address] = outlet
            outlet.name_route(queue.name)

    def open_outlets(self, queue: Queue, then: Callable[[], None]) -> None:
        """Attaches a queue to all its addresses, then continues; 404 if none of them is routed."""
        if queue.is_local:
            then()
            return
        waiting = sorted(queue.addresses)
        patterns = sorted(queue.patterns)
        refusals: list[Condition] = []

        def go_on() -> None:
            if queue.is_deleted:
                raise PeerError(Reply.NOT_FOUND, f"queue {queue.name!r} was deleted", 60, 20)
            if waiting:
                self.ask(queue, waiting.pop(), go_on, refused)
            elif patterns:
                self.watch(queue, patterns.pop(), go_on, refused)
            elif queue.outlets or queue.watches:
                then()
            else:
                raise self.refusal(refusals[0], f"queue {queue.name!r}", (60, 20))

        def refused(condition: Condition) -> None:
            refusals.append(condition)
            go_on()

        go_on()

    @staticmethod
    def refusal(condition: Condition, what: str, index: tuple[int, int]) -> PeerError:
        """Describes the core's refusal, with class and method of the client's request."""
        return PeerError(channel_reply(condition), f"{what}: {condition}", *index)

    # --- several ----------------------------------------------------------------------------------

    def attach_all(
        self,
        reached: list[tuple[Queue, Reach]],
        accepted: Callable[[], None],
        refused: Callable[[Condition], None],
    ) -> None:
        """Attaches queues to their addresses, one after the other."""

        def go_on() -> None:
            if not reached:
                accepted()
                return
            queue, reach = reached.pop()
            attach = self.watch if reach.is_pattern else self.ask
            attach(queue, reach.address, go_on, refused)

        go_on()

    def ask_all(
        self,
        reached: list[Reach],
        accepted: Callable[[], None],
        refused: Callable[[Condition], None],
    ) -> None:
        """Asks whether addresses can be attached, one after the other."""

        def go_on() -> None:
            if not reached:
                accepted()
                return
            reach = reached.pop()
            if reach.is_pattern:
                self.probe_pattern(reach.address, go_on, refused)
            else:
                self.probe(reach.address, Role.SENDER, go_on, refused)

        go_on()
