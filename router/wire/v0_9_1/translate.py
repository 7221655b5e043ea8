"""Translation between this protocol and AMQP 1.0: the functions used by ``router.wire.hub``.

What goes where: docs/translation-0-9-1.md.
"""

from router.wire.v0_9_1.from_sections import from_message
from router.wire.v0_9_1.quick_from_sections import quick_from_sections as slow_from_sections
from router.wire.v0_9_1.quick_to_sections import quick_to_sections as slow_to_sections
from router.wire.v0_9_1.to_sections import to_message
from router.wire.v0_9_1.twins import chosen

to_sections = to_message
from_sections = from_message
quick_to_sections = chosen("quick_to_sections", slow_to_sections)
quick_from_sections = chosen("quick_from_sections", slow_from_sections)

__all__ = ["from_sections", "quick_from_sections", "quick_to_sections", "to_sections"]
