"""``router top``: shows the output of ``router status`` live."""

import contextlib
import time
from pathlib import Path
from typing import Any

import click

from router.cli.admin import AdminClient, AdminError, admin_options, find_endpoint
from router.cli.interrupts import until_interrupted
from router.cli.status import PAGE_MOST


@click.command("top")
@admin_options
@click.option(
    "--every",
    metavar="SECONDS",
    type=click.FloatRange(min=0.5),
    default=2.0,
    show_default=True,
    help="Interval between updates.",
)
@click.option(
    "--count",
    metavar="LOOKS",
    type=click.IntRange(min=1),
    help="End after this many updates; default: with Ctrl-C.",
)
def command(
    *, admin: str | None, token: str | None, config: Path | None, every: float, count: int | None
) -> None:
    """Watch a running router: what is wrong, its busiest routes, its containers; Ctrl-C ends.

    A router that does not answer for a while is asked again.
    """
    client = AdminClient(find_endpoint(admin, token, config))
    with until_interrupted(), contextlib.closing(client):
        _watch(client, every, count)


def _watch(client: AdminClient, every: float, count: int | None) -> None:
    from rich.live import Live  # noqa: PLC0415  starts in a third of the time without

    looks = 0
    with Live(auto_refresh=False, screen=count is None) as live:
        while count is None or looks < count:
            if looks:
                time.sleep(every)
            looks += 1
            live.update(_look(client, live.console), refresh=True)


def _look(client: AdminClient, console: Any) -> Any:

    from rich.text import Text  # noqa: PLC0415  as above

    from router.cli import screen  # noqa: PLC0415  as above

    try:
        overview = client.get("overview", most=max(1, min(PAGE_MOST, console.height)))
    except AdminError as error:
        lines = (screen.escaped(line, "bold red") for line in (error.reason, *error.advice))
        return Text("\n").join(lines)
    return screen.overview(console, overview, console.height)
