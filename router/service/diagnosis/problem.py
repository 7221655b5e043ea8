"""What a diagnosis is made of."""

import enum

import attrs


class Severity(enum.StrEnum):
    """Severity of a problem."""

    ERROR = "error"
    """Something does not work."""
    WARNING = "warning"
    """Something may soon fail, or waits for an operator."""
    NOTE = "note"
    """An operator asked for this state, and may have forgotten it."""


@attrs.frozen(kw_only=True)
class Problem:
    """A problem of the router.

    Attributes:
        subject: kind of the thing affected: router, listener, container, route, peer, worker,
            journal, ledger, store or site.
        name: its name.
        text: the problem.
        advice: what to do, or where to look.
    """

    severity: Severity
    subject: str
    name: str
    text: str
    advice: str
