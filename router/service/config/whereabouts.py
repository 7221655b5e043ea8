"""Finds a router's admin endpoint in its file without reading the other sections.

Commands that talk to a running router need one section only, and are often run where the secrets of
the other sections are not available.
"""

import os
from pathlib import Path
from typing import Final

import attrs

from router.service.config.document import Entries, parse_document
from router.service.config.kinds import Reading
from router.service.config.options import Section
from router.service.config.problems import ConfigError
from router.service.config.process import Admin, Router
from router.service.config.references import Sources

ROUTER_HEADER: Final = "router-id"
"""Header of a request: the id of the router that it is meant for, percent-encoded."""

_SECTION = "router"


@attrs.frozen
class Whereabouts:
    """Where a router is asked.

    Attributes:
        admin: its admin endpoint; None: that is turned off.
        router: its id; None: the file leaves it to the host that the router runs on.
    """

    admin: Admin | None
    router: str | None = None


def find_admin(path: Path) -> Whereabouts:
    """Reads section ``router`` of a file.

    Raises:
        ConfigError: ``router.admin`` cannot be read.
        OSError: the file cannot be read.
    """
    reading = Reading(Sources(os.environ, path.parent))
    root = parse_document(path.read_text("utf-8-sig"), str(path), reading.problems.append)
    if not isinstance(root, Entries) or _SECTION not in root.entries:
        return Whereabouts(Admin())
    node = root.entries[_SECTION][1]
    router = Section(Router).read(node, _SECTION, reading)
    problems = [each for each in reading.problems if each.problem.startswith("router.admin")]
    if problems:
        raise ConfigError(problems)
    is_named = "id" in router.where.keys and "id" not in router.where.broken
    return Whereabouts(router.admin, router.id if is_named else None)
