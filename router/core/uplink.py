"""Our own links to configured containers: attached when wanted, kept up, attached again.

An uplink is one link of one node to one endpoint. Eager ones (``from``, bridges) are wanted as
long as their route stands; lazy ones (``to``) while somebody uses the node, and a while longer.

    step       meaning                                    next
    AWAY       the container is not connected             CAME -> ATTACHING
    IDLE       connected, and nobody wants it             WANTED -> ATTACHING
    ATTACHING  our attach is out                          ANSWERED -> ATTACHED, ENDED -> PAUSED
    ATTACHED   in use                                     ENDED -> PAUSED, UNWANTED -> IDLE
    PAUSED     detached by the peer; tried again later    TIME -> ATTACHING

    LEFT leads to AWAY from everywhere. ``_NEXT`` is the law; what it does not list is ignored.

``amqp:link:detach-forced`` is routine with cloud peers, which end links that idle: such a link is
attached again at once and nothing is said of it. Other ends pause, longer each time, until an
attachment has stood for as long as the longest pause.

While an uplink towards a container is wanted and not attached, deliveries wait for it for
``failover_seconds``; then they are given up, and fresh ones are released as with no receiver.
"""

import enum

import attrs

from router.core.alarms import Alarm
from router.core.node import Node
from router.links.link import Link
from router.model.condition import Condition
from router.model.identity import LinkId, LinkName
from router.model.terminus import Role


class Step(enum.Enum):
    """Where an uplink stands."""

    AWAY = "away"
    IDLE = "idle"
    ATTACHING = "attaching"
    ATTACHED = "attached"
    PAUSED = "paused"


class Input(enum.Enum):
    """What happens to an uplink."""

    CAME = "came"
    LEFT = "left"
    WANTED = "wanted"
    UNWANTED = "unwanted"
    ANSWERED = "answered"
    ENDED = "ended"
    TIME = "time"


_NEXT: dict[tuple[Step, Input], Step] = {
    (Step.AWAY, Input.CAME): Step.IDLE,
    (Step.IDLE, Input.WANTED): Step.ATTACHING,
    (Step.ATTACHING, Input.ANSWERED): Step.ATTACHED,
    (Step.ATTACHING, Input.ENDED): Step.PAUSED,
    (Step.ATTACHED, Input.ENDED): Step.PAUSED,
    (Step.ATTACHED, Input.UNWANTED): Step.IDLE,
    (Step.ATTACHING, Input.UNWANTED): Step.IDLE,
    (Step.PAUSED, Input.UNWANTED): Step.IDLE,
    (Step.PAUSED, Input.TIME): Step.IDLE,
    (Step.IDLE, Input.LEFT): Step.AWAY,
    (Step.ATTACHING, Input.LEFT): Step.AWAY,
    (Step.ATTACHED, Input.LEFT): Step.AWAY,
    (Step.PAUSED, Input.LEFT): Step.AWAY,
}


def next_step(step: Step, happening: Input) -> Step | None:
    """Returns the step that follows; None: it changes nothing."""
    return _NEXT.get((step, happening))


@attrs.define(eq=False, kw_only=True)
class Uplink:
    """One link of ours to a configured container.

    Attributes:
        role: our end's: SENDER towards ``to``, RECEIVER from ``from``.
        address: of the node over there.
        name: of the link; the same for every attachment, over restarts too.
        is_eager: wanted as long as its route stands.
        is_finishing: not needed any more, and only kept for outcomes that are still to come.
        id: of the attachment under way or in use.
        link: what is attached.
        kept: what was attached and is suspended, to be resumed.
        has_map: the attach under way or in use came with an unsettled map.
        is_cut: that map did not fit a frame: it was marked incomplete.
        resumes: as far as is known, the container keeps unsettled state.
        failures: ends in a row without an attachment that lasted.
        error: why it last ended or was refused.
        attached_at: when it was last answered; None: never.
        retry: the alarm of PAUSED.
        failover: the alarm after which nothing waits for it any more.
    """

    node: Node
    container: str
    address: str
    role: Role
    name: LinkName
    is_eager: bool
    step: Step = attrs.field(default=Step.AWAY, init=False)
    is_wanted: bool = attrs.field(default=False, init=False)
    is_finishing: bool = attrs.field(default=False, init=False)
    id: LinkId | None = attrs.field(default=None, init=False)
    link: Link | None = attrs.field(default=None, init=False)
    kept: Link | None = attrs.field(default=None, init=False)
    has_map: bool = attrs.field(default=False, init=False)
    is_cut: bool = attrs.field(default=False, init=False)
    resumes: bool = attrs.field(default=True, init=False)
    failures: int = attrs.field(default=0, init=False)
    error: Condition | None = attrs.field(default=None, init=False)
    attached_at: float | None = attrs.field(default=None, init=False)
    retry: Alarm | None = attrs.field(default=None, init=False)
    failover: Alarm | None = attrs.field(default=None, init=False)
