"""What can be wrong with a configuration file, and how it is said."""

from collections.abc import Iterable

import attrs

from router.errors import RouterError
from router.routes.route import Position


@attrs.frozen
class Problem:
    """One thing that is wrong, at one place. Its text never holds a secret."""

    position: Position
    problem: str

    def __str__(self) -> str:
        return f"{self.position}: {self.problem}"


class ConfigError(RouterError):
    """A configuration that cannot be used: everything that is wrong with it, in order of place."""

    def __init__(self, problems: Iterable[Problem]) -> None:
        self.problems: tuple[Problem, ...] = tuple(
            sorted(set(problems), key=lambda each: (each.position.line, each.position.column))
        )
        super().__init__("\n".join(map(str, self.problems)))


class UnfitError(RouterError):
    """A value cannot be read; whoever reads what it is part of reports it and goes on.

    Attributes:
        position: where to point; None: at the value itself.
        reason: a phrase that follows upon the name of the key.
    """

    def __init__(self, reason: str, position: Position | None = None) -> None:
        self.reason = reason
        self.position = position
        super().__init__(reason)


class ReportedError(UnfitError):
    """A value cannot be had because of problems that were reported already."""
