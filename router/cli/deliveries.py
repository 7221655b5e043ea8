"""``router deliveries``: lists deliveries unsettled or in doubt, and resolves those in doubt."""

import re
from pathlib import Path
from typing import Any

import click

from router.cli.admin import (
    AdminClient,
    AdminError,
    admin_options,
    asking,
    fail,
    find_endpoint,
    segment,
)
from router.cli.output import TEXT, make_console, print_json

WIDTH_ELSEWHERE = 200
"""Width without a terminal."""

NOT_FOUND = 404
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
        found, page = _listed(client, limit, in_doubt=in_doubt, route=route, container=container)
        if route is not None and not found:
            client.get(f"routes/{segment(route)}")  # fails, and says so, if there is none
    for gap in page["gaps"]:
        text = f"the journal has a gap: {gap}; deliveries recorded only there may be in doubt"
        click.echo(text, err=True)
    if as_json:
        print_json(found, indent=2)
    else:
        _show(found, page, in_doubt)


def _listed(client: AdminClient, limit: int | None, **filters: Any) -> tuple[list[Any], Any]:
    """Returns the deliveries that filters let through, the oldest first, and the last page."""
    found: list[Any] = []
    after = None
    while True:
        most = _PAGE_MOST if limit is None else min(_PAGE_MOST, limit - len(found))
        page = client.get("deliveries", **filters, limit=most, after=after)
        found += page["deliveries"]
        after = page["next"]
        if after is None or (limit is not None and len(found) >= limit):
            return found, page


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
@click.argument("tag", required=False)
@admin_options
@click.option(
    "--route",
    metavar="NAME",
    type=TEXT,
    help="Instead of TAG: all deliveries in doubt of this route.",
)
@click.option(
    "--container",
    metavar="NAME",
    type=TEXT,
    help="Instead of TAG: all deliveries in doubt from or to this container.",
)
@click.option(
    "--yes",
    is_flag=True,
    help="Resolve what --route and --container choose; default: only count it.",
)
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
    tag: str | None,
    admin: str | None,
    token: str | None,
    config: Path | None,
    route: str | None,
    container: str | None,
    yes: bool,
    resend: bool,
    discard: bool,
    accept: bool,
    link: str | None,
) -> None:
    """Decide what becomes of the delivery in doubt with this TAG, as `--in-doubt` lists it.

    Look first whether the peer has it. One of --resend, --discard and --accept is needed. With
    --route or --container instead of TAG all that `--in-doubt` lists with the same options are
    resolved alike; without --yes they are only counted, and the exit code is 1.
    """
    decisions = {"resend": resend, "discard": discard, "accept": accept}
    chosen = [decision for decision, is_chosen in decisions.items() if is_chosen]
    if len(chosen) != 1:
        raise click.UsageError("give one of --resend, --discard and --accept")
    (decision,) = chosen
    outer = context.obj or (None, None, None)
    endpoint = find_endpoint(admin or outer[0], token or outer[1], config or outer[2])
    filters = {"route": route, "container": container}
    if tag is None:
        if route is None and container is None:
            raise click.UsageError("give a TAG, or --route or --container for all of those")
        if link is not None:
            raise click.UsageError("--link goes with a TAG only")
        with asking(endpoint) as client:
            count = resolve_all(client, decision, filters, is_meant=yes)
    else:
        if yes or any(filters.values()):
            raise click.UsageError("--route, --container and --yes do not go with a TAG")
        matched = _TAG.fullmatch(tag)
        if matched is None:
            problem = "a tag is an even number of hexadecimal digits"
            raise click.BadParameter(problem, param_hint="TAG")
        with asking(endpoint) as client:
            count = _resolve(client, matched.group(2), link, decision)
        if not count:
            fail(f"no delivery in doubt has the tag {tag}")
    click.echo(f"{_count(count)} resolved: {decision}")


def _resolve(client: AdminClient, tag: str, link: str | None, decision: str) -> int:
    body = {"decision": decision} if link is None else {"decision": decision, "link": link}
    resolved: int = client.post(f"deliveries/{tag}/resolve", body)["resolved"]
    return resolved


def resolve_all(
    client: AdminClient, decision: str, filters: dict[str, str | None], *, is_meant: bool
) -> int:
    """Resolves all deliveries in doubt that filters let through; returns their number.

    A decision goes to a tag of a link's name. Where deliveries outside of the filters have the same
    tag and link name, nothing is resolved.
    """
    found, page = _listed(client, None, in_doubt=True, **filters)
    if not found:
        fail("nothing that --route and --container choose is in doubt")
    if not is_meant:
        more = ", and more that are not counted" if page["is_cut"] else ""
        fail(f"{_count(len(found))}{more}: with --yes the decision is {decision} for all of them")
    everything, _ = _listed(client, None, in_doubt=True)
    places = {(each["tag"], each["link"]) for each in found}
    chosen = {_identity(each) for each in found}
    for each in everything:
        if (each["tag"], each["link"]) in places and _identity(each) not in chosen:
            fail(
                f"the tag {each['tag']} of links named {each['link']} is in doubt outside of what"
                " --route and --container choose, too, and nothing was resolved; resolve by TAG"
            )
    count = 0
    for tag, link in sorted(places):
        try:
            count += _resolve(client, tag, link, decision)
        except AdminError as error:
            if error.status != NOT_FOUND:
                raise
            # Its peer has resumed meanwhile, and it is in doubt no more.
    return count


def _identity(delivery: Any) -> tuple[str, ...]:
    keys = ("tag", "route", "address", "container", "link", "to_container", "to_link")
    return tuple(str(delivery[key]) for key in keys)


def _count(count: int) -> str:
    return f"{count:,} deliver{'y' if count == 1 else 'ies'}"
