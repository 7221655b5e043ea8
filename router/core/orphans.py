"""Deliveries that outlive their sender's link, and the tags that they keep towards their targets.

A sender that comes back without its unsettled map may reuse tags that are still unsettled here
(§2.6.12 requires tags to be unique among what is unsettled, and the sender knows of nothing). The
earlier deliveries may be unsettled at a target, or in doubt for a person to decide; there two
deliveries with one tag would be taken for one. So as long as one of them is under way, the next
link of that name derives its tags (``links/tags``) as another link would.

A link whose sender left nothing under way derives its tags from its names alone, so they are the
same after a restart of this router.
"""

from collections.abc import Callable, Iterable
from typing import Final

from router.core.node import Feed, feed_of
from router.links.link import IncomingLink, LinkKey
from router.links.pairing import Pairing
from router.links.tags import tag_prefix

SWEEP_LINKS: Final = 1024
"""Links with orphans from which on the ended ones are swept out."""


class Orphans:
    """Remembers the deliveries that ended links have left under way."""

    def __init__(self, make_life: Callable[[], str]) -> None:
        """Begins with none.

        Args:
            make_life: gives names of attachments that no other has, in this process or another.
        """
        self._make_life = make_life
        self._left: dict[LinkKey, list[Pairing]] = {}
        self._look_at: dict[LinkKey, int] = {}
        self._sweep_at = SWEEP_LINKS

    def leave(self, link: IncomingLink, pairings: Iterable[Pairing]) -> None:
        """Records deliveries that go on without their link."""
        left = [pairing for pairing in pairings if feed_of(pairing).node.is_exact]
        if not left:
            return
        kept = self._left.setdefault(link.key, [])
        if len(kept) > self._look_at.get(link.key, 0):
            kept[:] = _under_way(kept)
            self._look_at[link.key] = 2 * len(kept)
        kept += left
        if len(self._left) > self._sweep_at:
            self._left = {
                key: left for key, left in self._left.items() if any(map(_is_under_way, left))
            }
            self._look_at = {key: self._look_at.get(key, 0) for key in self._left}
            self._sweep_at = max(SWEEP_LINKS, 2 * len(self._left))

    def prefix(self, key: LinkKey) -> bytes:
        """Returns what the derived tags of a link begin with that is not resumed."""
        left = self._left.get(key, ())
        if any(map(_is_under_way, left)):
            life = self._make_life()
        else:
            self._left.pop(key, None)
            self._look_at.pop(key, None)
            life = ""
        return tag_prefix(key.container, key.name, key.user, key.vhost, life=life)


def _under_way(pairings: Iterable[Pairing]) -> list[Pairing]:
    """Returns the deliveries that ``_is_under_way``; each queue is walked once."""
    waiting: dict[Feed, set[Pairing]] = {}
    found: list[Pairing] = []
    for pairing in pairings:
        feed = feed_of(pairing)
        if feed not in waiting:
            waiting[feed] = set(feed.waiting)
        if pairing in waiting[feed] or _is_sent(pairing):
            found.append(pairing)
    return found


def _is_under_way(pairing: Pairing) -> bool:
    """Returns whether a delivery is at a receiver, in doubt there, or waits for one."""
    return _is_sent(pairing) or pairing in feed_of(pairing).waiting


def _is_sent(pairing: Pairing) -> bool:
    return pairing.outgoing is not None or bool(pairing.fan is not None and pairing.fan.branches)
