"""Log lines of the core: machines have no logger, so the shell takes notices and logs them."""

import attrs


@attrs.frozen
class Notice:
    """One line of the log.

    Attributes:
        event: ``noun.past_verb``.
        fields: of the fixed keys ``connection container link address tag condition octets
            seconds``, and ``count`` for how many deliveries it stands for.
    """

    event: str
    fields: dict[str, object]


class Notices:
    """Notices since they were last taken, at most ``LIMIT``; more are only counted."""

    LIMIT = 1000

    def __init__(self) -> None:
        self._waiting: list[Notice] = []
        self._lost = 0

    def add(self, event: str, **fields: object) -> None:
        """Adds a notice."""
        if len(self._waiting) >= self.LIMIT:
            self._lost += 1
        else:
            self._waiting.append(Notice(event, fields))

    def take(self) -> list[Notice]:
        """Returns and removes the notices added since the last call."""
        taken, self._waiting = self._waiting, []
        if self._lost:
            taken.append(Notice("notices.dropped", {"count": self._lost}))
            self._lost = 0
        return taken
