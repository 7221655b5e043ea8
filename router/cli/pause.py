"""``router pause`` and ``router resume``: pause and resume a route."""

from pathlib import Path

import click

from router.cli.admin import admin_options, asking, find_endpoint, segment
from router.cli.output import TEXT, print_lines


@click.command("pause")
@click.argument("route", type=TEXT)
@admin_options
def pause(*, route: str, admin: str | None, token: str | None, config: Path | None) -> None:
    """Let nothing move any more on ROUTE, given by its name, until `router resume`.

    Its senders get no credit, what has come waits, what has gone out is answered as ever. Nothing
    is detached and nothing is lost. The pause outlives reloads, not a restart.
    """
    with asking(find_endpoint(admin, token, config)) as client:
        paused = client.post(f"routes/{segment(route)}/pause")
    waiting = paused["queued"]
    more = f"; {waiting} deliveries wait" if waiting else ""
    print_lines(f"route {paused['name']} is paused{more}")


@click.command("resume")
@click.argument("route", type=TEXT)
@admin_options
def resume(*, route: str, admin: str | None, token: str | None, config: Path | None) -> None:
    """Let a paused ROUTE, given by its name, go on."""
    with asking(find_endpoint(admin, token, config)) as client:
        resumed = client.post(f"routes/{segment(route)}/resume")
    print_lines(f"route {resumed['name']} is resumed")
