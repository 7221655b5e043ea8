"""Shared by the commands of the pipeline: the check of ledgers and of the installed extra."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import click

from router.cli.output import print_lines
from router.errors import RouterError
from router.pipeline.extra import MissingError

FAILED: Final = 1
MISSING: Final = 2


def read_ledgers(
    context: click.Context, parameter: click.Parameter, value: tuple[str, ...]
) -> tuple[str, ...]:
    """Refuses paths that do not exist, before Spark starts; Spark itself checks URLs."""
    for each in value:
        if ":" not in each and not Path(each).exists():
            raise click.BadParameter(f"Path {each!r} does not exist.", context, parameter)
    return value


@contextmanager
def pipeline(need: Callable[[], None]) -> Iterator[None]:
    """Ends the program with one line if the extra is missing (2) or the work fails (1)."""
    try:
        need()
        yield
    except MissingError as error:
        print_lines(f"router: {error}", err=True)
        raise SystemExit(MISSING) from None
    except (RouterError, OSError) as error:
        print_lines(f"router: {error}", err=True)
        raise SystemExit(FAILED) from None
