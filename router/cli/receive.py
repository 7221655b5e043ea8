"""``router receive``: receives messages from an address and settles them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import attrs
import click
import trio

from router.cli.client import FAILED, Errand, Place, client_options, count_attaches, link_name
from router.cli.output import tell_body
from router.errors import TranslationError
from router.model.capabilities import Protocol
from router.model.condition import DECODE_ERROR, Condition
from router.model.delivery import ReceivedDelivery
from router.model.identity import LinkName
from router.model.outcome import (
    ACCEPTED,
    MODIFIED_FAILED,
    REJECTED,
    RELEASED,
    DeliveryState,
    Rejected,
)
from router.net.client.conversation import Conversation
from router.net.client.json_message import to_line
from router.net.client.message import body_text
from router.net.client.receiver import ReceivingLink
from router.routes.route import Guarantee
from router.wire import hub

OUTCOMES: Final[Mapping[str, DeliveryState]] = {
    "accepted": ACCEPTED,
    "rejected": REJECTED,
    "released": RELEASED,
    "modified": MODIFIED_FAILED,
}


STANDARD_OUTPUT: Final = 1


@attrs.define(eq=False, kw_only=True)
class Printer:
    """Prints messages as lines of JSON.

    Attributes:
        outcome: of what was printed.
        error: the first message that could not be printed, and why.
        closed: nobody reads the lines any more.
    """

    outcome: DeliveryState
    error: str | None = attrs.field(default=None, init=False)
    closed: trio.Event = attrs.field(factory=trio.Event, init=False)

    def take(self, delivery: ReceivedDelivery) -> DeliveryState:
        """Prints a message; what could not be printed is released, or rejected if it is none."""
        if self.closed.is_set():
            return RELEASED
        try:
            line = to_line(hub.to_sections(delivery.protocol, delivery.payload))
        except TranslationError as error:
            self.error = self.error or f"a message was rejected: {error}"
            return Rejected(Condition(DECODE_ERROR, str(error)))
        octets = memoryview(line.encode() + b"\n")
        try:
            while octets:
                octets = octets[os.write(STANDARD_OUTPUT, octets) :]
        except BrokenPipeError:
            self.closed.set()
            return RELEASED
        return self.outcome

    async def end_when_closed(self, conversation: Conversation) -> None:
        """Ends the conversation when nobody reads the lines any more."""
        await self.closed.wait()
        conversation.finish()


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
@click.option(
    "--json-lines",
    is_flag=True,
    help="Print each message as one line of JSON, all sections with their types, which `router send"
    " --json-lines` sends as it was; the account goes to standard error; default: off.",
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
    count: int | None,
    credit: int,
    outcome: str,
    show: bool,
    json_lines: bool,
) -> None:
    """Receive messages from ADDRESS at URL.

    URL is amqp[s]://[user[:password]@]host[:port][/vhost] or unix:/path. When the connection is
    lost the link is taken up again on a new one. Without --count it goes on until --timeout or
    Ctrl-C, and exits with 0; with it, it exits with 1 if fewer have come. A message is accepted
    after it was printed.
    """
    if show and json_lines:
        raise click.UsageError("--show does not go with --json-lines")
    printer = Printer(outcome=OUTCOMES[outcome])

    def take(delivery: ReceivedDelivery) -> DeliveryState:
        if show:
            tell_body(body_text(delivery.payload, delivery.protocol))
        return OUTCOMES[outcome]

    link = LinkName(name or link_name("receive"))
    machine = ReceivingLink(
        name=link,
        address=address,
        take=printer.take if json_lines else take,
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
    errand.beside = printer.end_when_closed
    errand.run()
    if printer.closed.is_set():
        raise SystemExit(0 if count is None else FAILED)
    errand.error = errand.error or printer.error
    errand.conclude(as_json, err=json_lines)
