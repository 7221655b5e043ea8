"""How this protocol meets AMQP 1.0: the functions that ``router.wire.hub`` looks for.

What goes where: docs/translation-0-10.md.
"""

from router.wire.v0_10.downward import from_message
from router.wire.v0_10.quick import quick_downward, quick_upward
from router.wire.v0_10.upward import to_message

to_sections = to_message
from_sections = from_message
quick_to_sections = quick_upward
quick_from_sections = quick_downward

__all__ = ["from_sections", "quick_from_sections", "quick_to_sections", "to_sections"]
