"""What a client's connection has: links, and who waits for the core's answers."""

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
    """What the sessions of one connection share.

    Attributes:
        watches: patterns that queues stand for.
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
        """Remembers who waits for the core's answer."""
        self._questions.setdefault(link, []).append(question)

    def forget_questions(self, session: Session) -> None:
        """Takes note that nobody waits for the core's answers any more."""
        for link, questions in list(self._questions.items()):
            if any(question.asker is session for question in questions):
                del self._questions[link]
                if link not in self.outlets and self.tells_links:
                    self.runs.add(LinkDetached(link, closed=True))

    def review(self, queue: Queue) -> None:
        """Looks at a queue's credit when the turn ends."""
        self._reviews[id(queue)] = queue

    def wake_at(self, at: float) -> None:
        """Looks at what waits to be handed on at a time or before."""
        self._wakes_at = min(self._wakes_at, at)

    def pump_later(self, publishing: InletOwner) -> None:
        """Hands on what waits when the turn ends, by the time that it is then."""
        self._pumps[id(publishing)] = publishing

    # --- all sessions -----------------------------------------------------------------------------

    @property
    def files_octets(self) -> int:
        """What the files that clients upload take, in all sessions of the connection."""
        raise NotImplementedError

    def own_queue(self, exchange: str, key: str) -> Queue | None:
        """Finds the queue that takes what this connection transfers, past the core."""
        raise NotImplementedError

    def is_exclusive_elsewhere(self, name: str, asker: Session) -> bool:
        """Tells whether a queue is another session's of this connection alone."""
        raise NotImplementedError

    def knows_exchange(self, name: str) -> bool:
        """Tells whether an exchange was declared on this connection, or is there for everybody."""
        raise NotImplementedError

    def forget_shapes(self) -> None:
        """Forgets what transfers mean: queues have come or gone."""
        raise NotImplementedError

    def drained(self) -> None:
        """Records that a session has nothing held any more."""
        raise NotImplementedError
