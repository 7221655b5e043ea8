"""What a client receives: queues, the links behind them, and subscriptions before them.

Theory of operation. A router stores nothing, so a *queue* here is a name, the addresses that it
stands for, and the subscriptions that take turns. There are two kinds:

- a *routed* queue is an address of the routing table: shared, durable and kept by whoever is
  behind the route. Each subscription has a link of its own to it;
- a *local* queue lives and dies with its session: exclusive or auto-delete. Its own name is one
  address, each binding adds one; its outlets (outgoing links) are there from the beginning, and
  take ``LOCAL_CREDIT`` deliveries before anybody subscribes.

Deliveries from all outlets form one line, ``backlog``; whoever has room takes the next one.

Room is a subscription's credit in messages; without credit in octets there is none. A message that
is larger than the octets left waits at the head of the line (0-10 forbids to send a part of it).
An outlet is granted as much as all subscriptions have room for. With several outlets the same room
is granted to each, and what comes too much waits in the backlog; that is bounded.

    credit     message.flow adds; 0xFFFFFFFF, or no value, is infinite until stop or flush
    window     as credit, and a completed transfer gives back what it took (mode window)
    flush      every outlet is drained; complete when all have said that nothing is left
    stop       credit is void at once; what waits in a routed queue's backlog is given back
"""

from collections import deque
from collections.abc import Iterable, Set
from typing import TYPE_CHECKING, Any, ClassVar, Final

import attrs

from router.errors import DecodeError, TranslationError
from router.model.capabilities import Protocol
from router.model.condition import Condition
from router.model.delivery import OutgoingDelivery
from router.model.events import CreditGranted, LinkAttached, LinkDetached
from router.model.identity import DeliveryTag, LinkId, LinkName
from router.model.outcome import ACCEPTED, MODIFIED_UNDELIVERABLE, RELEASED, DeliveryState
from router.model.terminus import ExpiryPolicy, ReceiverSettleMode, Role, Source, Target
from router.model.text import name_of
from router.wire import hub
from router.wire.v0_10 import message as messages
from router.wire.v0_10 import records as r
from router.wire.v0_10.codec import encode_command
from router.wire.v0_10.outgoing import Ready, refusal
from router.wire.v0_10.types import Table

if TYPE_CHECKING:
    from router.wire.v0_10.subscribing import SubscribingSession
    from router.wire.v0_10.watching import Watch

UNBOUNDED_ROOM: Final = 1000
"""Room of infinite credit: what is under way to such a subscription is bounded by this alone."""

LOCAL_CREDIT: Final = 100
"""Deliveries that a local queue takes while nobody is subscribed to it."""

INFINITE: Final = 0xFFFF_FFFF

MODE_CREDIT, MODE_WINDOW = 0, 1
"""Values of flow-mode."""

UNIT_MESSAGE, UNIT_BYTE = 0, 1
"""Values of credit-unit."""

_NOBODY: Final[frozenset["Subscription"]] = frozenset()

PRE_ACQUIRED, NOT_ACQUIRED = 0, 1
"""Values of acquire-mode."""


class Subscription:
    """A subscription (0-10 message.subscribe).

    Attributes:
        destination: its name, to which messages are transferred.
        label: tells it, and its links, from all others of the session.
        settles: accept-mode none: what was sent counts as accepted.
        acquires: acquire-mode pre-acquired.
        mode: how credit is renewed.
        messages, octets: credit; None: infinite.
        flushes: commands that wait until the credit is used up or given back.
        head: the command segment of its transfers.
        is_active: it was not cancelled.
    """

    codes: ClassVar[tuple[int, int]] = (4, 7)
    """Class and code of the command that asks for it."""

    kind: ClassVar[int] = 4
    """The class by which it gets what its queue gives."""

    def __init__(
        self, session: "SubscribingSession", queue: "Queue", command: r.MessageSubscribe
    ) -> None:
        self.session = session
        self.queue = queue
        self.destination = self.label = command.destination or ""
        self.settles = bool(command.accept_mode)
        self.acquires = not command.acquire_mode
        self.resume_id = command.resume_id
        self.resume_ttl = command.resume_ttl
        self.mode = MODE_WINDOW
        self.messages: int | None = 0
        self.octets: int | None = 0
        self.flushes: list[int] = []
        self.is_active = True
        self.head = encode_command(
            r.MessageTransfer(
                self.destination, int(self.settles), PRE_ACQUIRED if self.acquires else NOT_ACQUIRED
            )
        )

    @property
    def room(self) -> int:
        """How many messages it takes now."""
        if self.octets == 0:
            return 0
        return UNBOUNDED_ROOM if self.messages is None else self.messages

    def add(self, unit: int, value: int | None) -> None:
        """Adds credit (0-10 message.flow)."""
        is_infinite = value is None or value == INFINITE
        if unit == UNIT_MESSAGE:
            known = self.messages
            self.messages = None if is_infinite or known is None else known + (value or 0)
        else:
            known = self.octets
            self.octets = None if is_infinite or known is None else known + (value or 0)

    def take(self, octets: int) -> None:
        """Uses credit up for a message."""
        if self.messages is not None:
            self.messages -= 1
        if self.octets is not None:
            self.octets -= octets

    def give_back(self, octets: int) -> None:
        """Renews credit when a transfer is complete (mode window)."""
        if self.mode != MODE_WINDOW or not self.is_active:
            return
        if self.messages is not None:
            self.messages += 1
        if self.octets is not None:
            self.octets += octets

    def void(self) -> None:
        """Takes all credit away.

        Infinite credit in octets stays: without messages it means nothing, and Qpid's client for
        Python counts on it when it goes on after a rollback.
        """
        self.messages = 0
        if self.octets is not None:
            self.octets = 0

    def segments(self, ready: Ready) -> tuple[bytes, bytes]:
        """Makes the command and the header segment that a delivery goes out with.

        Raises:
            TranslationError: it has no such form.
        """
        return self.head, ready.header

    def fits(self, octets: int) -> bool:
        """Tells whether a message may be sent now."""
        return self.room > 0 and (self.octets is None or octets <= self.octets)


@attrs.define(eq=False)
class Outlet:
    """An outgoing link behind a queue.

    Attributes:
        address: where it receives from.
        filters: arguments of headers bindings, of which one must match; empty: no filter.
        credit: deliveries that the core may still send.
        unsettled: numbers of deliveries without an outcome.
        resumed: deliveries that the core is to name again, for which it needs credit.
        unnamed: their tags, each with what the client has said of it meanwhile; None: nothing.
        is_attached: the core has answered and gives it.
        is_leaving: to be detached when nothing is unsettled.
        is_draining: the core has been asked to use the credit up.
        home: the worker that keeps it; None: this one.
    """

    link: LinkId
    queue: "Queue"
    address: str
    filters: list[Table] = attrs.field(factory=list)
    credit: int = 0
    unsettled: int = 0
    resumed: int = 0
    unnamed: dict[DeliveryTag, DeliveryState | None] = attrs.field(factory=dict)
    is_attached: bool = False
    is_leaving: bool = False
    is_draining: bool = False
    home: str | None = None


@attrs.frozen
class Binding:
    """A queue's binding to an exchange (0-10 exchange.bind)."""

    exchange: str
    key: str
    arguments: Table
    address: str
    is_pattern: bool = False


class Queue:
    """A queue, as its session knows it (see the module).

    Attributes:
        is_local: it lives and dies with the session.
        outlets: by address.
        watches: by pattern, what bindings with wildcards stand for.
        subscriptions: those that take turns, the next one first.
        backlog: deliveries that nobody had room for.
        auto_delete: it goes when its last subscription does.
        has_own_address: its name is an address, too; not so for a local queue that no route names.
        may_fall: at the next review credit may be taken back.
    """

    def __init__(
        self,
        session: "SubscribingSession",
        name: str,
        *,
        is_local: bool,
        is_exclusive: bool = False,
        auto_delete: bool = False,
    ) -> None:
        self.session = session
        self.name = name
        self.is_local = is_local
        self.is_exclusive = is_exclusive
        self.auto_delete = auto_delete
        self.bindings: list[Binding] = []
        self.outlets: dict[str, Outlet] = {}
        self.watches: dict[str, Watch] = {}
        self.subscriptions: deque[Subscription] = deque()
        self.backlog: deque[tuple[Outlet, OutgoingDelivery]] = deque()
        self.has_own_address = True
        self.may_fall = False
        self._tried: dict[tuple[Outlet, DeliveryTag], set[Subscription]] = {}

    @property
    def addresses(self) -> set[str]:
        """What the queue stands for."""
        own = {self.name} if self.has_own_address else set()
        return own | {each.address for each in self.bindings if not each.is_pattern}

    def wants(self, address: str) -> bool:
        """Tells whether the queue stands for an address, by itself or by a pattern."""
        if address in self.addresses:
            return True
        return any(address in watch.addresses for watch in self.watches.values())

    # --- links ------------------------------------------------------------------------------------

    def open_outlet(self, address: str, label: str) -> Outlet:
        """Asks the core for a link from an address.

        Args:
            address: where it is to receive from.
            label: tells the links of several subscriptions to one address apart.
        """
        outlet = self.outlets.get(address)
        if outlet is not None:
            outlet.is_leaving = False
            return outlet
        outlet = Outlet(self.session.server.next_link(), self, address)
        self.outlets[address] = outlet
        self.ask(outlet, label)
        return outlet

    def ask(self, outlet: Outlet, label: str, *, is_back: bool = False) -> None:
        """Asks the core for a link, perhaps one that it has known before.

        Args:
            outlet: the link.
            label: as with ``open_outlet``.
            is_back: the session has come back, and knows all that it was sent on the link: what it
                does not name it never had (§2.6.13, as in receiver-settle-mode second).
        """
        session = self.session
        session.server.outlets[outlet.link] = outlet
        unsettled = None
        if session.is_kept:
            unsettled = {tag: outlet.unnamed.get(tag) for tag in session.tags_of(outlet)}
            unsettled |= {tag: told for tag, told in outlet.unnamed.items() if told is not None}
            outlet.unnamed = dict(unsettled)
            outlet.resumed = len(unsettled)
        session.engine.runs.add(
            LinkAttached(
                link=outlet.link,
                name=LinkName(f"{name_of(session.name)}<{label}<{outlet.address}"),
                role=Role.SENDER,
                is_answer=False,
                source=Source(
                    address=outlet.address,
                    expiry_policy=ExpiryPolicy.LINK_DETACH,
                    expiry_seconds=session.expiry_seconds,
                ),
                target=Target(),
                receiver_settle_mode=ReceiverSettleMode(int(is_back)),
                unsettled=unsettled,
                home=outlet.home,
            )
        )

    @property
    def label(self) -> str:
        """Begins the names of its links: what a routed queue's only subscription is called."""
        if self.is_local or not self.subscriptions:
            return self.name
        return self.subscriptions[0].label

    def close_outlet(self, outlet: Outlet) -> None:
        """Lets a link go as soon as nothing on it is unsettled."""
        if outlet.credit and outlet.is_attached:
            outlet.credit = 0
            self.session.engine.runs.add(CreditGranted(outlet.link, 0))
        outlet.is_leaving = True
        self.release(outlet)
        self.detach_if_done(outlet)

    def let_go(self, address: str) -> None:
        """Closes the outlet of an address that the queue stands for no more."""
        outlet = self.outlets.get(address)
        if outlet is not None and not self.wants(address):
            self.close_outlet(outlet)

    def detach_if_done(self, outlet: Outlet) -> None:
        """Detaches a link that is leaving and has nothing unsettled."""
        if outlet.is_leaving and outlet.is_attached and not outlet.unsettled:
            self.forget(outlet)
            self.session.engine.runs.add(LinkDetached(outlet.link, closed=True))

    def forget(self, outlet: Outlet) -> None:
        """Takes note that a link is gone."""
        if self.outlets.get(outlet.address) is outlet:
            del self.outlets[outlet.address]
        self.session.server.outlets.pop(outlet.link, None)
        outlet.is_attached = False
        outlet.unnamed.clear()
        self.backlog = deque(entry for entry in self.backlog if entry[0] is not outlet)
        for key in [key for key in self._tried if key[0] is outlet]:
            del self._tried[key]

    def release(self, outlet: Outlet) -> None:
        """Gives back what of a link waits here."""
        back = [each for at, each in self.backlog if at is outlet and not each.settled]
        self.backlog = deque(entry for entry in self.backlog if entry[0] is not outlet)
        for each in back:
            self.session.decide(outlet, each.tag, each.number, RELEASED)

    # --- deliveries -------------------------------------------------------------------------------

    def take(self, outlet: Outlet, deliveries: Iterable[OutgoingDelivery]) -> None:
        """Takes what the core sends."""
        session = self.session
        for delivery in deliveries:
            if delivery.resume:
                self._resumed(outlet, delivery)
                continue
            outlet.credit -= 1
            if not delivery.settled:
                outlet.unsettled += 1
            if outlet.filters and not self._matches(outlet, delivery):
                if not delivery.settled:
                    session.settle(outlet, [delivery.number], MODIFIED_UNDELIVERABLE)
                continue
            self.backlog.append((outlet, delivery))
        if outlet.is_leaving:
            self.release(outlet)
        self.dispatch()
        if self._needs_review(outlet):
            session.review(self)

    def _resumed(self, outlet: Outlet, delivery: OutgoingDelivery) -> None:
        """Takes the core's new number for a delivery that the client has, or that waits here."""
        outlet.resumed = max(outlet.resumed - 1, 0)
        told = outlet.unnamed.pop(delivery.tag, None)
        if told is not None:
            if delivery.settled:
                outlet.unsettled -= 1
                self.detach_if_done(outlet)
            else:
                self.session.settle(outlet, [delivery.number], told)
            return
        if self.session.resumed(outlet, delivery):
            return
        for at, (owner, waiting) in enumerate(self.backlog):
            if owner is outlet and waiting.tag == delivery.tag:
                if delivery.settled:
                    del self.backlog[at]
                    outlet.unsettled -= 1
                else:
                    waiting.number = delivery.number
                return
        if not delivery.settled:
            outlet.unsettled += 1
            self.session.settle(outlet, [delivery.number], RELEASED)

    def _matches(self, outlet: Outlet, delivery: OutgoingDelivery) -> bool:
        """Tells whether a headers binding takes a message; what is broken goes on to be refused."""
        try:
            content = hub.translate(delivery.payload, delivery.protocol, Protocol.AMQP_0_10)
            found = messages.read_content(content)
        except (TranslationError, DecodeError):
            return True
        headers: dict[str, Any] = found.message.application_headers or {}
        return any(headers_match(arguments, headers) for arguments in outlet.filters)

    @property
    def is_shared_here(self) -> bool:
        """Whether several subscriptions take turns at one link."""
        return self.is_local and len(self.subscriptions) > 1

    def take_back(
        self, outlet: Outlet, delivery: OutgoingDelivery, subscription: Subscription
    ) -> bool:
        """Puts what a subscription has released at the head of the line, for the others.

        Returns:
            false: all have had it.
        """
        tried = self._tried.setdefault((outlet, delivery.tag), set())
        tried.add(subscription)
        if outlet.is_leaving or tried.issuperset(self.subscriptions):
            self.done(outlet, delivery.tag)
            return False
        self.backlog.appendleft((outlet, delivery))
        self.dispatch()
        return True

    def dispatch(self) -> None:
        """Sends what waits to those who have room, in turns."""
        backlog, subscriptions = self.backlog, self.subscriptions
        while backlog:
            outlet, delivery = backlog[0]
            tried = self._tried.get((outlet, delivery.tag), _NOBODY) if self._tried else _NOBODY
            if tried and tried.issuperset(subscriptions):  # those who had not had it have left
                backlog.popleft()
                self.done(outlet, delivery.tag)
                self.session.decide(outlet, delivery.tag, delivery.number, RELEASED)
                continue
            subscription = self._next_subscription(tried)
            if subscription is None:
                return
            try:
                if not subscription.session.deliver(subscription, outlet, delivery):
                    return
            except TranslationError as error:
                if not delivery.settled:
                    self.session.decide(outlet, delivery.tag, delivery.number, refusal(error))
            backlog.popleft()
            if len(subscriptions) > 1:
                subscriptions.rotate(-1)

    def done(self, outlet: Outlet, tag: DeliveryTag) -> None:
        """Takes note that a delivery is done with: nobody asks any more who has released it."""
        if self._tried:
            self._tried.pop((outlet, tag), None)

    def _next_subscription(self, tried: Set[Subscription]) -> Subscription | None:
        subscriptions = self.subscriptions
        for _ in range(len(subscriptions)):
            if subscriptions[0].room > 0 and subscriptions[0] not in tried:
                return subscriptions[0]
            subscriptions.rotate(-1)
        return None

    # --- credit -----------------------------------------------------------------------------------

    def review(self) -> None:
        """Grants what subscriptions have room for, and takes back what they have not."""
        room = self._room()
        for outlet in self.outlets.values():
            if not outlet.is_attached or outlet.is_leaving or outlet.is_draining:
                continue
            if self._is_due(outlet, room) or (self.may_fall and room < outlet.credit):
                outlet.credit = room
                credit = room + outlet.resumed
                self.session.engine.runs.add(CreditGranted(outlet.link, credit))
        self.may_fall = False

    def grant_resumed(self, outlet: Outlet) -> None:
        """Grants a link that has come back what it needs to name deliveries again."""
        outlet.credit = max(self._room(), 0)
        credit = outlet.credit + outlet.resumed
        self.session.engine.runs.add(CreditGranted(outlet.link, credit))

    def _needs_review(self, outlet: Outlet) -> bool:
        """Tells whether a review would grant an outlet more."""
        return self._is_due(outlet, self._room())

    @staticmethod
    def _is_due(outlet: Outlet, room: int) -> bool:
        gain = room - outlet.credit
        return gain > 0 and (outlet.credit <= 0 or 2 * gain >= room)

    def _room(self) -> int:
        """Works out how many more deliveries are taken."""
        if self.is_local and not self.subscriptions:
            return max(LOCAL_CREDIT - len(self.backlog), 0)
        room = -len(self.backlog)
        for subscription in self.subscriptions:
            room += max(subscription.room, 0)
        return max(room, 0)

    def stop(self, subscription: Subscription) -> None:
        """Takes a subscription's credit away (0-10 message.stop)."""
        subscription.void()
        self.may_fall = True
        self.review()
        if not self.is_local:
            for outlet in list(self.outlets.values()):
                self.release(outlet)

    def drain(self, subscription: Subscription, number: int) -> bool:
        """Has every outlet's credit used up or given back (0-10 message.flush).

        Returns:
            whether that takes time; ``drained`` says when it is done.
        """
        room = subscription.room
        waits = False
        for outlet in self.outlets.values():
            if outlet.is_attached and not outlet.is_leaving and room > 0:
                outlet.is_draining = waits = True
                outlet.credit = room
                self.session.engine.runs.add(
                    CreditGranted(outlet.link, room + outlet.resumed, drain=True)
                )
        if waits:
            subscription.flushes.append(number)
        return waits

    def drained(self, outlet: Outlet) -> None:
        """Takes note that a link has nothing more to send."""
        outlet.credit = 0
        outlet.is_draining = False
        if any(each.is_draining for each in self.outlets.values()):
            return
        self.dispatch()
        for subscription in self.subscriptions:
            if subscription.flushes:
                subscription.void()
                flushes, subscription.flushes = subscription.flushes, []
                self.session.complete_all(flushes)
        if not self.is_local:
            for each in list(self.outlets.values()):
                self.release(each)
        self.may_fall = True
        self.session.review(self)

    # --- end --------------------------------------------------------------------------------------

    def remove(self, subscription: Subscription) -> None:
        """Takes a subscription out; a queue without any may go."""
        subscription.is_active = False
        self.subscriptions.remove(subscription)
        self.session.complete_all(subscription.flushes)
        if not self.subscriptions:
            if not self.is_local:
                for outlet in list(self.outlets.values()):
                    self.close_outlet(outlet)
            elif self.auto_delete and not self.is_exclusive:
                self.delete()  # an exclusive one goes with its session
        self.may_fall = True
        self.session.review(self)

    def delete(self) -> None:
        """Ends a local queue, and with it the subscriptions to it."""
        for watch in list(self.watches.values()):
            self.session.watching.end(watch)
        for outlet in list(self.outlets.values()):
            self.close_outlet(outlet)
        self.session.queues.pop(self.name, None)

    def purge(self) -> None:
        """Drops what waits, as if it had been received."""
        waiting, self.backlog = self.backlog, deque()
        for outlet, delivery in waiting:
            if not delivery.settled:
                self.session.decide(outlet, delivery.tag, delivery.number, ACCEPTED)
        self.session.review(self)


def headers_match(arguments: dict[str, Any], headers: dict[str, Any]) -> bool:
    """Tells whether a headers exchange's binding takes a message (0-10 exchange, headers type).

    ``x-match`` is ``all`` unless it says ``any``; other names that begin with ``x-`` decide
    nothing; a value of nothing asks only for the header to be there.
    """
    wanted = [(name, value) for name, value in arguments.items() if not name.startswith("x-")]
    hits = (name in headers and (value is None or headers[name] == value) for name, value in wanted)
    if arguments.get("x-match") == "any":
        return any(hits)
    return all(hits)


def gone(queue: Queue, condition: Condition) -> str:
    """Words why a queue is not there any more."""
    return f"queue {queue.name!r}: {condition}"
