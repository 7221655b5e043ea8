"""What has changed in a message store and somebody is to act upon."""

import attrs

from router.journal.store.queues import QueueKey


@attrs.define(eq=False, kw_only=True)
class Changes:
    """Begins with none, except that segments may be found that can be removed.

    Attributes:
        stirred: queues that got or lost a message, or got one back.
        may_remove: a segment may have lost its last message.
        wants_head: somebody has dropped messages, or some are lost, which the head of a new segment
            has to say.
        owes_head: that head is not known to be durable.
    """

    stirred: set[QueueKey] = attrs.field(factory=set)
    may_remove: bool = True
    wants_head: bool = False
    owes_head: bool = False

    def take_stirred(self) -> set[QueueKey]:
        """Returns the stirred queues, once."""
        stirred, self.stirred = self.stirred, set()
        return stirred
