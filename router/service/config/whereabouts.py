"""Finds a router's admin endpoint in its file without reading the other sections.

Commands that talk to a running router need one section only, and are often run where the secrets of
the other sections are not available.
"""

import os
from pathlib import Path

from router.service.config.document import Entries, parse_document
from router.service.config.kinds import Reading
from router.service.config.options import Section
from router.service.config.problems import ConfigError
from router.service.config.process import Admin, Router
from router.service.config.references import Sources

_SECTION = "router"


def find_admin(path: Path) -> Admin | None:
    """Reads section ``router`` of a file; None: the endpoint is turned off.

    Raises:
        ConfigError: ``router.admin`` cannot be read.
        OSError: the file cannot be read.
    """
    reading = Reading(Sources(os.environ, path.parent))
    root = parse_document(path.read_text("utf-8-sig"), str(path), reading.problems.append)
    if not isinstance(root, Entries) or _SECTION not in root.entries:
        return Admin()
    node = root.entries[_SECTION][1]
    router = Section(Router).read(node, _SECTION, reading)
    problems = [each for each in reading.problems if each.problem.startswith("router.admin")]
    if problems:
        raise ConfigError(problems)
    return router.admin
