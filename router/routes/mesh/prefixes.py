"""Which sites serve an address: an index of prefixes and single addresses that changes in place.

The rules of patterns are those of ``routes.match``. Unlike its tree, which is made once for a
configuration, this one takes a pattern in or out at a cost that does not depend on how many there
are; so what it finds is compared by specificity rather than by rank.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache

import attrs

from router.routes.match import (
    MAX_ADDRESS_CHARACTERS,
    Pattern,
    Token,
    Wildcard,
    canonical,
    specificity,
    split,
)
from router.routes.mesh.nouns import RouterId

_Sites = tuple[RouterId, ...]
"""In the order of their ids. Few sites share a pattern, so a tuple is smaller than a set. A site
is in it as often as it names the pattern: ``a.*.#`` and ``a.#.*`` are one, as are a.b and a/b."""


@attrs.define(eq=False)
class _Node:
    """A distinct beginning of patterns, in canonical form.

    Attributes:
        children: by token.
        sites: that serve the pattern that ends here.
        order: the specificity of that pattern, and its text.
    """

    children: dict[Token, "_Node"] | None = None
    sites: _Sites = ()
    order: tuple[tuple[int, ...], str] = ((), "")


Watch = Callable[[str, bool, RouterId, bool], None]
"""Is told of a change: the text, whether it is a pattern, the site, whether it serves that now."""


@attrs.define(eq=False)
class Index:
    """Finds the sites of an address.

    Attributes:
        watch: called after each change.
    """

    watch: Watch | None = attrs.field(default=None, init=False)
    _root: _Node = attrs.field(factory=_Node, init=False)
    _singles: dict[str, _Sites] = attrs.field(factory=dict, init=False)

    def add_pattern(self, pattern: Pattern, site: RouterId) -> None:
        """Records that a site serves a pattern."""
        node = self._root
        tokens = canonical(pattern)
        for token in tokens:
            if node.children is None:
                node.children = {}
            node = node.children.setdefault(token, _Node())
        node.sites = _with(node.sites, site)
        node.order = (specificity(Pattern("", tokens)), _text(tokens))
        self._tell(node.order[1], True, site, node.sites)

    def remove_pattern(self, pattern: Pattern, site: RouterId) -> None:
        """Records that a site does not serve a pattern any more."""
        tokens = canonical(pattern)
        way = [self._root]
        for token in tokens:
            child = (way[-1].children or {}).get(token)
            if child is None:
                return
            way.append(child)
        way[-1].sites = _without(way[-1].sites, site)
        self._tell(_text(tokens), True, site, way[-1].sites)
        for token, node, parent in zip(reversed(tokens), way[:0:-1], way[-2::-1], strict=True):
            if node.children or node.sites:
                break
            assert parent.children is not None
            del parent.children[token]

    def add_address(self, address: str, site: RouterId) -> None:
        """Records that a site serves a single address."""
        name = _plain(address)
        self._singles[name] = _with(self._singles.get(name, ()), site)
        self._tell(name, False, site, self._singles[name])

    def remove_address(self, address: str, site: RouterId) -> None:
        """Records that a site does not serve a single address any more."""
        name = _plain(address)
        left = _without(self._singles.get(name, ()), site)
        if left:
            self._singles[name] = left
        else:
            self._singles.pop(name, None)
        self._tell(name, False, site, left)

    def _tell(self, text: str, is_pattern: bool, site: RouterId, sites: _Sites) -> None:
        if self.watch is not None:
            self.watch(text, is_pattern, site, site in sites)

    def best(self, address: str) -> _Sites:
        """Returns the sites of the most specific pattern; a single address is the most specific."""
        single = self._singles.get(_plain(address), ())
        found = min(self._walk(address), key=lambda node: node.order, default=None)
        if found is None:
            return single
        literal = all(rank == 0 for rank in found.order[0][:-1]) if single else False
        if single and not literal:
            return single
        return _merge(single, found.sites)

    def every(self, address: str) -> _Sites:
        """Returns the sites of all patterns that match."""
        sites = self._singles.get(_plain(address), ())
        for node in self._walk(address):
            sites = _merge(sites, node.sites)
        return sites

    def _walk(self, address: str) -> Iterator[_Node]:
        """Yields the nodes whose patterns match; each once (see ``PatternTree``)."""
        if len(address) > MAX_ADDRESS_CHARACTERS:
            return
        tokens = split(address)
        end = 1 << len(tokens)
        places_of: dict[str, int] = {}
        for place, token in enumerate(tokens):
            places_of[token] = places_of.get(token, 0) | 1 << place
        stack = [(self._root, 1)]
        while stack:
            node, places = stack.pop()
            if node.sites and places & end:
                yield node
            children = node.children
            if not children:
                continue
            many = children.get(Wildcard.MANY)
            if many is not None:
                stack.append((many, (end << 1) - (places & -places)))
            places &= end - 1
            if not places:
                continue
            one = children.get(Wildcard.ONE)
            if one is not None:
                stack.append((one, places << 1))
            for token, where in places_of.items():
                child = children.get(token) if places & where else None
                if child is not None:
                    stack.append((child, (places & where) << 1))


def _plain(address: str) -> str:
    return address.replace("/", ".")


def _text(tokens: tuple[Token, ...]) -> str:
    return ".".join(one.value if isinstance(one, Wildcard) else one for one in tokens)


@lru_cache(maxsize=4_096)
def _alone(site: RouterId) -> _Sites:
    """Returns the same tuple for all addresses that this site alone serves."""
    return (site,)


def _with(sites: _Sites, site: RouterId) -> _Sites:
    if not sites:
        return _alone(site)
    return tuple(sorted((*sites, site)))


def _without(sites: _Sites, site: RouterId) -> _Sites:
    if site not in sites:
        return sites
    at = sites.index(site)
    return sites[:at] + sites[at + 1 :]


def _merge(one: _Sites, other: _Sites) -> _Sites:
    return tuple(sorted({*one, *other}))
