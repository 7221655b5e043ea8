"""Uplinks: our own links to configured containers, attached on demand and kept attached.

An uplink is one link of one node to one endpoint. Eager uplinks (``from``, bridges) are wanted as
long as their route exists; lazy ones (``to``) while the node has senders, and a while longer.

    step       meaning                                    next
    AWAY       the container is not connected             CAME -> ATTACHING, ENDED -> PAUSED
    IDLE       connected, and nobody wants it             WANTED -> ATTACHING
    ATTACHING  our attach is out                          ANSWERED -> ATTACHED, ENDED -> PAUSED
    ATTACHED   in use                                     ENDED -> PAUSED, UNWANTED -> IDLE
    PAUSED     detached by the peer; tried again later    TIME -> ATTACHING

    AWAY ends where a redirect led, and nothing could be reached (``redirects``).
    LEFT leads to AWAY from everywhere. ``_NEXT`` is the law; what it does not list is ignored.

``amqp:link:detach-forced`` is routine with cloud brokers, which detach idle links: such a link is
attached again at once, without a log line. After other ends the uplink pauses, longer each time,
until an attachment has lasted as long as the longest pause.

While an uplink towards a container is wanted and not attached, deliveries wait for it for
``failover_seconds``; then they are given up, and new ones are released as if without receivers.
"""

import enum

import attrs

from router.core.alarms import Alarm
from router.core.node import Node
from router.links.link import Link, Names
from router.model.condition import Condition
from router.model.identity import ContainerId, LinkId, LinkName
from router.model.terminus import Role
from router.routes.route import PLAIN, LinkTerms


class Step(enum.Enum):
    """The state of an uplink."""

    AWAY = "away"
    IDLE = "idle"
    ATTACHING = "attaching"
    ATTACHED = "attached"
    PAUSED = "paused"


class Input(enum.Enum):
    """An event of an uplink."""

    CAME = "came"
    LEFT = "left"
    WANTED = "wanted"
    UNWANTED = "unwanted"
    ANSWERED = "answered"
    ENDED = "ended"
    TIME = "time"


REASONS_MOST = 8
"""Reasons that are remembered as told: routers on the way may give different ones."""

_NEXT: dict[tuple[Step, Input], Step] = {
    (Step.AWAY, Input.CAME): Step.IDLE,
    (Step.AWAY, Input.ENDED): Step.PAUSED,
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
    """Returns the next step; None: the step does not change."""
    return _NEXT.get((step, happening))


@attrs.define(eq=False)
class Acquaintance:
    """What an uplink knows of one container.

    Attributes:
        resumes: as far as is known, it keeps unsettled state.
        was_attached: it has answered an attach; nothing unsettled with it was forgotten since.
    """

    resumes: bool = True
    was_attached: bool = False


@attrs.define(eq=False, kw_only=True)
class Uplink:
    """An uplink to a configured container.

    Attributes:
        role: our end's: SENDER towards ``to``, RECEIVER from ``from``.
        address: the container's node.
        name: the link name, the same for all attachments, also after a restart.
        is_eager: wanted as long as its route exists.
        scatters: its deliveries go to the nodes of many addresses (``pulls``).
        subscription: name of the queue that feeds it, if it pulls from an exchange (``follow``).
        names: gives each delivery its address at the container; None: that of the link.
        is_fallback: it leads to the route's fallback, or to the worker that dials its container.
        is_subscribed: the container has bound that queue.
        roams: it leads to another site's router, the container, by whichever neighbor is the next
            hop on the way there (``mesh.chains``).
        terms: what its attach asks for beside the address.
        connection: name of the connection for its next attach: the container, unless it has
            redirected the link (``redirects``).
        address_there: the address for its next attach, likewise.
        trail: where the chain of redirects has been; empty: there was none.
        is_finishing: no longer needed, and only kept for outstanding outcomes.
        finishes_at: so long at most; None: it is not finishing, or there is no limit.
        id: the LinkId of the present attach.
        link: the attached link.
        kept: the suspended link to be resumed, if it is still this container (``successors``).
        restored: more of them after a restart, of other containers that were at its place.
        is_to_meet: it stays wanted until it was attached after a restart: it settled all before.
        has_map: our present attach has an unsettled map.
        is_cut: that map did not fit a frame and is marked incomplete.
        there: the container to which it was attached last, or is attached.
        acquaintances: of the containers that were at its place, the latest last.
        failures: consecutive ends without an attachment that lasted.
        error: why it last ended or was refused.
        told: why a link to another site has failed since it last stood, as the log has it.
        attached_at: when it was last answered; None: never.
        retry: the alarm of PAUSED.
        failover: the alarm after which deliveries do not wait for it any more.
    """

    node: Node
    container: str
    address: str
    role: Role
    name: LinkName
    is_eager: bool
    scatters: bool = False
    subscription: str | None = None
    names: Names | None = None
    terms: LinkTerms = PLAIN
    is_fallback: bool = False
    roams: bool = False
    connection: str = attrs.field(init=False)
    address_there: str = attrs.field(init=False)
    trail: tuple[str, ...] = attrs.field(default=(), init=False)
    step: Step = attrs.field(default=Step.AWAY, init=False)
    is_wanted: bool = attrs.field(default=False, init=False)
    is_subscribed: bool = attrs.field(default=False, init=False)
    is_finishing: bool = attrs.field(default=False, init=False)
    finishes_at: float | None = attrs.field(default=None, init=False)
    id: LinkId | None = attrs.field(default=None, init=False)
    link: Link | None = attrs.field(default=None, init=False)
    kept: Link | None = attrs.field(default=None, init=False)
    restored: list[Link] = attrs.field(factory=list, init=False)
    is_to_meet: bool = attrs.field(default=False, init=False)
    has_map: bool = attrs.field(default=False, init=False)
    is_cut: bool = attrs.field(default=False, init=False)
    there: Acquaintance = attrs.field(factory=Acquaintance, init=False)
    acquaintances: dict[ContainerId, Acquaintance] = attrs.field(factory=dict, init=False)
    failures: int = attrs.field(default=0, init=False)
    error: Condition | None = attrs.field(default=None, init=False)
    told: set[str] = attrs.field(factory=set, init=False)
    attached_at: float | None = attrs.field(default=None, init=False)
    retry: Alarm | None = attrs.field(default=None, init=False)
    failover: Alarm | None = attrs.field(default=None, init=False)

    def __attrs_post_init__(self) -> None:
        self.connection, self.address_there = self.container, self.address

    @property
    def is_elsewhere(self) -> bool:
        """Whether it leads to another place than its container's."""
        return self.connection != self.container

    @property
    def is_open(self) -> bool:
        """Whether something is unsettled on its link, or on those that it has to resume."""
        links = (self.link, self.kept, *self.restored)
        return any(link is not None and bool(link.unsettled or link.adrift) for link in links)

    def is_news(self, reason: str) -> bool:
        """Returns whether a failure is to be logged, and records that it is.

        A link to another site fails for as long as there is no way, at each router in turn.
        """
        if self.terms.chain is None:
            return True
        if reason in self.told:
            return False
        if len(self.told) >= REASONS_MOST:
            self.told.clear()
        self.told.add(reason)
        return True

    @property
    def where(self) -> str:
        """The connection and the address of its next attach, for people."""
        return f"{self.connection}/{self.address_there}"
