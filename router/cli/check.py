"""``router check``: validates a configuration and says what each route really gives."""

import json
from typing import NoReturn

import click

from router.cli.output import LINE_MOST, tell
from router.model.text import shown
from router.routes.promise import Flow, Promise
from router.routes.route import Route
from router.service.config import ConfigError, RouterConfig, json_schema
from router.service.credentials import load_usable

BAD_CONFIGURATION = 2
"""Exit code for bad usage and configuration."""

DEFAULT_CONFIG = "router.yaml"


@click.command("check")
@click.argument("config", default=DEFAULT_CONFIG, type=click.Path())
@click.option(
    "--schema", is_flag=True, help="Print the JSON Schema of the file instead; default: off."
)
def command(config: str, schema: bool) -> None:
    """Validate CONFIG and print each route with the guarantee it really gives, and why.

    CONFIG is a YAML file; default: router.yaml. Exits with 0, or with 2 and a line
    file:line:column: problem for each problem on standard error.
    """
    if schema:
        click.echo(json.dumps(json_schema(), indent=2))
        return
    report(load_or_exit(config))


def load_or_exit(config: str) -> RouterConfig:
    """Loads a file; prints its problems on standard error and exits with 2 if it has any."""
    try:
        return load_usable(config)
    except ConfigError as error:
        exit_with(error)


def exit_with(error: ConfigError) -> NoReturn:
    """Prints the problems, one a line, and ends the program."""
    for problem in error.problems:
        tell(str(problem), err=True)
    raise SystemExit(BAD_CONFIGURATION)


def report(config: RouterConfig) -> None:
    """Prints a configuration's routes and their guarantees."""
    counts = (
        _count(len(config.routes), "route"),
        _count(len(config.containers), "container"),
        _count(len(config.listeners), "listener"),
    )
    tell(f"{config.file}: {', '.join(counts)}")
    for route, promised in zip(config.routes, config.promises, strict=True):
        click.echo()
        click.echo(describe_route(route))
        for line in describe_promise(promised):
            click.echo(f"  {line}")
    for note in config.notes:
        tell("", f"note: {note}")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def describe_route(route: Route) -> str:
    """Returns a route's heading: name, address, distribution and place in the file."""
    name = click.style(shown(route.name), bold=True)
    address = "" if route.name == route.address else f" {shown(route.address)}"
    return f"{name}{address} ({route.distribution}, {route.position})"


def describe_promise(promised: Promise) -> list[str]:
    """Returns the lines with the guarantee of each of a route's flows, and the reasons."""
    lines = []
    for flow in promised.flows:
        lines.append(f"{shown(flow.path, LINE_MOST)}: {_worth(flow, promised)}")
        lines += (f"  {shown(reason, LINE_MOST)}" for reason in flow.reasons)
    return lines


def _worth(flow: Flow, promised: Promise) -> str:
    if flow.gives is promised.asked:
        return click.style(flow.gives, fg="green")
    return f"{click.style(flow.gives, fg='yellow')}, though {promised.asked} is asked for"
