"""``router status``: shows the state of a running router, problems first."""

from pathlib import Path
from typing import Any, Final

import click

from router.cli.admin import admin_options, asking, find_endpoint
from router.cli.output import tell_json

PAGE_MOST: Final = 500

WIDTH_ELSEWHERE: Final = 160
"""Width without a terminal."""


@click.command("status")
@admin_options
@click.option("--all", "show_all", is_flag=True, help="Show everything; default: what fits.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; default: tables for people.")
def command(
    *, admin: str | None, token: str | None, config: Path | None, show_all: bool, as_json: bool
) -> None:
    """Show the state of a running router: what is wrong first, then its routes and containers.

    On a terminal it shows as much as fits the screen, the worst and the busiest first.
    """
    with asking(find_endpoint(admin, token, config)) as client:
        overview = client.get("overview", most=PAGE_MOST)
    if as_json:
        tell_json(overview, indent=2)
    else:
        show(overview, show_all=show_all)


def show(overview: Any, *, show_all: bool) -> None:
    """Prints an overview."""
    from rich.console import Console  # noqa: PLC0415  starts in a third of the time without

    from router.cli import screen  # noqa: PLC0415  as above

    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = WIDTH_ELSEWHERE
    fits = console.is_terminal and not show_all
    console.print(screen.overview(console, overview, console.height if fits else None))
