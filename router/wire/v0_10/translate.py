"""Translation between this protocol and AMQP 1.0: the functions used by ``router.wire.hub``.

What goes where: docs/translation-0-10.md.
"""

from router.wire.v0_10.from_sections import from_message
from router.wire.v0_10.quick import quick_from_sections, quick_to_sections
from router.wire.v0_10.to_sections import to_message

to_sections = to_message
from_sections = from_message

__all__ = ["from_sections", "quick_from_sections", "quick_to_sections", "to_sections"]
