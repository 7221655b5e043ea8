"""Address patterns and the tree that finds the most specific one for an address.

An address is tokens separated by ``.`` or ``/`` (the two separators are equal to each other;
``a.b`` matches ``a/b``). The empty address has no tokens; otherwise two separators side by side
have an empty token between them, which is a token like any other. In a pattern ``*`` stands for
one token and ``#`` for any number of tokens, none included.

Which of several matching patterns wins
    They are compared token by token from the left. At the first difference a literal comes before
    ``*``, ``*`` before the end of the pattern, and the end before ``#``. (The end can only meet
    another token where that is ``#``, or where an earlier ``#`` takes in the rest; either way this
    order prefers the pattern that says more.) Patterns that differ only in which literals they
    name, which both can match one address only behind a ``#``, go by the order they were given in.
    Patterns that match exactly the same addresses, such as ``a.*.#`` and ``a.#.*``, are equal, and
    equal patterns are an error.

How it is found
    All patterns are sorted by that order once, and a pattern's place is its rank; the winner is
    the lowest rank that matches. A pattern without wildcards beats every other one that matches,
    so those are found in a dict. The others form a tree, one node per distinct prefix of tokens.
    The search carries, for a node, the *set* of places in the address that the node's prefix can
    have reached (a bit mask), so that each node is visited once however many ways ``#`` could be
    stretched: time is bounded by nodes visited times tokens, never exponential. Each node knows
    the lowest rank beneath it, and whole branches are left out once a lower one was found. An
    address above ``MAX_ADDRESS_CHARACTERS`` matches nothing.
"""

import enum
import itertools
from collections.abc import Generator, Iterable, Iterator, Sequence
from typing import Final

import attrs

from router.errors import RouterError

SLICE_PATTERNS: Final = 100
"""Patterns added to the tree between two yields: half a millisecond of work."""

MAX_ADDRESS_CHARACTERS: Final = 4096
"""Longer addresses match nothing. This bounds the work that a peer can cause; real addresses
stay below 260 characters (0-9-1 and 0-10 cannot carry more than 255 octets)."""

USER_PLACEHOLDER: Final = "${user}"


class Wildcard(enum.Enum):
    """A token of a pattern that is not literal."""

    ONE = "*"
    MANY = "#"


Token = str | Wildcard

_LITERAL_RANK, _ONE_RANK, _END_RANK, _MANY_RANK = range(4)
_RANKS: Final = {Wildcard.ONE: _ONE_RANK, Wildcard.MANY: _MANY_RANK}


@attrs.frozen
class PatternError(RouterError):
    """A text is not a valid pattern.

    Attributes:
        pattern: the text.
        reason: why, in one phrase.
    """

    pattern: str
    reason: str

    def __str__(self) -> str:
        return f"pattern '{self.pattern}' {self.reason}"


@attrs.frozen
class Pattern:
    """A pattern in parsed form.

    Attributes:
        text: as it was written.
        tokens: literals as ``str``; a literal may be ``*`` if it came from a user's name.
    """

    text: str
    tokens: tuple[Token, ...]

    @property
    def is_literal(self) -> bool:
        """Whether it has no wildcards."""
        return not any(isinstance(token, Wildcard) for token in self.tokens)

    def __str__(self) -> str:
        return self.text


def split(address: str) -> list[str]:
    """Cuts an address into its tokens."""
    return address.replace("/", ".").split(".") if address else []


def has_wildcards(text: str) -> bool:
    """Returns whether a token of a pattern, or of what is to be filled from one, is a wildcard."""
    return any(token in ("*", "#") for token in split(text))


def parse_pattern(text: str, user: str | None = None) -> Pattern:
    """Parses a pattern.

    Args:
        text: the pattern.
        user: if given, stands for each ``${user}`` in the text, always as literal text: a user
            called ``#`` gains nothing by the name.

    Raises:
        PatternError: the text is empty or too long, or a wildcard is only part of a token.
    """
    if not text:
        raise PatternError(text, "is empty; '#' matches every address")
    if len(text) > MAX_ADDRESS_CHARACTERS:
        raise PatternError(text[:40] + "...", f"exceeds {MAX_ADDRESS_CHARACTERS} characters")
    tokens: list[Token] = []
    for token in _split_template(text):
        if token in ("*", "#"):
            tokens.append(Wildcard(token))
        elif "*" in token or "#" in token:
            raise PatternError(
                text,
                f"has a wildcard inside the token '{token}'; it stands alone, as in 'orders.*'",
            )
        elif user is not None and USER_PLACEHOLDER in token:
            tokens.extend(split(token.replace(USER_PLACEHOLDER, user)))
        else:
            tokens.append(token)
    return Pattern(text, tuple(tokens))


def matches(pattern: Pattern, address: str) -> bool:
    """Returns whether an address matches a pattern."""
    return _match_spans(pattern.tokens, split(address)) is not None


def overlaps(one: Pattern, other: Pattern) -> bool:
    """Returns whether some address matches both patterns."""
    return _overlap(one.tokens, other.tokens)


def _overlap(one: Sequence[Token], other: Sequence[Token]) -> bool:
    """As ``overlaps``; row by row: ``reached`` holds the places in ``other`` that fit so far."""
    reached = _skip_many(other, {0})
    for token in one:
        if token is Wildcard.MANY:
            reached = set(range(min(reached), len(other) + 1)) if reached else reached
            continue
        step = set()
        for place in reached:
            if place < len(other):
                theirs = other[place]
                if theirs is Wildcard.MANY:
                    step.add(place)
                elif Wildcard.ONE in (token, theirs) or token == theirs:
                    step.add(place + 1)
        reached = _skip_many(other, step)
    return len(other) in reached


def _skip_many(tokens: Sequence[Token], places: set[int]) -> set[int]:
    """Adds the places that are reached because ``#`` may stand for nothing."""
    for start in sorted(places):
        place = start
        while place < len(tokens) and tokens[place] is Wildcard.MANY:
            place += 1
            places.add(place)
    return places


def _split_template(text: str) -> list[str]:
    """As ``split``; written apart because patterns, unlike addresses, are never empty."""
    return text.replace("/", ".").split(".")


def specificity(pattern: Pattern) -> tuple[int, ...]:
    """Returns a key that sorts patterns from the most specific to the least (module docstring)."""
    ranks = (_RANKS[t] if isinstance(t, Wildcard) else _LITERAL_RANK for t in pattern.tokens)
    return (*ranks, _END_RANK)


def canonical(pattern: Pattern) -> tuple[Token, ...]:
    """Returns a form that is the same for patterns that match exactly the same addresses.

    In a run of wildcards only the number of ``*`` and the presence of ``#`` count.
    """
    tokens: list[Token] = []
    for is_wildcard, run in itertools.groupby(pattern.tokens, lambda t: isinstance(t, Wildcard)):
        members = list(run)
        if is_wildcard and Wildcard.MANY in members:
            tokens += [Wildcard.ONE] * members.count(Wildcard.ONE) + [Wildcard.MANY]
        else:
            tokens += members
    return tuple(tokens)


def describe_advantage(winner: Pattern, loser: Pattern) -> str:
    """Returns in one phrase why ``winner`` comes before ``loser`` where both match."""
    ranks = itertools.zip_longest(specificity(winner), specificity(loser), fillvalue=_END_RANK)
    for place, (ours, theirs) in enumerate(ranks):
        if ours != theirs:
            return f"{_name(winner, place)} before {_name(loser, place)} at token {place + 1}"
    return "equally specific, and written first"


def _name(pattern: Pattern, place: int) -> str:
    if place >= len(pattern.tokens):
        return "the end"
    token = pattern.tokens[place]
    return f"'{token.value}'" if isinstance(token, Wildcard) else f"literal '{token}'"


def capture(pattern: Pattern, address: str) -> tuple[str, ...] | None:
    """Returns what each wildcard of the pattern stands for in the address, in order.

    ``#`` gives its tokens with the separators between them, an empty string if there are none (or
    only one empty token). With several ``#`` each takes as few tokens as it can, the last the rest.

    Returns:
        One string per wildcard; None if the pattern does not match.
    """
    tokens = split(address)
    spans = _match_spans(pattern.tokens, tokens)
    if spans is None:
        return None
    starts = list(itertools.accumulate((len(token) + 1 for token in tokens), initial=0))
    return tuple(address[starts[a] : max(starts[b] - 1, starts[a])] for a, b in spans)


def _match_spans(pattern: Sequence[Token], tokens: Sequence[str]) -> list[tuple[int, int]] | None:
    """Returns the half-open range of tokens that each wildcard takes, or None."""
    segments = _segments(pattern)
    head, *rest = segments
    spans = _match_segment(head, tokens, 0)
    if spans is None:
        return None
    place = len(head)
    for number, segment in enumerate(rest, 1):
        last = number == len(rest)
        start = len(tokens) - len(segment) if last else place
        while True:
            if start < place or start + len(segment) > len(tokens):
                return None
            found = _match_segment(segment, tokens, start)
            if found is not None:
                break
            if last:
                return None
            start += 1
        spans += [(place, start), *found]
        place = start + len(segment)
    return spans if place == len(tokens) else None


def _segments(pattern: Sequence[Token]) -> list[list[Token]]:
    """Cuts a pattern at its ``#``: n of them leave n + 1 segments, some empty."""
    segments: list[list[Token]] = [[]]
    for token in pattern:
        if token is Wildcard.MANY:
            segments.append([])
        else:
            segments[-1].append(token)
    return segments


def _match_segment(
    segment: Sequence[Token], tokens: Sequence[str], start: int
) -> list[tuple[int, int]] | None:
    """Matches literals and ``*`` at one place; returns the ranges of the ``*``."""
    if start + len(segment) > len(tokens):
        return None
    spans = []
    for place, token in enumerate(segment, start):
        if token is Wildcard.ONE:
            spans.append((place, place + 1))
        elif token != tokens[place]:
            return None
    return spans


class _Node:
    """A distinct prefix of tokens; ``lowest`` is the lowest rank here or beneath."""

    __slots__ = ("literals", "lowest", "many", "one", "rank")

    def __init__(self, lowest: int) -> None:
        self.literals: dict[str, _Node] = {}
        self.one: _Node | None = None
        self.many: _Node | None = None
        self.rank: int | None = None
        self.lowest = lowest

    def child(self, token: Token, rank: int) -> "_Node":
        """Returns the child for a token, made if need be; ranks come in rising order."""
        if token is Wildcard.ONE:
            self.one = self.one or _Node(rank)
            return self.one
        if token is Wildcard.MANY:
            self.many = self.many or _Node(rank)
            return self.many
        return self.literals.setdefault(token, _Node(rank))


class PatternTree:
    """Finds which of many patterns match an address. Immutable once made."""

    def __init__(self, patterns: Iterable[Pattern]) -> None:
        """Builds the tree.

        Args:
            patterns: in the order in which they were written.

        Raises:
            PatternError: two of them are equal.
        """
        for _ in self._build(list(patterns)):
            pass

    @classmethod
    def in_slices(cls, patterns: Iterable[Pattern]) -> Generator[None, None, "PatternTree"]:
        """Builds the tree, and yields whenever some tenths of a millisecond have gone by.

        Raises:
            PatternError: two of the patterns are equal.
        """
        tree = cls.__new__(cls)
        yield from tree._build(list(patterns))
        return tree

    def _build(self, written: list[Pattern]) -> Iterator[None]:
        seen: dict[tuple[Token, ...], int] = {}
        ranks: list[tuple[int, ...]] = []
        for index, pattern in enumerate(written):
            first = seen.setdefault(canonical(pattern), index)
            if first != index:
                raise PatternError(pattern.text, f"equals '{written[first]}'")
            ranks.append(specificity(pattern))
            if index % SLICE_PATTERNS == 0:
                yield
        del seen
        order = sorted(range(len(written)), key=ranks.__getitem__)
        yield
        self._order = order
        self._literals: dict[str, int] = {}
        self._root = _Node(0)
        for rank, index in enumerate(order):
            pattern = written[index]
            if pattern.is_literal:
                self._literals[".".join(map(str, pattern.tokens))] = rank
            else:
                self._insert(pattern, rank)
            if rank % SLICE_PATTERNS == 0:
                yield

    def _insert(self, pattern: Pattern, rank: int) -> None:
        node = self._root
        for token in pattern.tokens:
            node = node.child(token, rank)
        node.rank = rank

    def find(self, address: str) -> int | None:
        """Returns the index (in the order given) of the most specific pattern that matches."""
        if len(address) > MAX_ADDRESS_CHARACTERS:
            return None
        literal = self._literals.get(address.replace("/", "."))
        if literal is not None:
            return self._order[literal]
        falling = list(self._walk(address, lowest_only=True))
        return self._order[falling[-1]] if falling else None

    def find_all(self, address: str) -> list[int]:
        """Returns the indexes of all patterns that match, the most specific first."""
        if len(address) > MAX_ADDRESS_CHARACTERS:
            return []
        ranks = list(self._walk(address, lowest_only=False))
        literal = self._literals.get(address.replace("/", "."))
        if literal is not None:
            ranks.append(literal)
        return [self._order[rank] for rank in sorted(ranks)]

    def _walk(self, address: str, *, lowest_only: bool) -> Iterator[int]:
        """Yields ranks that match; with ``lowest_only`` each lower than the one before.

        A place p in the address is before token p; it is bit p of a mask.
        """
        tokens = split(address)
        end = 1 << len(tokens)
        places_of: dict[str, int] = {}
        for place, token in enumerate(tokens):
            places_of[token] = places_of.get(token, 0) | 1 << place
        best = len(self._order)
        stack = [(self._root, 1)]
        while stack:
            node, places = stack.pop()
            if lowest_only and node.lowest >= best:
                continue
            if node.rank is not None and places & end and (not lowest_only or node.rank < best):
                best = node.rank
                yield best
            if node.many is not None:
                stack.append((node.many, (end << 1) - (places & -places)))
            places &= end - 1
            if not places:
                continue
            if node.one is not None:
                stack.append((node.one, places << 1))
            if node.literals:
                stack += _literal_steps(node.literals, places, tokens, places_of)


def _literal_steps(
    literals: dict[str, _Node], places: int, tokens: list[str], places_of: dict[str, int]
) -> list[tuple[_Node, int]]:
    """Returns the children that can follow from ``places``, with the places they reach."""
    if places & (places - 1) == 0:  # one place only, as always before the first '#'
        child = literals.get(tokens[places.bit_length() - 1])
        return [] if child is None else [(child, places << 1)]
    both = literals.keys() & places_of.keys()
    reached = ((literals[token], places & places_of[token]) for token in both)
    return [(child, at << 1) for child, at in reached if at]


def equal_patterns(patterns: Sequence[Pattern]) -> list[tuple[int, int]]:
    """Returns pairs of indexes (first, repeated) of patterns that match the same addresses."""
    first_seen: dict[tuple[Token, ...], int] = {}
    repeated = []
    for index, pattern in enumerate(patterns):
        first = first_seen.setdefault(canonical(pattern), index)
        if first != index:
            repeated.append((first, index))
    return repeated
