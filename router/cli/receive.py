"""``router receive``: receives messages from an address and settles them."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import click

from router.cli.client import Errand, Place, client_options, count_attaches, link_name
from router.cli.output import tell_body
from router.model.capabilities import Protocol
from router.model.delivery import ReceivedDelivery
from router.model.identity import LinkName
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, REJECTED, RELEASED, DeliveryState
from router.net.client.message import body_text
from router.net.client.receiver import ReceivingLink
from router.routes.route import Guarantee

OUTCOMES: Final[Mapping[str, DeliveryState]] = {
    "accepted": ACCEPTED,
    "rejected": REJECTED,
    "released": RELEASED,
    "modified": MODIFIED_FAILED,
}


@click.command("receive")
@client_options
@click.option(
    "--count",
    metavar="MESSAGES",
    type=click.IntRange(min=1),
    help="How many messages to receive; default: until it is interrupted.",
)
@click.option(
    "--credit",
    metavar="MESSAGES",
    type=click.IntRange(min=1, max=1 << 20),
    default=100,
    show_default=True,
    help="Credit: how many messages the sender may be ahead.",
)
@click.option(
    "--outcome",
    type=click.Choice(list(OUTCOMES)),
    default="accepted",
    show_default=True,
    help="Outcome that is sent for each message.",
)
@click.option("--show", is_flag=True, help="Print each body, one a line; default: off.")
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
    count: int | None,
    credit: int,
    outcome: str,
    show: bool,
) -> None:
    """Receive messages from ADDRESS at URL.

    URL is amqp[s]://[user[:password]@]host[:port][/vhost] or unix:/path. When the connection is
    lost the link is taken up again on a new one. Without --count it goes on until --timeout or
    Ctrl-C, and exits with 0; with it, it exits with 1 if fewer have come.
    """

    def take(delivery: ReceivedDelivery) -> DeliveryState:
        if show:
            tell_body(body_text(delivery.payload, delivery.protocol))
        return OUTCOMES[outcome]

    link = LinkName(name or link_name("receive"))
    machine = ReceivingLink(
        name=link,
        address=address,
        take=take,
        guarantee=Guarantee(settle),
        window=credit,
        count=count,
        draw_number=count_attaches(name),
    )
    errand = Errand(
        verb="receive",
        place=url,
        protocol=Protocol(protocol),
        machine=machine,
        container=link,
        expected=count,
        moved=lambda report: report.received,
        patience_seconds=wait,
        timeout_seconds=timeout,
        ca=ca,
    )
    errand.run()
    errand.conclude(as_json)
