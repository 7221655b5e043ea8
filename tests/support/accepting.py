"""The core's answer to a peer's attach that takes it as it is."""

from typing import Any

from router.model.commands import AttachLink
from router.model.events import LinkAttached


def accepting(event: LinkAttached, **changes: Any) -> AttachLink:
    """Accepts an attach with its own name, role and termini.

    Args:
        event: the attach.
        changes: further fields of the answer.
    """
    return AttachLink(
        link=event.link,
        name=event.name,
        role=event.role,
        source=event.source,
        target=event.target,
        **changes,
    )
