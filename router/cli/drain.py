"""``router drain``: ends a router without losing deliveries, or hands its lease to a standby."""

import time
from pathlib import Path
from typing import Any, Final

import click

from router.cli.admin import FAILED, AdminClient, AdminError, admin_options, asking, find_endpoint
from router.cli.output import print_lines

_LOOK_SECONDS: Final = 0.2
_SILENT_SECONDS: Final = 30.0
"""A router that is to go on as a standby and does not answer for so long has failed."""


@click.command("drain")
@admin_options
@click.option(
    "--wait/--no-wait",
    default=True,
    show_default=True,
    help="Return when the router has ended, or as soon as it drains.",
)
@click.option(
    "--to-standby",
    is_flag=True,
    help="Let the standby lead: the router drains, releases the lease, and waits as a standby;"
    " default: the router ends.",
)
def command(
    *, admin: str | None, token: str | None, config: Path | None, wait: bool, to_standby: bool
) -> None:
    """Let a running router finish what is under way, take nothing new, and end.

    It gives itself router.drain_seconds; what is not finished by then stays unsettled. With
    --to-standby another router leads within a second after that; if none does within ten, this one
    leads again, and the command fails.
    """
    with asking(find_endpoint(admin, token, config)) as client:
        status = client.post("drain?to_standby=true" if to_standby else "drain")
        connections, unsettled = status["connections"], status["unsettled"]
        print_lines(f"{status['id']} drains: {connections} connections, {unsettled} unsettled")
        if wait and to_standby:
            _wait_for_leader(client, status["lease"]["epoch"])
        elif wait:
            _wait_for_end(client)
            click.echo("it has ended")


def _wait_for_leader(client: AdminClient, epoch: int) -> None:
    """Waits until the lease has been taken, and says by whom."""
    heard_at = time.monotonic()
    while True:
        try:
            status = client.get("status")
        except AdminError as error:  # it begins anew
            if error.status is None and time.monotonic() - heard_at > _SILENT_SECONDS:
                raise
        else:
            heard_at = time.monotonic()
            lease = status["lease"]
            if not status["is_draining"] and lease is not None and lease["epoch"] > epoch:
                _tell_leader(lease)
                return
        time.sleep(_LOOK_SECONDS)


def _tell_leader(lease: Any) -> None:
    if lease["leads"]:
        click.echo(
            "router drain: no standby has taken the lease: this router leads again", err=True
        )
        raise SystemExit(FAILED)
    print_lines(f"the router on {lease['place']} leads; this one is its standby")


def _wait_for_end(client: AdminClient) -> None:
    while True:
        try:
            client.get("log-level")
        except AdminError as error:
            if error.status is None:
                return
        time.sleep(_LOOK_SECONDS)
