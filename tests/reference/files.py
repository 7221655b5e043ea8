"""Every file that is made from the code: pages, manual pages, completions, the schema."""

import json
from functools import cache
from pathlib import Path
from typing import Final

from router.service.config import json_schema
from tests.reference.commands import commands_page, completions
from tests.reference.errors import errors_page
from tests.reference.events import events_page
from tests.reference.manual import pages
from tests.reference.metrics import metrics_page
from tests.reference.options import options_page

PAGES: Final = Path("docs/reference")
SHARE: Final = Path("share")


@cache
def files() -> dict[Path, str]:
    """Returns the text of every file, by its path."""
    made = {
        PAGES / "options.md": options_page(),
        PAGES / "commands.md": commands_page(),
        PAGES / "metrics.md": metrics_page(),
        PAGES / "log-events.md": events_page(),
        PAGES / "errors.md": errors_page(),
        SHARE / "router/router.schema.json": json.dumps(json_schema(), indent=2) + "\n",
    }
    made.update((SHARE / "man" / place, text) for place, text in pages())
    made.update((SHARE / place, text) for place, text in completions())
    return made


def write() -> None:
    """Writes every file, and removes pages of commands that are gone."""
    made = files()
    for path, text in made.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for path in SHARE.rglob("*"):
        if path.is_file() and path not in made:
            path.unlink()
