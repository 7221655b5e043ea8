"""``basic.get``, and other methods that must follow the publishes of their channel.

Theory of operation. A channel's methods act in order (0-9-1 §4.7), so a get after a publish to the
same queue returns that message, and a declare, purge or delete counts it. Such a publish passes up
to three places, one after the other:

1. the channel's list of held publishes (``Publishing.held``), until the core has answered its link
   and granted credit;
2. the core, until this connection's turn is over;
3. the queue, or another receiver of the address: a routed queue is shared.

A method that counts checks 1 and 3 and waits for 2 (``follow``); a get needs the message itself, so
it waits for 1, too, until some of it has been handed on (``_await_one``). To wait for 2 is to ask
the core to *drain*: to send what it has, and to report that. The drain follows the publish in the
order of events, so its answer follows the delivery. A publish handed on between a drain and its
answer follows it: then the core is asked once more. It answers several drains of one link together,
so there is one at a time.

``basic.get`` from a routed queue uses a link of the channel's, with one credit and the same drain.
Before the core answers it has the senders to that address send what they have, within a bound
(``core.polls``).
"""

from collections.abc import Callable
from functools import partial

from router.model import condition as conditions
from router.model.commands import AttachLink
from router.model.condition import Condition
from router.model.delivery import OutgoingDelivery
from router.model.events import CreditGranted, LinkDetached
from router.model.identity import LinkId
from router.model.outcome import RELEASED
from router.wire.asking import Question
from router.wire.v0_9_1 import methods as m
from router.wire.v0_9_1.asking import Asking
from router.wire.v0_9_1.client_channel import ClientChannel
from router.wire.v0_9_1.outlets import Outlet, Taker
from router.wire.v0_9_1.publishing import Publishing
from router.wire.v0_9_1.queues import Queue
from router.wire.v0_9_1.reply import PeerError, channel_reply
from router.wire.v0_9_1.server_links import ServerLinks


class Getter(Taker):
    """The link by which one channel gets from one routed queue (0-9-1 §1.8.3.10).

    Attributes:
        outlet: the link; attached on first use, and kept.
        priority: the default priority.
        no_ack: of the ``basic.get`` under way.
        is_waiting: a ``basic.get`` is under way.
        is_draining: the core has been asked to drain and has not answered. It answers even though
            it has sent something, and the next ``basic.get`` must not take that answer for its own.
    """

    def __init__(
        self, channel: ClientChannel, getting: "Getting", queue: str, link: LinkId
    ) -> None:
        self.channel = channel
        self._getting = getting
        self.queue = queue
        self.outlet = Outlet(link, self, queue)
        self.outlet.name_route(queue)
        self.priority = 0
        self.no_ack = False
        self.is_waiting = False
        self.is_draining = False

    def got(self, delivery: OutgoingDelivery) -> None:
        """Handles a delivery."""
        self._getting.got(self, delivery)

    def got_nothing(self) -> None:
        """Handles the answer that the core has nothing more."""
        self._getting.got_nothing(self)

    def lost(self, condition: Condition | None) -> None:
        """Records that the core has detached the link."""
        self._getting.lost(self, condition)


class Getting:
    """The gets of one channel, and their order after its publishes."""

    def __init__(
        self,
        engine: ServerLinks,
        channel: ClientChannel,
        publishing: Publishing,
        asking: Asking,
    ) -> None:
        self._engine = engine
        self._channel = channel
        self._publishing = publishing
        self._asking = asking
        self._getters: dict[str, Getter] = {}
        self._following: tuple[set[str], int, Callable[[], None]] | None = None

    # --- behind publishes -------------------------------------------------------------------------

    def count(self, queue: Queue) -> int:
        """Counts the messages in a local queue, and the channel's publishes to it since."""
        return len(queue.backlog) + self._publishing.count_for(queue)

    def follow(self, queue: Queue, then: Callable[[], None]) -> None:
        """Continues when the channel's publishes are in a local queue, or held by the channel.

        Args:
            queue: the queue.
            then: continuation; may raise the client's fault.
        """
        self._when_drained(queue, then, self._drain)

    def await_line(self, queue: Queue, then: Callable[[], None]) -> None:
        """Continues when fewer of the channel's publishes are held; some are held now.

        Args:
            queue: the queue that it is for.
            then: continuation; may raise the client's fault.
        """

        def handed_on() -> None:
            self._drain(queue, lambda: self._go_on(then))

        self._channel.park()
        self._follow(set(queue.outlets), handed_on)

    def _when_drained(
        self,
        queue: Queue,
        then: Callable[[], None],
        drain: Callable[[Queue, Callable[[], None]], None],
    ) -> None:
        if not (self._publishing.published and queue.outlets):
            then()
            return
        self._channel.park()
        drain(queue, lambda: self._go_on(then))

    def _drain(self, queue: Queue, then: Callable[[], None]) -> None:
        """Continues when the core has sent everything that it was handed for a queue.

        Args:
            queue: the queue.
            then: continuation; called once, unless the channel ends.
        """
        outlets = queue.usable_outlets
        busy = next((outlet for outlet in outlets if outlet.draining), None)
        if busy is not None:
            busy.draining.append(lambda: self._drain(queue, then))
            return
        queue.review()  # credit is granted at the end of a turn, and perhaps not in this one
        outlets = [outlet for outlet in outlets if outlet.credit > 0]
        if not outlets or not self._channel.is_open:
            then()
            return
        draining, given = {outlet.link for outlet in outlets}, self._publishing.given

        def drained(link: LinkId) -> None:
            draining.discard(link)
            if draining:
                return
            if self._publishing.given == given:
                then()
            else:
                self._drain(queue, then)

        for outlet in outlets:
            outlet.draining.append(partial(drained, outlet.link))
            queue.drain(outlet)

    def _await_count(self, queue: Queue, then: Callable[[], None]) -> None:
        """Continues when a get can be answered, and the remainder be counted."""
        self._await_one(queue, lambda: self._drain(queue, then))

    def _await_one(self, queue: Queue, then: Callable[[], None]) -> None:
        """Continues when a queue has a delivery, or none of the channel's publishes is to come.

        One delivery is enough, and is accepted even if no consumer has capacity for it.
        """
        if queue.backlog:
            then()
            return
        outlets = queue.usable_outlets
        for outlet in outlets:
            if outlet.credit <= 0 and not (outlet.draining or queue.is_shared):
                self._allow(outlet)
        addresses = {outlet.address for outlet in outlets}

        def drained() -> None:
            if self._publishing.count_held(addresses):
                self._await_one(queue, then)
            else:
                then()

        self._follow(addresses, lambda: self._drain(queue, drained))

    def _follow(self, addresses: set[str], then: Callable[[], None]) -> None:
        """Continues when the channel's publishes to addresses are handed on, at least in part."""
        held = self._publishing.count_held(addresses)
        if held:
            self._following = addresses, held, then
        else:
            then()

    def pumped(self) -> None:
        """Records that some of the channel's publishes may have been handed on."""
        if self._following is not None:
            addresses, held, then = self._following
            if self._publishing.count_held(addresses) < held:
                self._following = None
                then()

    def _go_on(self, then: Callable[[], None]) -> None:
        """Runs the continuation, and resumes the channel."""
        if not self._channel.is_open:
            return
        self._following = None
        try:
            self._channel.go_on(then)
        except PeerError as error:
            self._engine.fault(error, self._channel)

    def _allow(self, outlet: Outlet) -> None:
        """Grants one credit, by which held publishes may be handed on."""
        outlet.credit = 1
        self._engine.runs.add(CreditGranted(outlet.link, 1))

    # --- getting ----------------------------------------------------------------------------------

    def get(self, name: str, no_ack: bool) -> None:
        """Handles a ``basic.get``."""
        queue = self._engine.queues.get(name)
        if queue is not None and (queue.is_local or queue.backlog):
            self._when_drained(queue, lambda: self._get_local(queue, no_ack), self._await_count)
        else:
            self._get_routed(name, no_ack)

    def _get_routed(self, name: str, no_ack: bool) -> None:
        """Gets by a link of the channel's."""
        getter = self._getters.get(name)
        if getter is None:
            getter = self._getters[name] = Getter(
                self._channel, self, name, self._engine.next_link()
            )
        getter.no_ack = no_ack
        self._open(getter)

    def _open(self, getter: Getter) -> None:
        """Attaches the link for a routed queue, then gets."""
        engine, channel = self._engine, self._channel
        if getter.outlet.is_attached:
            self._ask_for_one(getter)
            return
        outlet = getter.outlet
        engine.ask_for_outlet(outlet, f"{channel.number}")

        def attach(answer: AttachLink) -> None:
            outlet.is_attached, outlet.is_exact = True, answer.is_exact
            self._ask_for_one(getter)

        def refuse(condition: Condition) -> None:
            channel.waits = False
            self.forget(getter)
            error = self._asking.refusal(condition, f"queue {getter.queue!r}", (60, 70))
            engine.fault(error, channel)

        engine.ask(outlet.link, Question(channel, attach, refuse))
        channel.park()

    def _get_local(self, queue: Queue, no_ack: bool) -> None:
        queue.used()
        while (entry := queue.take_next()) is not None:
            self._engine.review(queue)
            if self._channel.give(*entry, no_ack, self.count(queue)):
                return
        if queue.is_shared:
            self._get_routed(queue.name, no_ack)
        else:
            self._channel.send(m.BasicGetEmpty())

    def _ask_for_one(self, getter: Getter) -> None:
        outlet = getter.outlet
        self._channel.park()
        getter.is_waiting = True
        outlet.credit = 0

        def drain() -> None:
            if getter.is_waiting:
                getter.is_draining = True
                self._engine.runs.add(CreditGranted(outlet.link, 1, drain=True))

        addresses = {outlet.address}
        if self._publishing.count_held(addresses):
            self._allow(outlet)
        self._follow(addresses, drain)

    def got(self, getter: Getter, delivery: OutgoingDelivery) -> None:
        """Handles the delivery for the pending ``basic.get``."""
        outlet = getter.outlet
        if not delivery.settled:
            outlet.unsettled += 1
        if not getter.is_waiting:
            self._engine.settle(outlet, [delivery.number], RELEASED)
            return
        getter.is_waiting = False
        self._following = None
        if not self._channel.give(outlet, delivery, getter.no_ack, 0):
            self._channel.send(m.BasicGetEmpty())
        if not getter.is_draining:
            self._channel.resume()

    def got_nothing(self, getter: Getter) -> None:
        """Handles the answer that there is nothing to get."""
        if not getter.is_draining:
            return
        getter.is_draining = False
        if getter.is_waiting:
            getter.is_waiting = False
            self._channel.send(m.BasicGetEmpty())
        self._channel.resume()

    # --- ends -------------------------------------------------------------------------------------

    def forget(self, getter: Getter) -> None:
        """Records that the core refuses the link of a ``basic.get``."""
        self._getters.pop(getter.queue, None)
        self._engine.outlets.pop(getter.outlet.link, None)

    def lost(self, getter: Getter, condition: Condition | None) -> None:
        """Records that the link of ``basic.get`` is gone."""
        self.forget(getter)
        self._channel.lost(getter.outlet)
        is_draining, getter.is_draining = getter.is_draining, False
        if getter.is_waiting:
            getter.is_waiting = False
            self._following = None
            text = str(condition or Condition(conditions.DETACH_FORCED))
            error = PeerError(channel_reply(condition), text, 60, 70)
            self._engine.fault(error, self._channel)
        elif is_draining:
            self._channel.resume()

    def forget_all(self) -> None:
        """Records that the connection is over."""
        self._following = None
        self._getters.clear()

    def ended(self) -> None:
        """Detaches the links."""
        self._following = None
        for getter in self._getters.values():
            self._engine.outlets.pop(getter.outlet.link, None)
            self._engine.runs.add(LinkDetached(getter.outlet.link, closed=True))
        self._getters.clear()
