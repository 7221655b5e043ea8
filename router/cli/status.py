"""``router status``: shows the state of a running router, problems first."""

from pathlib import Path
from typing import Any, Final

import click

from router.cli.admin import FAILED, AdminClient, admin_options, asking, find_endpoint
from router.cli.output import make_console, print_json

PAGE_MOST: Final = 500

WIDTH_ELSEWHERE: Final = 160
"""Width without a terminal."""

PROBLEMS_SHOWN: Final = 50


@click.command("status")
@admin_options
@click.option("--all", "show_all", is_flag=True, help="Show everything; default: what fits.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON; default: tables for people.")
@click.option(
    "--check",
    is_flag=True,
    help="Print only what is wrong; exit with 1 while the router is neither ready nor a standby, or"
    " a problem is an error; default: exit with 0.",
)
def command(
    *,
    admin: str | None,
    token: str | None,
    config: Path | None,
    show_all: bool,
    as_json: bool,
    check: bool,
) -> None:
    """Show the state of a running router: what is wrong first, then its routes and containers.

    On a terminal it shows as much as fits the screen, the worst and the busiest first. With more
    than 20 routes those at rest are only counted.
    """
    with asking(find_endpoint(admin, token, config)) as client:
        overview = client.get("overview", most=PAGE_MOST)
        if show_all:
            add_rest(client, overview)
    if as_json:
        print_json(overview, indent=2)
    elif check:
        show_problems(overview, show_all=show_all)
    else:
        show(overview, show_all=show_all)
    if check and overview["status"]["is_broken"]:
        raise SystemExit(FAILED)


def add_rest(client: AdminClient, overview: Any) -> None:
    """Adds to an overview the problems, routes and containers that it has left out."""
    if overview["hidden_problems"]:
        overview["status"] = client.get("status")
        overview["hidden_problems"] = 0
    for kind in ("routes", "containers"):
        if not overview[f"hidden_{kind}"]:
            continue
        known = {each["name"] for each in overview[kind]}
        after = None
        while True:
            page = client.get(kind, limit=PAGE_MOST, after=after)
            overview[kind] += [each for each in page[kind] if each["name"] not in known]
            after = page["next"]
            if after is None:
                break
        overview[f"hidden_{kind}"] = 0
    overview["hidden_states"] = {}


def show_problems(overview: Any, *, show_all: bool) -> None:
    """Prints the heading and the problems alone."""
    from router.cli import screen  # noqa: PLC0415  as below

    console = make_console(WIDTH_ELSEWHERE)
    status, unlisted = overview["status"], overview["hidden_problems"]
    most = len(status["problems"]) if show_all else PROBLEMS_SHOWN
    console.print(screen.heading(status, unlisted))
    console.print(screen.problems(status, most, unlisted))


def show(overview: Any, *, show_all: bool) -> None:
    """Prints an overview."""
    from router.cli import screen  # noqa: PLC0415  starts in a third of the time without

    console = make_console(WIDTH_ELSEWHERE)
    fits = console.is_terminal and not show_all
    console.print(
        screen.overview(console, overview, console.height if fits else None, show_all=show_all)
    )
