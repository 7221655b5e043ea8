"""Questions to the routing table, which the core answers as attaches.

Theory of operation. Protocols before AMQP 1.0 have commands that ask whether something exists. To
ask for an address is to attach to it and to detach again; to receive from it is to attach and stay.
The asker, a channel or a session, handles no further input until the answer.
"""

from collections.abc import Callable
from typing import Generic, TypeVar
from typing import Protocol as Interface

import attrs

from router.model.commands import AttachLink
from router.model.condition import Condition
from router.model.events import LinkAttached, LinkDetached
from router.model.identity import LinkId, LinkName
from router.model.terminus import ALL_OUTCOMES, Role, Source, Target
from router.wire.runs import Runs


class Asker:
    """A party that asks, and can wait.

    Attributes:
        waits: further input is kept.
    """

    waits: bool = False

    def park(self) -> None:
        """Handles no further input until ``resume``."""
        self.waits = True

    def go_on(self, then: Callable[[], None]) -> None:
        """Runs the continuation of a ``park``, and resumes, unless it parks again.

        Raises:
            PeerError, SessionFaultError: the peer is found at fault.
        """
        self.waits = False
        then()
        if not self.waits:
            self.resume()

    def resume(self) -> None:
        """Handles the input received since ``park``, until the asker must wait again."""
        raise NotImplementedError


AskerT = TypeVar("AskerT", bound=Asker)


@attrs.define(eq=False)
class Question(Generic[AskerT]):
    """An attach that the core has not answered yet.

    Attributes:
        accepted: called with the answer.
        refused: called with the reason.
    """

    asker: AskerT
    accepted: Callable[[AttachLink], None]
    refused: Callable[[Condition], None]


class Desk(Interface[AskerT]):
    """An engine that asks the core."""

    runs: Runs

    def next_link(self) -> LinkId:
        """Returns a new link id."""

    def ask(self, link: LinkId, question: Question[AskerT]) -> None:
        """Records who waits for the core's answer."""


def trial(link: LinkId, name: str, address: str, role: Role) -> LinkAttached:
    """Builds the attach that asks for an address; ``role`` is ours."""
    if role is Role.RECEIVER:
        source, target = Source(outcomes=ALL_OUTCOMES), Target(address=address)
    else:
        source, target = Source(address=address), Target()
    return LinkAttached(
        link=link,
        name=LinkName(name),
        role=role,
        is_answer=False,
        source=source,
        target=target,
    )


def probe(
    desk: Desk[AskerT],
    asker: AskerT,
    attach: LinkAttached,
    accepted: Callable[[], None],
    refused: Callable[[Condition], None],
) -> None:
    """Asks whether an address is routed, by a ``trial`` detached at once; the asker waits."""

    def detach(answer: AttachLink) -> None:
        desk.runs.add(LinkDetached(attach.link, closed=True))
        asker.go_on(accepted)

    def refuse(condition: Condition) -> None:
        asker.go_on(lambda: refused(condition))

    desk.ask(attach.link, Question(asker, detach, refuse))
    desk.runs.add(attach)
    asker.park()
