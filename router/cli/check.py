"""``router check``: validates a configuration and says what each route really gives."""

import json
import time
from collections.abc import Iterable
from typing import Final, NoReturn

import click
import trio

from router.cli.output import LINE_MOST, print_lines
from router.model.text import shown
from router.routes.promise import Flow, Promise
from router.routes.route import Route
from router.service import inquiry
from router.service.certificates import certificate_notes
from router.service.config import ConfigError, Problem, RouterConfig, json_schema
from router.service.credentials import load_usable
from router.service.journal import stores_on_postgres
from router.service.surroundings import address_notes, state_notes, store_problems

FAILED = 1
"""Exit code for what is not there."""

BAD_CONFIGURATION = 2
"""Exit code for bad usage and configuration."""

DEFAULT_CONFIG = "router.yaml"


@click.command("check")
@click.argument("config", default=DEFAULT_CONFIG, type=click.Path())
@click.option(
    "--schema", is_flag=True, help="Print the JSON Schema of the file instead; default: off."
)
@click.option(
    "--connect",
    is_flag=True,
    help="Dial each container and look for the addresses that routes name there; nothing is sent,"
    " received or made; default: off.",
)
@click.option(
    "--here",
    is_flag=True,
    help="Also note which addresses of listeners and admin endpoint are in use on this machine;"
    " they are while the router runs; default: off.",
)
@click.option(
    "--seconds",
    metavar="SECONDS",
    type=click.FloatRange(min=0, min_open=True),
    default=inquiry.SECONDS,
    show_default=True,
    help="Time limit of --connect for each URL.",
)
def command(config: str, schema: bool, connect: bool, here: bool, seconds: float) -> None:
    """Validate CONFIG and print each route with the guarantee it really gives, and why.

    CONFIG is a YAML file; default: router.yaml. Exits with 0, or with 2 and a line
    file:line:column: problem for each problem on standard error. A journal that router journal move
    has brought to another store than CONFIG names is a problem, too.

    With --connect, prints a line for each container and each address instead: what is there on
    standard output; what is not, and what to do, on standard error. Exits with 1 if anything is
    not there.
    """
    if schema:
        click.echo(json.dumps(json_schema(), indent=2))
    elif connect:
        _connect(load_or_exit(config), seconds)
    else:
        loaded = load_or_exit(config)
        if problems := tuple(store_problems(loaded)):
            exit_with(ConfigError(problems))
        report(loaded, tuple(address_notes(loaded)) if here else ())


def _connect(config: RouterConfig, seconds: float) -> None:
    """Prints what the containers say, and exits with 1 if a problem is among it."""
    findings = trio.run(inquiry.inquire, config, seconds)
    for finding in findings:
        print_lines(str(finding), err=finding.is_problem)
    problems = sum(finding.is_problem for finding in findings)
    counts = _count(len(config.containers), "container"), _count(problems, "problem")
    print_lines(f"{config.file}: {' dialed, '.join(counts)}")
    if problems:
        raise SystemExit(FAILED)


def load_or_exit(config: str) -> RouterConfig:
    """Loads a file; prints its problems on standard error and exits with 2 if it has any."""
    try:
        return load_usable(config)
    except ConfigError as error:
        exit_with(error)


def exit_with(error: ConfigError) -> NoReturn:
    """Prints the problems, one a line, and ends the program."""
    for problem in error.problems:
        print_lines(str(problem), err=True)
    raise SystemExit(BAD_CONFIGURATION)


SURVIVES: Final = (
    "the journal is on PostgreSQL: what it promises survives this process and this machine; whether"
    " it survives the database's host, `router check --connect` says"
)
GOES_ON: Final = (
    "a router with the same file on another machine goes on by itself, some five seconds after this"
    " one is lost, hangs, or is cut off from the database"
)
IS_STARTED: Final = (
    "another machine goes on when a router is started there; with router.journal.standby, by itself"
)
STORED: Final = (
    "messages of routes with store are beside the journal: what was accepted is in the database,"
    " and whoever takes over forwards it"
)
STAYS: Final = "on the disk of this machine all the same, and no other router has them"
UNAVAILABLE: Final = "unavailable: whoever attaches to one of its addresses is refused"


def report(config: RouterConfig, found: Iterable[Problem] = ()) -> None:
    """Prints a configuration's routes and their guarantees.

    Args:
        config: the configuration.
        found: notes beside those on the file and the state directory.
    """
    counts = (
        _count(len(config.routes), "route"),
        _count(len(config.containers), "container"),
        _count(len(config.listeners), "listener"),
    )
    print_lines(f"{config.file}: {', '.join(counts)}")
    for route, promised in zip(config.routes, config.promises, strict=True):
        click.echo()
        click.echo(describe_route(route))
        lines = [UNAVAILABLE] if route.is_unavailable else describe_promise(promised)
        for line in lines:
            click.echo(f"  {line}")
    if config.router.journal.store is not None:
        print_lines("", SURVIVES, GOES_ON if config.router.journal.standby else IS_STARTED)
        print_lines(*_where_the_rest_is(config))
    due = certificate_notes(config, time.time())
    for note in (*config.notes, *state_notes(config), *due, *found):
        print_lines("", f"note: {note}")


def _where_the_rest_is(config: RouterConfig) -> list[str]:
    """Returns what is beside the journal, and what is not."""
    routes, stored = config.table.routes, stores_on_postgres(config)
    left = ["messages of routes with store"] if not stored else []
    if not any(route.store is not None for route in routes):
        left = []
    if any(route.archive for route in routes):
        left.append("archives")
    lines = [STORED] if stored else []
    return [*lines, f"{' and '.join(left)} are {STAYS}"] if left else lines


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
