"""``router receive``: receives messages from an address and settles them."""

import math
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO, Final

import attrs
import click
import trio

from router.cli.client import FAILED, Errand, client_options, count_attaches, link_name
from router.cli.output import one_line
from router.cli.place import Place, diversion_policy
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
from router.net.client.conversation import CONNECT_SECONDS, Conversation
from router.net.client.json_message import to_line
from router.net.client.message import body_text
from router.net.client.receiver import ReceivingLink
from router.net.client.terminus import TERMINUS_SECONDS
from router.routes.route import Guarantee
from router.wire import hub

OUTCOMES: Final[Mapping[str, DeliveryState]] = {
    "accepted": ACCEPTED,
    "rejected": REJECTED,
    "released": RELEASED,
    "modified": MODIFIED_FAILED,
}


def json_line(delivery: ReceivedDelivery) -> str:
    """Returns a message as a line of JSON.

    Raises:
        TranslationError: it is no message of AMQP.
    """
    return to_line(hub.to_sections(delivery.protocol, delivery.payload))


def body_line(delivery: ReceivedDelivery) -> str:
    """Returns the body of a message, on one line."""
    return one_line(body_text(delivery.payload, delivery.protocol))


@attrs.define(eq=False, kw_only=True)
class Printer:
    """Prints messages as lines, if they are to be printed, and says their outcome.

    Lines are written past the buffer of standard output, so nothing is left in it when its reader
    has gone.

    Attributes:
        line_of: returns the line of a message; None: nothing is printed.
        outcome: of what was printed.
        error: the first message that could not be printed, or the failure of standard output.
        closed: standard output takes no more lines.
    """

    line_of: Callable[[ReceivedDelivery], str] | None
    outcome: DeliveryState
    error: str | None = attrs.field(default=None, init=False)
    closed: trio.Event = attrs.field(factory=trio.Event, init=False)

    def take(self, delivery: ReceivedDelivery) -> DeliveryState:
        """Prints a message; what could not be printed is released, or rejected if it is none."""
        if self.closed.is_set():
            return RELEASED
        if self.line_of is None:
            return self.outcome
        try:
            line = self.line_of(delivery)
        except TranslationError as error:
            self.error = self.error or f"a message was rejected: {error}"
            return Rejected(Condition(DECODE_ERROR, str(error)))
        try:
            _write(f"{line}\n".encode(errors="backslashreplace"))
        except OSError as error:
            if not isinstance(error, BrokenPipeError):
                self.error = f"standard output: {error.strerror}"
            self.closed.set()
            return RELEASED
        return self.outcome

    async def end_when_closed(self, conversation: Conversation) -> None:
        """Closes the link when nobody reads the lines any more, which releases the rest at once."""
        await self.closed.wait()
        conversation.finish()


def kept_seconds(name: str | None, wait: float, guarantee: Guarantee) -> int:
    """Returns how long the other end is to keep the link for this process after a lost connection.

    Nobody else knows a generated name, so it need not be kept once this process would have given
    up: what is unsettled on it goes to others then. What may have arrived must not, on exactly-once
    links.
    """
    if name is not None or guarantee is Guarantee.EXACTLY_ONCE:
        return TERMINUS_SECONDS
    return min(TERMINUS_SECONDS, math.ceil(wait + CONNECT_SECONDS))


def _write(octets: bytes) -> None:
    stream = sys.stdout.buffer
    raw: BinaryIO = getattr(stream, "raw", stream)
    left = memoryview(octets)
    while left:
        left = left[raw.write(left) :]


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
    failover: str,
    failover_hosts: tuple[str, ...],
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
    lost, the link is resumed on a new one. Without --count the command runs until --timeout or
    Ctrl-C, and exits with 0; with --count it exits with 1 if it has received fewer messages. A
    message is accepted after it was printed.
    """
    if show and json_lines:
        raise click.UsageError("--show does not go with --json-lines")
    line_of = json_line if json_lines else body_line if show else None
    printer = Printer(line_of=line_of, outcome=OUTCOMES[outcome])
    link = LinkName(name or link_name("receive"))
    machine = ReceivingLink(
        name=link,
        address=address,
        take=printer.take,
        guarantee=Guarantee(settle),
        window=credit,
        count=count,
        draw_number=count_attaches(name),
        kept_seconds=kept_seconds(name, wait, Guarantee(settle)),
    )
    errand = Errand(
        verb="receive",
        place=url,
        protocol=Protocol(protocol),
        machine=machine,
        container=link,
        address=address,
        expected=count,
        moved=lambda report: report.received,
        patience_seconds=wait,
        timeout_seconds=timeout,
        ca=ca,
        failover=diversion_policy(url, is_obeyed=failover == "obey", hosts=failover_hosts),
    )
    errand.beside = printer.end_when_closed
    errand.run()
    if printer.closed.is_set() and printer.error is None:
        raise SystemExit(0 if count is None else FAILED)
    errand.error = errand.error or printer.error
    errand.conclude(as_json, err=json_lines or printer.closed.is_set())
