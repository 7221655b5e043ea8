"""``router trace``: traces the next deliveries of an address."""

from pathlib import Path
from typing import Any

import click

from router.cli.admin import admin_options, asking, find_endpoint
from router.cli.interrupts import until_interrupted
from router.cli.output import LINE_MOST, TEXT, json_text, print_lines
from router.model.text import shown


@click.command("trace")
@click.argument("address", type=TEXT)
@admin_options
@click.option(
    "--count",
    metavar="DELIVERIES",
    type=click.IntRange(1, 100),
    default=10,
    show_default=True,
    help="How many deliveries to follow.",
)
@click.option(
    "--seconds",
    metavar="SECONDS",
    type=click.FloatRange(0.1, 600),
    default=30.0,
    show_default=True,
    help="End after this time, even if deliveries are still under way.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON lines; default: for people.")
def command(
    *,
    address: str,
    admin: str | None,
    token: str | None,
    config: Path | None,
    count: int,
    seconds: float,
    as_json: bool,
) -> None:
    """Follow the next deliveries of ADDRESS, or of a pattern: their frames, and what is decided.

    Payload is never shown, only its length. While it lasts these deliveries take the general path
    through the router, which is slower than the express lane.
    """
    body = {"address": address, "count": count, "seconds": seconds}
    followed = set()
    with until_interrupted(), asking(find_endpoint(admin, token, config)) as client:
        print_lines(f"following {address} for {seconds:g} s at most; Ctrl-C ends it", err=True)
        for line in client.lines("trace", body):
            followed.add((line["worker"], line["delivery"]))
            click.echo(json_text(line) if as_json else describe(line))
    if not {delivery for _, delivery in followed} - {None}:
        print_lines(f"no delivery arrived at {address} within {seconds:g} s", err=True)


def describe(line: Any) -> str:
    """Formats a line of the trace: time, delivery, peer and event."""
    delivery = "" if line["delivery"] is None else f"#{line['delivery']}"
    when = f"{line['seconds']:9.4f} {delivery:>4}"
    if line["is_incoming"] is None:
        return f"{when}  {click.style('=', fg='blue')} {shown(line['text'], LINE_MOST)}"
    arrow = click.style("<-", fg="green") if line["is_incoming"] else click.style("->", fg="yellow")
    whose = f"{shown(line['container'])} {shown(line['link'])}"
    return f"{when}  {arrow} {whose}  {shown(line['what'])}: {shown(line['text'], LINE_MOST)}"
