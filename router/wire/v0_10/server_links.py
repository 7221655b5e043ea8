"""The shared state of a client's connection: links, and pending answers of the core."""

import math

from router.model.events import LinkDetached
from router.model.identity import LinkId
from router.wire.asking import Question
from router.wire.engine import EngineSettings
from router.wire.serving import ServingMachine
from router.wire.v0_10.posts import Inlet, InletOwner
from router.wire.v0_10.queues import Outlet, Queue, Watch
from router.wire.v0_10.server_handshake import ServerHandshake
from router.wire.v0_10.session import Session


class ServerLinks(ServingMachine[Inlet, Outlet], ServerHandshake):
    """The shared state of one connection's sessions.

    Attributes:
        watches: patterns of queues.
    """

    spoken = "0-10"

    def __init__(self, settings: EngineSettings) -> None:
        super().__init__(settings)
        self.inlets: dict[LinkId, Inlet] = {}
        self.outlets: dict[LinkId, Outlet] = {}
        self.watches: dict[LinkId, Watch] = {}
        self._questions: dict[LinkId, list[Question[Session]]] = {}
        self._reviews: dict[int, Queue] = {}
        self._pumps: dict[int, InletOwner] = {}
        self._wakes_at = math.inf

    def ask(self, link: LinkId, question: Question[Session]) -> None:
        """Records who waits for the core's answer."""
        self._questions.setdefault(link, []).append(question)

    def forget_questions(self, session: Session) -> None:
        """Drops the pending questions of a session."""
        for link, questions in list(self._questions.items()):
            if any(question.asker is session for question in questions):
                del self._questions[link]
                if link not in self.outlets and self.reports_links:
                    self.runs.add(LinkDetached(link, closed=True))

    def review(self, queue: Queue) -> None:
        """Reviews a queue's credit at the end of the turn."""
        self._reviews[id(queue)] = queue

    def wake_at(self, at: float) -> None:
        """Schedules a check of held transfers for this time."""
        self._wakes_at = min(self._wakes_at, at)

    def pump_later(self, publishing: InletOwner) -> None:
        """Hands on held transfers at the end of the turn, with the time of the turn."""
        self._pumps[id(publishing)] = publishing

    # --- all sessions -----------------------------------------------------------------------------

    @property
    def files_octets(self) -> int:
        """Octets of uploaded files in all sessions of the connection."""
        raise NotImplementedError

    def own_queue(self, exchange: str, key: str) -> Queue | None:
        """Returns the queue that accepts this connection's transfers, without the core."""
        raise NotImplementedError

    def is_exclusive_elsewhere(self, name: str, asker: Session) -> bool:
        """Returns whether a queue is exclusive to another session of this connection."""
        raise NotImplementedError

    def knows_exchange(self, name: str) -> bool:
        """Returns whether an exchange was declared on this connection, or is predeclared."""
        raise NotImplementedError

    def forget_shapes(self) -> None:
        """Clears cached meanings of transfers: queues have changed."""
        raise NotImplementedError

    def drained(self) -> None:
        """Records that a session holds no transfers any more."""
        raise NotImplementedError
