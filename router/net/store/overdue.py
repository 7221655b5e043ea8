"""What of the messages that were read from the store has become overdue since.

The store says of each message that it reads whether it must not go to its target any more. While
the target is away messages wait at an inlet, become too old there, or are dropped as the oldest.
"""

from collections.abc import Callable, Mapping

import attrs

from router.journal.store.place import BEGINNING, Place
from router.journal.store.queues import UNBOUNDED, Bounds, RouteKey
from router.journal.store.reading import StoredMessage
from router.journal.store.runs import MessagesRead


@attrs.define(eq=False)
class Overdue:
    """What makes messages overdue.

    Attributes:
        bounds: of the routes that store messages.
        condemned: messages of a route up to here were dropped as the oldest.
    """

    _clock_ns: Callable[[], int]
    bounds: Mapping[RouteKey, Bounds] = attrs.field(factory=dict)
    condemned: dict[RouteKey, Place] = attrs.field(factory=dict)

    def among(
        self, route: RouteKey, messages: list[StoredMessage]
    ) -> tuple[list[StoredMessage], list[StoredMessage]]:
        """Returns those that may go to their target, and those that are overdue, so marked."""
        now_ns, condemned = self._clock_ns(), self.condemned.get(route, BEGINNING)
        age_ns = self.bounds.get(route, UNBOUNDED).age_ns
        is_early = condemned < min([each.claim.place for each in messages], default=condemned)
        if age_ns is not None:
            is_early &= now_ns < age_ns + min([each.time_ns for each in messages], default=0)
        if is_early and all(each.ttl_milliseconds is None for each in messages):
            return messages, []
        good: list[StoredMessage] = []
        late: list[StoredMessage] = []
        for each in messages:
            if each.claim.place <= condemned or self.is_late(route, each):
                late.append(each._replace(is_overdue=True))
            else:
                good.append(each)
        return good, late

    def is_late(self, route: RouteKey, message: StoredMessage) -> bool:
        """Returns whether a message is too old, by its route or by itself."""
        now_ns, age_ns = self._clock_ns(), self.bounds.get(route, UNBOUNDED).age_ns
        ends_ns = message.ttl_ends_ns
        is_old = age_ns is not None and message.time_ns + age_ns <= now_ns
        return is_old or (ends_ns is not None and ends_ns <= now_ns)

    def are_early(self, route: RouteKey, run: MessagesRead) -> bool:
        """Returns whether all messages of a run may go to their target."""
        age_ns = self.bounds.get(route, UNBOUNDED).age_ns
        if run.place(0) <= self.condemned.get(route, BEGINNING):
            return False
        return age_ns is None or self._clock_ns() < age_ns + run.oldest_ns
