"""Of which addresses the message store has messages, or may have.

The store speaks by its links: before its connection opens it attaches one for each address with
messages, and one before it accepts a message; it ends that when nothing of the address is left
(``net.store``). So while it is connected, an address without such a link has nothing stored. While
it is away, what it does not say is no answer::

    it is away           what it may have messages of
    since the start      any address, until it has been awaited long enough
    since it was lost    the addresses of which it had some then
"""

from itertools import chain

from router.core.node import Direction, Node, NodeKey
from router.core.state import State
from router.core.stored import STORE
from router.core.uplinks import Uplinks
from router.links.link import OutgoingLink


class Held:
    """Knows of which addresses the store has messages, or may have.

    Attributes:
        is_awaited: the store has not said anything since the start, and is awaited still.
    """

    def __init__(self, state: State, uplinks: Uplinks) -> None:
        self._registry = state.registry
        self._uplinks = uplinks
        self._addresses: set[str] = set()
        self._unsaid: set[str] = set()
        self._was_there = False
        self.is_awaited = False

    def await_store(self) -> None:
        """Records that there is a store, and that it has not said anything yet."""
        self.is_awaited = True

    def end_wait(self) -> bool:
        """Takes the store's silence for an answer; returns whether it was silent until now."""
        was_silent = self.is_awaited or bool(self._unsaid)
        self.is_awaited = False
        self._unsaid.clear()
        return was_silent

    def look(self) -> bool:
        """Finds out whether the store is there; called before a turn's nodes are reviewed.

        Returns:
            Whether it has come, so that all is known again.
        """
        is_there = self._uplinks.is_connected(STORE)
        if self._was_there and not is_there:
            self._unsaid |= self._addresses
        self._was_there = is_there
        return is_there and self.end_wait()

    def follow(self, node: Node) -> bool:
        """Records whether a node ``STORED`` is sent messages; returns whether that is news."""
        address = node.key.address
        if bool(node.feeds) is (address in self._addresses):
            return False
        self._addresses ^= {address}
        return True

    def may_have(self, address: str) -> bool:
        """Returns whether the store may have messages of an address that it has accepted."""
        if self.is_awaited or address in self._unsaid:
            return True
        stored = self._registry.nodes.get(NodeKey(address, Direction.STORED))
        return stored is not None and bool(stored.feeds)  # perhaps since this turn

    def is_held(self, node: Node) -> bool:
        """Returns whether something of a node's address is stored, or about to be."""
        if self.may_have(node.key.address):
            return True
        links = self._uplinks.links_of(node)
        return any(isinstance(x, OutgoingLink) and x.keeps and is_waiting(x) for x in links)


def is_waiting(link: OutgoingLink) -> bool:
    """Returns whether a link has deliveries whose outcome is not known."""
    deliveries = chain(link.unsettled.values(), link.adrift.values())
    return any(pairing.outcome is None for pairing in deliveries)
