"""``router explain``: which route an address takes, and why."""

from pathlib import Path

import click

from router.cli.admin import DEFAULT_CONFIG
from router.cli.check import describe_promise, load_or_exit
from router.cli.mesh import show_ways
from router.cli.output import TEXT, print_lines
from router.model.text import shown
from router.routes.route import Endpoint, Route
from router.routes.table import Explanation, Match
from router.service.config import RouterConfig

NO_ROUTE = 1
"""Exit code if no route's address matches."""


@click.command("explain")
@click.argument("config", type=click.Path())
@click.argument("address", type=TEXT, required=False)
@click.option(
    "--mesh",
    is_flag=True,
    help="Ask a running router which ways a message to ADDRESS may take to other sites; CONFIG, its"
    f" file, may be left out, then it is {DEFAULT_CONFIG}, if there is one.",
)
def command(config: str, address: str | None, *, mesh: bool) -> None:
    """Print the route that ADDRESS takes under CONFIG, and the rule that won.

    Exits with 0; with 1 if no route matches; with 2 if CONFIG has problems, which are printed as
    `router check` prints them.
    """
    if mesh:
        if address is None:
            show_ways(None, TEXT.convert(config, None, None))
        else:
            show_ways(Path(config), address)
        return
    if address is None:
        raise click.UsageError("Missing argument 'ADDRESS'.")
    loaded = load_or_exit(config)
    explanation = loaded.table.explain(address)
    if explanation.match is None:
        print_lines(
            _row("address", shown(address)),
            _row("route", f"none: {explanation.rule}; links to it are refused (not-found)"),
        )
        raise SystemExit(NO_ROUTE)
    for name, value in _rows(loaded, explanation, explanation.match):
        click.echo(_row(name, value))


def _row(name: str, value: str) -> str:
    return f"{name:<13} {value}"


def _rows(config: RouterConfig, explanation: Explanation, match: Match) -> list[tuple[str, str]]:
    route = match.route
    rows = [
        ("address", shown(match.address)),
        ("route", _place(route)),
        ("rule", explanation.rule),
        *(("not", f"{_place(each.route)}: {each.reason}") for each in explanation.beaten),
    ]
    if route.from_ is not None:
        rows.append(("pulled from", _there(match, route.from_)))
    rows += (("goes to", _there(match, each)) for each in route.to)
    if not route.to:
        rows.append(("goes to", "receivers attached here"))
    if route.fallback is not None:
        there = _there(match, route.fallback)
        rows.append(("fallback", f"{there}, while nobody receives; pulled back afterwards"))
    rows.append(("distribution", route.distribution))
    rows.append(("unroutable", route.unroutable))
    promised = config.promises[config.routes.index(route)]
    rows += (("guarantee", line) for line in describe_promise(promised))
    return rows


def _there(match: Match, endpoint: Endpoint) -> str:
    return shown(f"{endpoint.container}/{match.address_at(endpoint)}")


def _place(route: Route) -> str:
    name = "" if route.name == route.address else f"{shown(route.name)}: "
    return f"{name}{shown(route.address)} ({route.position})"
