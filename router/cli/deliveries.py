"""``router deliveries``: lists deliveries unsettled or in doubt, and resolves those in doubt."""

import re
from pathlib import Path
from typing import Any

import click

from router.cli.admin import admin_options, asking, fail, find_endpoint, segment
from router.cli.output import TEXT, make_console, print_json

WIDTH_ELSEWHERE = 200
"""Width without a terminal."""

_PAGE_MOST = 500
_TAG = re.compile(r"(0x)?((?:[0-9A-Fa-f]{2}){1,256})")


@click.group("deliveries", invoke_without_command=True)
@admin_options
@click.option("--in-doubt", is_flag=True, help="Only deliveries in doubt; default: all unsettled.")
@click.option(
    "--route", metavar="NAME", type=TEXT, help="Only deliveries of this route; default: all."
)
@click.option(
    "--container",
    metavar="NAME",
    type=TEXT,
    help="Only deliveries from or to this container; default: all.",
)
@click.option(
    "--limit",
    metavar="DELIVERIES",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    help="How many to list.",
)
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print JSON, with every name whole; default: a table as wide as the terminal.",
)
@click.pass_context
def command(
    context: click.Context,
    *,
    admin: str | None,
    token: str | None,
    config: Path | None,
    in_doubt: bool,
    route: str | None,
    container: str | None,
    limit: int,
    as_json: bool,
) -> None:
    """List the unsettled deliveries of a running router, the oldest first.

    A delivery is in doubt if it was sent and the connection was lost before the outcome came: the
    peer may have it or not. It is settled when the peer resumes, or by `router deliveries resolve`.
    """
    if context.invoked_subcommand is not None:
        context.obj = (admin, token, config)
        return
    with asking(find_endpoint(admin, token, config)) as client:
        found: list[Any] = []
        after = None
        while True:
            page = client.get(
                "deliveries",
                in_doubt=in_doubt,
                route=route,
                container=container,
                limit=min(_PAGE_MOST, limit - len(found)),
                after=after,
            )
            found += page["deliveries"]
            after = page["next"]
            if after is None or len(found) >= limit:
                break
        if route is not None and not found:
            client.get(f"routes/{segment(route)}")  # fails, and says so, if there is none
    for gap in page["gaps"]:
        text = f"the journal has a gap: {gap}; deliveries recorded only there may be in doubt"
        click.echo(text, err=True)
    if as_json:
        print_json(found, indent=2)
    else:
        _show(found, page, in_doubt)


def _show(found: list[Any], page: Any, in_doubt: bool) -> None:
    from router.cli import screen  # noqa: PLC0415  starts in a third of the time without

    console = make_console(WIDTH_ELSEWHERE)
    if found:
        console.print(screen.deliveries(found, console.width))
    else:
        console.print("nothing is in doubt" if in_doubt else "nothing is listed as unsettled")
    if page["on_lane"]:
        count = f"{page['on_lane']:,}"
        console.print(f"and {count} more on the express lane, which are not listed one by one")
    if page["next"] is not None or page["is_cut"]:
        console.print("and more; --limit shows more, --route and --container narrow the list")


@command.command("resolve")
@click.argument("tag")
@admin_options
@click.option("--resend", is_flag=True, help="Send it again; it may arrive twice.")
@click.option(
    "--discard",
    is_flag=True,
    help="Do not send it again; its sender gets the outcome rejected.",
)
@click.option(
    "--accept",
    is_flag=True,
    help="Do not send it again; its sender gets the outcome accepted.",
)
@click.option(
    "--link",
    metavar="NAME",
    type=TEXT,
    help="Name of the incoming link; needed where deliveries of several links have the tag.",
)
@click.pass_context
def resolve(
    context: click.Context,
    *,
    tag: str,
    admin: str | None,
    token: str | None,
    config: Path | None,
    resend: bool,
    discard: bool,
    accept: bool,
    link: str | None,
) -> None:
    """Decide what becomes of the delivery in doubt with this TAG, as `--in-doubt` lists it.

    Look first whether the peer has it. One of --resend, --discard and --accept is needed.
    """
    matched = _TAG.fullmatch(tag)
    if matched is None:
        raise click.BadParameter("a tag is an even number of hexadecimal digits", param_hint="TAG")
    decisions = {"resend": resend, "discard": discard, "accept": accept}
    chosen = [decision for decision, is_chosen in decisions.items() if is_chosen]
    if len(chosen) != 1:
        raise click.UsageError("give one of --resend, --discard and --accept")
    (decision,) = chosen
    outer = context.obj or (None, None, None)
    endpoint = find_endpoint(admin or outer[0], token or outer[1], config or outer[2])
    body = {"decision": decision} if link is None else {"decision": decision, "link": link}
    with asking(endpoint) as client:
        done = client.post(f"deliveries/{matched.group(2)}/resolve", body)
    count = done["resolved"]
    if not count:
        fail(f"no delivery in doubt has the tag {tag}")
    click.echo(f"{count} deliver{'y' if count == 1 else 'ies'} resolved: {decision}")
