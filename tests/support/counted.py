"""Shortcuts that count which of them were taken, and which declined."""

from collections.abc import Callable


class Counted:
    """Stands for compiled shortcuts.

    Attributes:
        taken: names of those that have done their step.
        refused: names of those that have left it to the general path.
    """

    def __init__(self, shortcuts: object) -> None:
        self.shortcuts = shortcuts
        self.taken: set[str] = set()
        self.refused: set[str] = set()

    def __getattr__(self, name: str) -> Callable[..., object]:
        def counted(*arguments: object) -> object:
            result: object = getattr(self.shortcuts, name)(*arguments)
            is_refused = result is None or result is False or result == -1
            (self.refused if is_refused else self.taken).add(name)
            return result

        return counted
