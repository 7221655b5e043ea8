"""What many have who have nothing: idle connections and links hold no empty queues of their own."""

from collections import deque
from typing import Any, Final

NOTHING: Final[deque[Any]] = deque(maxlen=0)
"""An empty queue that all share; one of its own takes 760 octets. It stays empty, what is appended
is dropped: whoever has something to put there takes a queue of its own first."""
