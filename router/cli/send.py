"""``router send``: sends messages to an address and tells what became of them."""

from pathlib import Path

import click

from router.cli.client import Errand, Place, client_options, count_attaches, link_name
from router.cli.output import TEXT
from router.model.capabilities import Protocol
from router.model.identity import LinkName
from router.net.client.message import numbered
from router.net.client.report import SETTLED, Report
from router.net.client.sender import SendingLink
from router.routes.route import Guarantee

GOOD = ("accepted", SETTLED)
"""Outcomes that leave nothing to be desired."""


@click.command("send")
@client_options
@click.option(
    "--count",
    metavar="MESSAGES",
    type=click.IntRange(min=0),
    default=1,
    show_default=True,
    help="How many messages to send.",
)
@click.option(
    "--size",
    metavar="OCTETS",
    type=click.IntRange(min=0, max=1 << 30),
    help="Size of each body; default: that of --body, or 100.",
)
@click.option(
    "--body", metavar="TEXT", type=TEXT, help="Body of each; default: as many x as --size says."
)
@click.option(
    "--window",
    metavar="MESSAGES",
    type=click.IntRange(min=1),
    default=5000,
    show_default=True,
    help="How many messages may be unsettled at a time, credit permitting.",
)
def command(
    *,
    url: Place,
    address: str,
    settle: str,
    protocol: str,
    wait: float,
    timeout: float | None,
    ca: Path | None,
    name: str | None,
    as_json: bool,
    count: int,
    size: int | None,
    body: str | None,
    window: int,
) -> None:
    """Send messages to ADDRESS at URL, and tell what became of them.

    URL is amqp[s]://[user[:password]@]host[:port][/vhost] or unix:/path. When the connection is
    lost the link is taken up again on a new one. Exits with 0 if every message was accepted, or
    settled where no outcome is asked for; else with 1.
    """
    link = LinkName(name or link_name("send"))
    machine = SendingLink(
        name=link,
        address=address,
        supply=numbered(_body(body, size), count),
        guarantee=Guarantee(settle),
        window=window,
        draw_number=count_attaches(name),
    )
    errand = Errand(
        verb="send",
        place=url,
        protocol=Protocol(protocol),
        machine=machine,
        container=link,
        expected=count,
        moved=_good,
        patience_seconds=wait,
        timeout_seconds=timeout,
        ca=ca,
        waits_for=lambda: machine.waits_for,
    )
    errand.run()
    errand.conclude(as_json)


def _good(report: Report) -> int:
    return sum(report.outcomes[each] for each in GOOD)


def _body(text: str | None, size: int | None) -> bytes:
    """Makes a body: the text, cut or repeated to the size that is asked for."""
    octets = (text or "x").encode()
    if size is None:
        size = len(octets) if text is not None else 100
    return (octets * (size // len(octets) + 1))[:size]
