"""``router reload``: applies a changed configuration file."""

from http import HTTPStatus
from pathlib import Path
from typing import Any

import click

from router.cli.admin import BAD_USAGE, AdminError, admin_options, asking, fail, find_endpoint
from router.cli.output import tell


@click.command("reload")
@admin_options
def command(*, admin: str | None, token: str | None, config: Path | None) -> None:
    """Let a running router read its file anew, and print the difference.

    A file with problems changes nothing: they are printed as `router check` prints them, and the
    exit code is 2. Unsettled deliveries of an exactly-once route that is gone stay in the journal
    and are gone on with when there is a route for their address again.
    """
    with asking(find_endpoint(admin, token, config)) as client:
        try:
            done = client.post("reload")
        except AdminError as error:
            if error.status == HTTPStatus.CONFLICT:
                fail(*error.reason.split("\n"), code=BAD_USAGE)
            raise
    differences = done["differences"]
    for each in differences:
        tell(_describe(each))
    if not differences:
        click.echo("nothing has changed")


def _describe(difference: Any) -> str:
    sign = {"added": "+", "removed": "-", "changed": "~"}[difference["change"]]
    name = "" if difference["name"] is None else f" {difference['name']}"
    options = f": {', '.join(difference['options'])}" if difference["options"] else ""
    waits = " (waits for a restart)" if difference["waits_for_restart"] else ""
    count = difference["kept"]
    deliveries = "1 unsettled delivery is" if count == 1 else f"{count} unsettled deliveries are"
    kept = f" ({deliveries} kept until there is a route again)" if count else ""
    return f"{sign} {difference['section']}{name}{options}{waits}{kept}"
