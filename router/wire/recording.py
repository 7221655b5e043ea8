"""Confirmations that wait until outcomes are on record, common to protocols before AMQP 1.0.

Theory of operation. On a route that promises exactly-once a client that acknowledges is told so
only when the outcome is durable: told before, it would forget a delivery that a crash brings back
to it, or puts in doubt. Only what confirms an acknowledgment waits (a commit, completion, a reply);
acknowledgments that nothing confirms do not.

What confirms is a *waiter* at the outlets on which it has outcomes, until the core has answered for
each (``RecordAwaited``). An outlet has one question under way: who begins to wait meanwhile is in
the next one. So the questions of an outlet are few, however many acknowledgments there are::

    nothing -> asked      a waiter comes                the core is asked
    asked   -> asked      a waiter comes                it waits for the next question
    asked   -> asked      ReportRecorded, others wait   the waiters asked for are told; asked again
    asked   -> nothing    ReportRecorded, none waits    the waiters asked for are told
    asked   -> nothing    the core ends the link        all waiters are told that nobody knows

An outlet that its engine would detach stays until nobody waits at it: its end would end the
question, too.
"""

from typing import Generic, TypeVar

import attrs

WaiterT = TypeVar("WaiterT")


@attrs.define(eq=False)
class Unrecorded(Generic[WaiterT]):
    """What waits at one outlet.

    Attributes:
        waiters: in the order in which they came.
        asked: how many of them the question under way is for; 0: none is.
    """

    waiters: list[WaiterT] = attrs.field(factory=list)
    asked: int = 0

    def __bool__(self) -> bool:
        return bool(self.waiters)

    def add(self, waiter: WaiterT) -> None:
        """Adds a waiter, before its outcomes are reported: the outlet stays."""
        self.waiters.append(waiter)

    def ask(self) -> bool:
        """Begins a question for all waiters, unless one is under way; returns whether it did."""
        if self.asked or not self.waiters:
            return False
        self.asked = len(self.waiters)
        return True

    def answered(self) -> list[WaiterT]:
        """Removes and returns the waiters of the question."""
        told, self.waiters = self.waiters[: self.asked], self.waiters[self.asked :]
        self.asked = 0
        return told

    def take_all(self) -> list[WaiterT]:
        """Removes and returns all waiters: the question has ended without an answer."""
        self.asked = len(self.waiters)
        return self.answered()

    def suspend(self) -> None:
        """Records that the link is suspended: the question has ended, and is asked again."""
        self.asked = 0
