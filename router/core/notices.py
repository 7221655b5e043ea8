"""Log lines of the core: machines have no logger, so the shell takes notices and logs them."""

import attrs


@attrs.frozen
class Notice:
    """One line of the log.

    Attributes:
        event: ``noun.past_verb``.
        fields: of the fixed keys ``connection container link address tag condition octets
            seconds``, and ``count`` for how many deliveries it stands for.
        is_warning: something does not work as it was asked for.
    """

    event: str
    fields: dict[str, object]
    is_warning: bool = False


class Notices:
    """Notices since they were last taken, at most ``LIMIT``; more are only counted."""

    LIMIT = 1000

    def __init__(self) -> None:
        self._waiting: list[Notice] = []
        self._lost = 0

    def add(self, event: str, **fields: object) -> None:
        """Adds a notice."""
        self._add(Notice(event, fields))

    def warn(self, event: str, **fields: object) -> None:
        """Adds a notice of something that does not work as it was asked for."""
        self._add(Notice(event, fields, is_warning=True))

    def _add(self, notice: Notice) -> None:
        if len(self._waiting) >= self.LIMIT:
            self._lost += 1
        else:
            self._waiting.append(notice)

    def take(self) -> list[Notice]:
        """Returns and removes the notices added since the last call."""
        taken, self._waiting = self._waiting, []
        if self._lost:
            taken.append(Notice("notices.dropped", {"count": self._lost}, is_warning=True))
            self._lost = 0
        return taken
