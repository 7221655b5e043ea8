"""The program ``router`` and its commands."""

from pathlib import Path

import click

from router import __version__
from router.cli import (
    check,
    deliveries,
    demo,
    drain,
    explain,
    journal,
    ledger,
    pause,
    receive,
    reload,
    send,
    status,
    top,
    trace,
    user,
)
from router.cli.check import DEFAULT_CONFIG, exit_with


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="router")
def main() -> None:
    """Route and bridge AMQP messages, settlement included.

    Exit codes: 0 done, 1 failed while running, 2 bad usage or configuration.
    """


@main.command("run")
@click.argument("config", default=DEFAULT_CONFIG, type=click.Path(path_type=Path))
@click.option(
    "--wait-for",
    metavar="CONTAINER",
    multiple=True,
    help="Container that must be connected before the router says router.ready; may be given"
    " several times; default: those of router.wait_for in CONFIG.",
)
def run(config: Path, wait_for: tuple[str, ...]) -> None:
    """Run the router in the foreground.

    CONFIG is a YAML file; default: router.yaml. The log says router.ready when every listener
    accepts. SIGTERM lets deliveries finish and ends with 0, a second one ends at once; SIGHUP
    reads CONFIG again and applies what differs.
    """
    from router.service.config import ConfigError, load  # noqa: PLC0415  starts in a tenth of
    from router.service.run import run as run_router  # noqa: PLC0415  the time without these

    try:
        raise SystemExit(run_router(lambda: load(config), wait_for))
    except ConfigError as error:
        exit_with(error)


main.add_command(check.command)
main.add_command(explain.command)
main.add_command(journal.command)
main.add_command(ledger.command)
main.add_command(demo.command)
main.add_command(send.command)
main.add_command(receive.command)
main.add_command(status.command)
main.add_command(top.command)
main.add_command(deliveries.command)
main.add_command(trace.command)
main.add_command(pause.pause)
main.add_command(pause.resume)
main.add_command(drain.command)
main.add_command(reload.command)
main.add_command(user.command)
