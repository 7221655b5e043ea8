"""``router mesh``: the sites of the mesh as a running router knows them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from router.cli.admin import FAILED, admin_options, asking, find_endpoint
from router.cli.output import print_json, print_lines
from router.model.text import shown


@click.command("mesh")
@admin_options
@click.option("--json", "as_json", is_flag=True, help="Print JSON; default: lines for people.")
@click.option(
    "--check",
    is_flag=True,
    help="Exit with 1 while a neighbor or a site is not reached; default: exit with 0.",
)
def command(
    *, admin: str | None, token: str | None, config: Path | None, as_json: bool, check: bool
) -> None:
    """Show the mesh of a running router: its neighbors, all sites, and what each serves.

    The cost of a site is that of the best way from this router, which leads over the neighbor that
    is named. `router explain --mesh ADDRESS` shows the ways to an address.
    """
    with asking(find_endpoint(admin, token, config)) as client:
        mesh = client.get("mesh")
    if as_json:
        print_json(mesh, indent=2)
    else:
        print_lines(*_lines(mesh))
    if check and not _is_whole(mesh):
        raise SystemExit(FAILED)


def show_ways(config: Path | None, address: str) -> None:
    """Prints the ways that a message to an address may take from a running router."""
    with asking(find_endpoint(None, None, config)) as client:
        mesh = client.get("mesh", address=address)
    ways = mesh["ways"]
    print_lines(f"from          {shown(mesh['router'])}")
    print_lines(f"address       {shown(address)}")
    for way in ways:
        print_lines(f"way           {_way(way)}")
    if not ways:
        print_lines("way           none: no site serves it, and nobody receives here")
    if not any(way["cost"] is not None for way in ways):
        raise SystemExit(FAILED)


def _way(way: Any) -> str:
    egress = shown(way["egress"])
    if way["cost"] is None:
        return f"to {egress}: not reached at present"
    if not way["hop"]:
        return f"to receivers here ({egress})"
    refusal = f"; it refuses the address: {shown(way['error'])}" if way["error"] else ""
    return f"to {egress} over {shown(way['hop'])}, cost {way['cost']}{refusal}"


def _is_whole(mesh: Any) -> bool:
    is_reached = all(site["cost"] is not None for site in mesh["sites"])
    return is_reached and all(link["is_up"] for link in mesh["links"])


def _state(link: Any) -> str:
    if not link["is_up"]:
        return "down"
    return "up, in use" if link["is_active"] else "up, in reserve"


def _lines(mesh: Any) -> Iterator[str]:
    if mesh["is_edge"]:
        yield f"router {shown(mesh['router'])}: an edge"
        for link in mesh["links"]:
            yield f"  hub {shown(link['router'])}  {_state(link)}"
        return
    yield f"router {shown(mesh['router'])}: {len(mesh['sites'])} sites"
    for link in mesh["links"]:
        if link["role"] == "edge":
            yield f"  edge {shown(link['router'])}  {_state(link)}"
            continue
        state = "up" if link["is_up"] else "down"
        yield f"  link {shown(link['router'])}  {state}, cost {link['cost']}"
    for site in mesh["sites"]:
        yield f"  site {shown(site['router'])}  {_reached(site)}"
        if site["links"]:
            links = (f"{shown(router)} ({cost})" for router, cost in site["links"])
            yield f"       links {', '.join(links)}"
        if site["prefixes"]:
            yield f"       serves {', '.join(map(shown, site['prefixes']))}"
        if site["addresses"]:
            yield f"       serves {site['addresses']} addresses that no prefix covers"


def _reached(site: Any) -> str:
    if site["cost"] is None:
        return "not reached"
    if not site["hop"]:
        return "this router"
    return f"over {shown(site['hop'])}, cost {site['cost']}"
