"""Which prefixes and addresses a router may advertise, as the receiver's policy says.

A policy never trusts what it is told: it is the receiver's own configuration. A pattern is allowed
if every address that it matches is matched by one allowed pattern.
"""

from collections.abc import Mapping
from typing import Final

import attrs

from router.routes.match import (
    Pattern,
    PatternError,
    Token,
    Wildcard,
    canonical,
    matches,
    parse_pattern,
)
from router.routes.mesh.nouns import RouterId

STATES_MOST: Final = 4_096
"""Bounds the work of one comparison of two patterns; beyond, the pattern counts as not covered."""

_OTHER: Final = ""
"""Stands for all tokens that neither pattern names. (An empty token is one of them, unless a
pattern has it, and then it is a literal like any other.)"""


@attrs.frozen
class Policy:
    """What routers may advertise.

    Attributes:
        allowed: router → patterns.
        others: patterns for routers that ``allowed`` does not name.
    """

    allowed: Mapping[RouterId, tuple[Pattern, ...]] = attrs.field(factory=dict)
    others: tuple[Pattern, ...] = ()

    @classmethod
    def parse(
        cls, allowed: Mapping[str, tuple[str, ...]], others: tuple[str, ...] = ("#",)
    ) -> "Policy":
        """Makes a policy of texts.

        Raises:
            PatternError: one is no pattern.
        """
        parsed = {
            RouterId(name): tuple(map(parse_pattern, texts)) for name, texts in allowed.items()
        }
        return cls(parsed, tuple(map(parse_pattern, others)))

    def allowed_for(self, router: RouterId) -> tuple[Pattern, ...]:
        """Returns the patterns that a router may advertise within."""
        return self.allowed.get(router, self.others)

    def judge_pattern(self, router: RouterId, text: str) -> Pattern | str:
        """Returns a pattern that a router advertises, or the rule that it breaks."""
        try:
            pattern = parse_pattern(text)
        except PatternError as error:
            return str(error)
        if any(covers(one, pattern) for one in self.allowed_for(router)):
            return pattern
        return f"the policy does not let {router} advertise '{text}'"

    def judge_address(self, router: RouterId, address: str) -> str | None:
        """Returns the rule that an address breaks; None: it is allowed."""
        if any(matches(one, address) for one in self.allowed_for(router)):
            return None
        return f"the policy does not let {router} advertise the address '{address}'"


def covers(wide: Pattern, narrow: Pattern) -> bool:
    """Returns whether every address that ``narrow`` matches is matched by ``wide``.

    Walks both patterns at once as automata: a state is a place in ``narrow`` and the set of places
    (a bit mask) that ``wide`` may have reached by the same tokens.
    """
    inner, outer = canonical(narrow), canonical(wide)
    if outer == (Wildcard.MANY,):
        return True
    end = 1 << len(outer)
    literals = {token for token in (*inner, *outer) if isinstance(token, str)}
    fresh = _OTHER if _OTHER not in literals else "\0"
    start = (0, _skip(outer, 1))
    seen, pending = {start}, [start]
    while pending:
        at, reached = pending.pop()
        if len(seen) > STATES_MOST or not reached:
            return False
        if at == len(inner):
            if not reached & end:
                return False
            continue
        token = inner[at]
        steps: list[tuple[int, int]] = []
        if token is Wildcard.MANY:
            steps.append((at + 1, reached))
            steps += [(at, _step(outer, reached, one)) for one in (*literals, fresh)]
        elif token is Wildcard.ONE:
            steps += [(at + 1, _step(outer, reached, one)) for one in (*literals, fresh)]
        else:
            assert isinstance(token, str)
            steps.append((at + 1, _step(outer, reached, token)))
        fresh_states = [state for state in steps if state not in seen]
        seen.update(fresh_states)
        pending += fresh_states
    return True


def _step(pattern: tuple[Token, ...], reached: int, token: str) -> int:
    """Returns the places that are reached from some by one more token."""
    after = 0
    for place, wanted in enumerate(pattern):
        if reached >> place & 1:
            if wanted is Wildcard.MANY:
                after |= 1 << place
            elif wanted is Wildcard.ONE or wanted == token:
                after |= 2 << place
    return _skip(pattern, after)


def _skip(pattern: tuple[Token, ...], places: int) -> int:
    """Adds the places that are reached because ``#`` may stand for nothing."""
    for place, wanted in enumerate(pattern):
        if wanted is Wildcard.MANY and places >> place & 1:
            places |= 2 << place
    return places
