"""`router journal init` and `router journal move`: the store on PostgreSQL, for operators."""

import importlib.util
import sys
import time
from typing import Final

import click

from router.cli.check import DEFAULT_CONFIG, load_or_exit
from router.errors import reason_of
from router.journal.postgres.url import why_unusable
from router.journal.storage import Storage
from router.service.config import RouterConfig
from router.service.config.references import Secret

FAILED: Final = 1
MISSING: Final = "psycopg is not installed: pip install '.[postgres]' in the folder of the source"


@click.command("init")
@click.argument("config", default=DEFAULT_CONFIG, type=click.Path())
@click.option(
    "--url",
    metavar="URL",
    help="Log in with this URL, of a role that may create a schema; default: router.journal.store.",
)
@click.option(
    "--role",
    metavar="ROLE",
    help="Grant ROLE what the router needs, and nothing more; default: nothing is granted.",
)
def init(config: str, url: str | None, role: str | None) -> None:
    """Make the tables of a journal on PostgreSQL, or bring them to this version.

    CONFIG is the router's file; default: router.yaml. Makes the schema router_journal in the
    database of router.journal.store, and room for the router of router.id. Repeating it changes
    nothing. Run it as the owner of the database, with --url, and let the router log in as another
    role, with --role.

    Exits with 0, with 1 if the database refuses, or with 2 if CONFIG or URL has problems.
    """
    loaded = load_or_exit(config)
    store = store_of(loaded)
    if url is not None and (reason := _why_no_url(url)) is not None:
        raise click.BadParameter(reason, param_hint="--url")
    from router.journal.postgres.storage import init as make  # noqa: PLC0415

    try:
        make(url or store.reveal(), loaded.router.id, role)
    except OSError as error:
        named = "router.journal.store" if url is None else "--url"
        click.echo(f"{named}: {error.strerror or error}", err=True)
        sys.exit(FAILED)
    granted = "" if role is None else f"; role {role} may use them"
    click.echo(f"the tables are ready for router {loaded.router.id}{granted}")


def _why_no_url(url: str) -> str | None:
    if not url.startswith(("postgresql://", "postgres://")):
        return "does not begin with postgresql://"
    return why_unusable(url)


def storage_of(config: str) -> Storage:
    """Returns the store on PostgreSQL of a router's file, or exits if there is none."""
    loaded = load_or_exit(config)
    url = store_of(loaded).reveal()
    from router.journal.postgres.storage import PostgresStorage  # noqa: PLC0415

    return PostgresStorage(url, loaded.router.id)


def store_of(config: RouterConfig) -> Secret:
    """Returns the URL of the store, or exits if there is none, or no driver."""
    store = config.router.journal.store
    if store is None:
        click.echo("router.journal.store: the journal is in files, which need no tables", err=True)
        sys.exit(FAILED)
    if importlib.util.find_spec("psycopg") is None:
        click.echo(f"router.journal.store: {MISSING}", err=True)
        sys.exit(FAILED)
    return store


@click.command("move")
@click.argument("config", default=DEFAULT_CONFIG, type=click.Path())
@click.option(
    "--to",
    "target",
    type=click.Choice(["postgresql", "files"]),
    required=True,
    help="Where the journal is to be: in the database of router.journal.store, or in files.",
)
def move(config: str, target: str) -> None:
    """Move the journal of a router that does not run to PostgreSQL, or back to files.

    CONFIG is the router's file; default: router.yaml. It names the database in
    router.journal.store; after --to files, set that to files. What is unsettled moves, as one
    snapshot; the segments left behind are emptied out (--to files), or their directory gets another
    name (--to postgresql). Until it has ended, and after that with the other store, the router
    refuses to start. After a crash, run it again. Messages of routes with store: {in: journal}
    move, too; an archive stays where it is.

    Exits with 0, with 1 if it cannot be done now, or with 2 if CONFIG has problems.
    """
    loaded = load_or_exit(config)
    url = store_of(loaded).reveal()
    from router.service.moving import MoveError, move_to_files, move_to_postgres  # noqa: PLC0415

    mover = move_to_postgres if target == "postgresql" else move_to_files
    try:
        moved = mover(loaded, url, time.time_ns())
    except (OSError, MoveError) as error:
        click.echo(f"router journal move: {reason_of(error)}", err=True)
        sys.exit(FAILED)
    deliveries = "1 delivery" if moved == 1 else f"{moved:,} deliveries"
    click.echo(f"the journal is {_WHERE[target]}: {deliveries} unsettled")
    if target == "files":
        click.echo("now set router.journal.store to files")


@click.command("accept")
@click.argument("config", default=DEFAULT_CONFIG, type=click.Path())
def accept(config: str) -> None:
    """Accept that the database lacks what this machine has seen there.

    CONFIG is the router's file; default: router.yaml. A router that waits because its database is
    not the one that it used, or an older copy of it, goes on with what is there, within seconds.
    What is missing is lost: it may come again, or never. Run it on each machine that says so.

    Exits with 0, with 1 if it cannot be done, or with 2 if CONFIG has problems.
    """
    loaded = load_or_exit(config)
    store_of(loaded)
    from router.journal.postgres.mark import Mark  # noqa: PLC0415

    mark = Mark(loaded.router.state, loaded.router.id)
    noted = mark.read()
    try:
        is_forgotten = mark.forget()
    except OSError as error:
        click.echo(f"router journal accept: {reason_of(error)}", err=True)
        sys.exit(FAILED)
    if not is_forgotten or noted is None:
        click.echo("nothing was known of the database, so nothing had to be accepted")
        return
    click.echo(
        f"forgotten: epoch {noted.epoch}, segment {noted.segment}, row {noted.commit};"
        " the database is taken as it is"
    )


_WHERE: Final = {"postgresql": "on PostgreSQL", "files": "in files"}
