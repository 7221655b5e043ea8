"""``router reload``: applies a changed configuration file."""

from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import attrs
import click

from router.cli.admin import BAD_USAGE, AdminError, admin_options, asking, fail, find_endpoint
from router.cli.output import print_lines

RELOAD_SECONDS: Final = 900.0
"""How long a reload may take; the router sets it no limit."""

_SIGNS: Final = {"added": "+", "removed": "-", "changed": "~"}

_LATE: Final = (
    "a reload that it has begun goes on: 'config.reloaded' in its log says when it is done"
)


@click.command("reload")
@admin_options
@click.option(
    "--dry-run",
    is_flag=True,
    help="Print what a reload would change, with its effects, and change nothing; default: off.",
)
def command(*, admin: str | None, token: str | None, config: Path | None, dry_run: bool) -> None:
    """Let a running router read its file anew, and print the differences with their effects.

    A file with problems changes nothing: they are printed as `router check` prints them, and
    the exit code is 2; at a router that drains, or is a standby, it is 1. Unsettled deliveries
    of an exactly-once route that is gone stay in the journal and are gone on with when there is
    a route for their address again.
    """
    endpoint = find_endpoint(admin, token, config)
    whoever = attrs.evolve(endpoint, router=None)  # it reads its own file, where the id may differ
    with asking(whoever, RELOAD_SECONDS) as client:
        try:
            done = client.post("reload?dry_run=true" if dry_run else "reload")
        except AdminError as error:
            if error.status == HTTPStatus.CONFLICT:
                fail(*error.reason.split("\n"), code=BAD_USAGE)
            if error.is_late and not dry_run:
                fail(error.reason, _LATE)
            raise
    differences = done["differences"]
    left = done["total"] - len(differences)
    for each in differences:
        print_lines(_describe(each), *(f"    {effect}" for effect in each["effects"]))
    if left:
        click.echo(f"and {left:,} more")
    for reason in done.get("refused", ()):
        print_lines(f"an older certificate stays in use: {reason}")
    click.echo(_conclude(done, dry_run=dry_run))


def _conclude(done: Any, *, dry_run: bool) -> str:
    """Returns the last line."""
    if not done["total"]:
        return "a reload would change nothing" if dry_run else "nothing has changed"
    parts = [f"{done[change]:,} {change}" for change in _SIGNS if done[change]]
    parts += [f"{done['waiting']:,} waiting for a restart"] * bool(done["waiting"])
    counts = ", ".join(parts)
    if dry_run:
        return f"a reload would do this: {counts}; nothing was changed"
    return f"reloaded: {counts}"


def _describe(difference: Any) -> str:
    sign = _SIGNS[difference["change"]]
    name = "" if difference["name"] is None else f" {difference['name']}"
    options = f": {', '.join(difference['options'])}" if difference["options"] else ""
    waits = " (waits for a restart)" if difference["waits_for_restart"] else ""
    count = difference["kept"]
    deliveries = "1 unsettled delivery is" if count == 1 else f"{count} unsettled deliveries are"
    kept = f" ({deliveries} kept until there is a route again)" if count else ""
    return f"{sign} {difference['section']}{name}{options}{waits}{kept}"
