"""Renaming: the name of an address at the other end of a route.

A route's ``to`` may name an address with wildcards. The first ``*`` of that address is replaced by
the capture of the first ``*`` of the route's pattern, the second by the second, and so on; ``#``
likewise. Captures without a wildcard in the target are dropped, so several addresses may map to
one. A target with more wildcards of a kind than the pattern is an error.

    pattern      target          address        becomes
    orders.eu    orders.europe   orders.eu      orders.europe
    orders.*     europe.*.new    orders.eu      europe.eu.new
    orders.#     archive.#       orders.a/b     archive.a/b
    orders.#     archive.#       orders         archive            (the separator goes too)
    orders.#     everything      orders.eu.1    everything
"""

import itertools
from collections.abc import Iterator, Sequence

from router.routes.match import Pattern, PatternError, Wildcard, parse_pattern


def check_rename(pattern: Pattern, target: str) -> None:
    """Checks that ``target`` can be filled from ``pattern``.

    Raises:
        PatternError: a wildcard of the target has no counterpart, or is only part of a token.
    """
    wanted = parse_pattern(target).tokens
    for wildcard in Wildcard:
        have, want = pattern.tokens.count(wildcard), wanted.count(wildcard)
        if want > have:
            reason = f"has {want} '{wildcard.value}', but '{pattern}' captures only {have}"
            raise PatternError(target, reason)


def rename(pattern: Pattern, captured: Sequence[str], target: str) -> str:
    """Returns the address at the other end.

    Args:
        pattern: the route's pattern.
        captured: what each of its wildcards stands for (``match.capture``).
        target: the address that the route's endpoint names; ``check_rename`` has passed.
    """
    if "*" not in target and "#" not in target:
        return target
    kinds = [token for token in pattern.tokens if isinstance(token, Wildcard)]
    fills = {kind: _taken_by(kind, kinds, captured) for kind in Wildcard}
    separators = ["", *(c for c in target if c in "./")]
    parts: list[str] = []
    for separator, token in zip(separators, parse_pattern(target).tokens, strict=True):
        if isinstance(token, Wildcard):
            fill = next(fills[token])
            if token is Wildcard.MANY and not fill:
                continue  # no tokens, so no separator either
            parts += (separator, fill)
        else:
            parts += (separator, token)
    return "".join(parts[1:]) if parts else ""


def _taken_by(kind: Wildcard, kinds: Sequence[Wildcard], captured: Sequence[str]) -> Iterator[str]:
    return itertools.compress(captured, (each is kind for each in kinds))
