"""Problems of a configuration file and their presentation."""

from collections.abc import Iterable

import attrs

from router.errors import RouterError
from router.routes.route import Position


@attrs.frozen
class Problem:
    """One problem at one position of the file. Its text never holds a secret."""

    position: Position
    problem: str

    def __str__(self) -> str:
        return f"{self.position}: {self.problem}"


class ConfigError(RouterError):
    """A configuration that cannot be used, with all its problems in the order of the file."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(
            sorted(set(problems), key=lambda each: (each.position.line, each.position.column))
        )
        super().__init__("\n".join(map(str, self.problems)))


class UnfitError(RouterError):
    """A value cannot be read; the reader of the enclosing value reports this and goes on.

    Attributes:
        position: the position to report; None: that of the value itself.
        reason: a phrase that follows the name of the key.
    """

    def __init__(self, reason: str, position: Position | None = None) -> None:
        self.reason = reason
        self.position = position
        super().__init__(reason)


class ReportedError(UnfitError):
    """A value cannot be read because of problems that were already reported."""
