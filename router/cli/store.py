"""``router store``: what the stored routes of a router hold."""

import getpass
import os
import time
from pathlib import Path
from typing import Any

import click

from router.cli.admin import (
    DEFAULT_CONFIG,
    AdminClient,
    admin_options,
    asking,
    fail,
    find_endpoint,
    segment,
)
from router.cli.output import TEXT, make_console, print_json, print_lines
from router.cli.screen import show_seconds
from router.model.text import shown
from router.service.config.problems import UnfitError
from router.service.config.scalars import Seconds

WIDTH_ELSEWHERE = 160
"""Width without a terminal."""


class ListedFirst(click.Group):
    """A group whose command ``list`` is meant where no other one is named."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Puts ``list`` before the arguments unless they name a command or ask for help."""
        if not args or (args[0] not in self.commands and args[0] not in ctx.help_option_names):
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group("store", cls=ListedFirst)
def command() -> None:
    """What stored routes hold: depth, size, oldest message, and time until they are empty.

    `router store` and `router store ROUTE` are short for `router store list`.
    """


@command.command("list")
@click.argument("route", required=False, type=TEXT)
@admin_options
@click.option(
    "--state",
    metavar="DIR",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    help="Read the store in this state directory, whose router does not run; default: ask a"
    " running router.",
)
@click.option(
    "--limit",
    metavar="ADDRESSES",
    type=click.IntRange(min=1, max=500),
    default=20,
    show_default=True,
    help="With ROUTE: how many addresses to list.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON; default: tables for people.")
def list_(
    *,
    route: str | None,
    admin: str | None,
    token: str | None,
    config: Path | None,
    state: Path | None,
    limit: int,
    as_json: bool,
) -> None:
    """List what stored routes hold; with ROUTE, given by its name, also its deepest addresses.

    A message counts until its target has it, or the dead letters have. With --state nothing is
    written, how many are dead letters is not known, and names of routes are those of --config.
    """
    if state is not None:
        found = _read_state(state, config, route, limit)
    else:
        with asking(find_endpoint(admin, token, config)) as client:
            if route is None:
                found = client.get("store")
            else:
                found = client.get(f"store/{segment(route)}", limit=limit)
    if as_json:
        print_json(found, indent=2)
    else:
        _show(found)


_CHOSEN_ROUTE = click.argument("route", required=False, type=TEXT)
_CHOSEN_ADDRESS = click.option(
    "--address", metavar="ADDRESS", type=TEXT, help="Only messages of this address; default: all."
)


@command.command("drop")
@_CHOSEN_ROUTE
@_CHOSEN_ADDRESS
@admin_options
@click.option(
    "--older-than",
    metavar="TIME",
    callback=lambda context, parameter, value: _seconds(value),
    help="Only messages that have been stored for longer, such as 90s, 15m, 1h, 3d; default: all.",
)
@click.option(
    "--count",
    metavar="MESSAGES",
    type=click.IntRange(min=1),
    help="Only so many of them, the oldest; default: all.",
)
@click.option("--forget", is_flag=True, help="Delete them; default: they become dead letters.")
@click.option("--yes", is_flag=True, help="Do not ask; default: ask.")
def drop(
    *,
    route: str | None,
    address: str | None,
    admin: str | None,
    token: str | None,
    config: Path | None,
    older_than: float,
    count: int | None,
    forget: bool,
    yes: bool,
) -> None:
    """Drop stored messages of ROUTE, or of an address, the oldest first.

    They go to the route's dead_letter, and wait for it if it is away; a restart changes nothing
    about that. What the target has been sent, and takes, is not dropped. With --forget dead letters
    that wait are deleted, too, since they are the oldest. The log says who did it.
    """
    if route is None and address is None:
        raise click.UsageError("name a ROUTE, or an --address")
    with asking(find_endpoint(admin, token, config)) as client:
        if not yes:
            what = _chosen(older_than, count, forget=forget)
            _confirm(client, route, address, what, forget=forget)
        dropped = _drop(client, _whose(route, address), older_than, count, forget=forget)
    fate = "deleted" if forget else "dropped to the dead letters"
    print_lines(f"{_messages(dropped)} {fate}")


def _chosen(older_than: float, count: int | None, *, forget: bool) -> str:
    """Says which messages are dropped."""
    what = "messages" if count is None else f"the oldest {count:,} messages"
    if older_than:
        what = f"{what} older than {show_seconds(older_than)}"
    return f"{what}, dead letters that wait included," if forget else what


def _confirm(
    client: AdminClient, route: str | None, address: str | None, what: str, *, forget: bool
) -> None:
    """Asks whether to drop; ends the program unless the answer is yes."""
    if address is not None:
        what = f"{what} of the address {address!r}"
    if route is not None:
        held = client.get(f"store/{segment(route)}", limit=1)["route"]["messages"]
        what = f"{what} of route {route!r}, which holds {held:,}"
    fate = "Delete" if forget else "Drop to the dead letters"
    click.confirm(shown(f"{fate}: {what}?"), abort=True)


def _drop(
    client: AdminClient, whose: dict[str, Any], older_than: float, most: int | None, *, forget: bool
) -> int:
    """Drops messages in runs that an answer can wait for; returns how many there were."""
    began, dropped = time.monotonic(), 0
    while most is None or dropped < most:
        run = _RUN if most is None else min(_RUN, most - dropped)
        body = {
            **whose,
            "older_than_seconds": older_than + time.monotonic() - began,
            "count": run,
            "forget": forget,
        }
        found = client.post("store-drop", body)["dropped"]
        dropped += found
        if found < run:
            break
    return dropped


_RUN = 100_000


@command.command("replay")
@_CHOSEN_ROUTE
@_CHOSEN_ADDRESS
@admin_options
def replay(
    *,
    route: str | None,
    address: str | None,
    admin: str | None,
    token: str | None,
    config: Path | None,
) -> None:
    """Try messages now that rest after failures, and dead letters that wait: of ROUTE, or of all.

    A message that its target has returned is sent again at once, instead of after the pause. One
    that its target has rejected, or returned too often, and that still waits for the dead letters'
    container, goes to its target again. What is too old, or was dropped, stays a dead letter. What
    the dead letters' container has is out of the store. The log says who did it.
    """
    with asking(find_endpoint(admin, token, config)) as client:
        done = client.post("store-replay", _whose(route, address))
    resting, revived = done["resting"], done["revived"]
    addresses = "1 address is" if resting == 1 else f"{resting:,} addresses are"
    letters = "1 dead letter is" if revived == 1 else f"{revived:,} dead letters are"
    print_lines(f"{addresses} tried now; {letters} sent to the target again")


def _whose(route: str | None, address: str | None) -> dict[str, Any]:
    try:
        by = getpass.getuser()
    except (OSError, KeyError):  # a number without a name
        by = str(os.getuid())
    return {"route": route, "address": address, "by": by}


def _messages(count: int) -> str:
    return "1 message" if count == 1 else f"{count:,} messages"


def _seconds(text: str | None) -> float:
    """Parses a duration as the file has it."""
    if text is None:
        return 0.0
    try:
        return Seconds().parse(text)
    except UnfitError as error:
        raise click.BadParameter(f"{text!r} {error.reason}", param_hint="--older-than") from None


def _show(found: Any) -> None:
    from router.cli import depth_screen  # noqa: PLC0415  starts in a third of the time without

    console = make_console(WIDTH_ELSEWHERE)
    if "addresses" in found:
        console.print(depth_screen.route(found, console.width))
    else:
        console.print(depth_screen.routes(found, console.width))


def _read_state(state: Path, config: Path | None, name: str | None, limit: int) -> Any:
    """Returns what the router would answer, as far as its state directory tells."""
    from router.service.admin.showing import (  # noqa: PLC0415  as above
        as_json,
        stored_address_view,
        stored_route_view,
    )
    from router.service.admin.views import StoredAddressesView, StoreView  # noqa: PLC0415
    from router.service.kept_store import NoStoreError, read_kept  # noqa: PLC0415

    try:
        kept = read_kept(state, _routes(config))
    except NoStoreError as error:
        fail(str(error))
    for loss in kept.losses:
        click.echo(f"lost: {loss}", err=True)
    views = tuple(map(stored_route_view, kept.routes))
    if name is None:
        found = as_json(StoreView(is_connected=None, routes=views, unreadable=kept.unreadable))
        for each in found["routes"]:
            each["dead"] = None  # only who forwards them knows what was rejected
        return found
    chosen = next((each for each in views if each.route == name), None)
    if chosen is None:
        fail(f"route {name!r} stores nothing there")
    held, addresses = kept.look(name, limit)
    at = time.time()
    found = as_json(
        StoredAddressesView(
            route=chosen,
            addresses=tuple(stored_address_view(each, at) for each in held),
            hidden=addresses - len(held),
        )
    )
    found["route"]["dead"] = None
    return found


def _routes(config: Path | None) -> Any:
    """Returns the routes of a file; none if it is not given and cannot be read."""
    from router.service.config import ConfigError, load  # noqa: PLC0415  as above

    try:
        return load(config or Path(DEFAULT_CONFIG)).table.routes
    except (ConfigError, OSError) as error:
        if config is not None:
            fail(str(error))
        return ()
