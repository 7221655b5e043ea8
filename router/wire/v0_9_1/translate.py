"""How this protocol meets AMQP 1.0: the functions that ``router.wire.hub`` looks for.

What goes where: docs/translation-0-9-1.md.
"""

from router.wire.v0_9_1.downward import from_message
from router.wire.v0_9_1.quick_downward import quick_downward
from router.wire.v0_9_1.quick_upward import quick_upward
from router.wire.v0_9_1.twins import chosen
from router.wire.v0_9_1.upward import to_message

to_sections = to_message
from_sections = from_message
quick_to_sections = chosen("quick_upward", quick_upward)
quick_from_sections = chosen("quick_downward", quick_downward)

__all__ = ["from_sections", "quick_from_sections", "quick_to_sections", "to_sections"]
