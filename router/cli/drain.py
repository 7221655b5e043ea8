"""``router drain``: ends a router without losing deliveries."""

import time
from pathlib import Path
from typing import Final

import click

from router.cli.admin import AdminClient, AdminError, admin_options, asking, find_endpoint
from router.cli.output import print_lines

_LOOK_SECONDS: Final = 0.2


@click.command("drain")
@admin_options
@click.option(
    "--wait/--no-wait",
    default=True,
    show_default=True,
    help="Return when the router has ended, or as soon as it drains.",
)
def command(*, admin: str | None, token: str | None, config: Path | None, wait: bool) -> None:
    """Let a running router finish what is under way, take nothing new, and end.

    It gives itself router.drain_seconds; what is not finished by then stays unsettled.
    """
    with asking(find_endpoint(admin, token, config)) as client:
        status = client.post("drain")
        connections, unsettled = status["connections"], status["unsettled"]
        print_lines(f"{status['id']} drains: {connections} connections, {unsettled} unsettled")
        if wait:
            _wait_for_end(client)
            click.echo("it has ended")


def _wait_for_end(client: AdminClient) -> None:
    while True:
        try:
            client.get("log-level")
        except AdminError as error:
            if error.status is None:
                return
        time.sleep(_LOOK_SECONDS)
