"""One empty queue for all idle connections and links, which save the memory of their own."""

from collections import deque
from typing import Any, Final

NOTHING: Final[deque[Any]] = deque(maxlen=0)
"""An empty queue that all idle owners share; a queue of one's own takes 760 octets. Appending to
it drops the item, so an owner replaces it by its own queue before it appends."""
