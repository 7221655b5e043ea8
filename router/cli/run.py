"""``router run``: the router itself."""

from pathlib import Path

import click

from router.cli.check import DEFAULT_CONFIG, exit_with
from router.service.signals import kept


@click.command("run")
@click.argument("config", default=DEFAULT_CONFIG, type=click.Path(path_type=Path))
@click.option(
    "--wait-for",
    metavar="CONTAINER",
    multiple=True,
    help="Container that must be connected before the router says router.ready; may be given"
    " several times; default: those of router.wait_for in CONFIG.",
)
def command(config: Path, wait_for: tuple[str, ...]) -> None:
    """Run the router in the foreground.

    CONFIG is a YAML file; default: router.yaml. The log says router.ready when every listener
    accepts. SIGTERM lets deliveries finish and ends with 0, a second one ends at once; SIGHUP
    reads CONFIG again and applies what differs. Started again while it runs, with the same
    router.id and router.state, it takes the place of the process that is there, without a gap.
    """
    with kept() as signals:
        from router.service.config import ConfigError  # noqa: PLC0415  --help starts in a tenth
        from router.service.credentials import load_usable  # noqa: PLC0415  of the time without
        from router.service.run import run  # noqa: PLC0415  these

        try:
            raise SystemExit(run(lambda: load_usable(config), wait_for, signals))
        except ConfigError as error:
            exit_with(error)
