"""How this protocol meets AMQP 1.0: the functions that ``router.wire.hub`` looks for.

What goes where: docs/translation-fast.md.
"""

from router.wire.fast.downward import from_message
from router.wire.fast.upward import to_message

to_sections = to_message
from_sections = from_message

__all__ = ["from_sections", "to_sections"]
