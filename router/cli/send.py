"""``router send``: sends messages to an address and reports their outcomes."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import attrs
import click

from router.cli.client import Errand, client_options, count_attaches, link_name
from router.cli.intake import STANDARD_INPUT, Intake, LineError, has_input, open_input
from router.cli.output import TEXT
from router.cli.place import Place, diversion_policy
from router.cli.stamps import given, head_of, stamp_options
from router.model.capabilities import Protocol
from router.model.identity import LinkName
from router.net.client.conversation import Conversation
from router.net.client.json_message import encode_line
from router.net.client.json_values import UnfitValueError
from router.net.client.message import numbered
from router.net.client.report import SETTLED, Report
from router.net.client.sender import SendingLink
from router.routes.route import Guarantee
from router.wire.v1_0.sections import AnnotatedMessage, encode_message

GOOD = ("accepted", SETTLED)
"""Outcomes that count as success."""


@click.command("send")
@client_options
@click.option(
    "--count",
    metavar="MESSAGES",
    type=click.IntRange(min=0),
    help="How many messages to send; default: 1.",
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
    "--file",
    "path",
    metavar="FILE",
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
    help="Input, - for standard input: one message with the whole of it as its body, or those of"
    " --lines or --json-lines; default: none, or standard input with these two.",
)
@click.option(
    "--lines",
    is_flag=True,
    help="Send each line of the input as the body of one message, without its line feed; default:"
    " off.",
)
@click.option(
    "--json-lines",
    is_flag=True,
    help="Send each line of the input as the message that it says in JSON, as `router receive"
    " --json-lines` prints it; default: off.",
)
@stamp_options
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
    failover: str,
    failover_hosts: tuple[str, ...],
    ca: Path | None,
    name: str | None,
    as_json: bool,
    count: int | None,
    size: int | None,
    body: str | None,
    path: Path | None,
    lines: bool,
    json_lines: bool,
    window: int,
    **stamps: Any,
) -> None:
    """Send messages to ADDRESS at URL, and print the counts of their outcomes.

    URL is amqp[s]://[user[:password]@]host[:port][/vhost] or unix:/path. Where the protocol has
    exchanges ADDRESS is a queue, EXCHANGE/KEY, or a form of RabbitMQ such as /exchanges/E/KEY.
    The messages are --count copies of --body, or come from --file or standard input.

    When the connection is lost the link is taken up again on a new one. Exits with 0 if every
    message was accepted, or settled where no outcome is asked for; else with 1.
    """
    made = _given(count=count, size=size, body=body)
    is_input = lines or json_lines or path is not None
    _check_usage(made, is_input)
    if json_lines and (lines or given(stamps)):
        other = "--lines" if lines else given(stamps)[0]
        raise click.UsageError(f"{other} does not go with --json-lines")
    head = head_of(stamps)
    encode = _encode_json if json_lines else _with_head(head)
    intake = _intake(path, lines or json_lines, encode) if is_input else None
    supply: Iterator[bytes | None]
    supply = intake or numbered(_body(body, size), 1 if count is None else count, head)
    link = LinkName(name or link_name("send"))
    machine = SendingLink(
        name=link,
        address=address,
        supply=supply,
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
        address=address,
        expected=1 if count is None else count,
        moved=_good,
        patience_seconds=wait,
        timeout_seconds=timeout,
        ca=ca,
        failover=diversion_policy(url, is_obeyed=failover == "obey", hosts=failover_hosts),
        waits_for=lambda: machine.waits_for,
    )
    if intake is not None:
        _read_beside(errand, intake)
    errand.run()
    if intake is not None:
        _tell_rest(errand, intake)
    errand.conclude(as_json)


# --- input ----------------------------------------------------------------------------------------


def _given(**options: object) -> list[str]:
    return [f"--{name}" for name, value in options.items() if value is not None]


def _check_usage(made: list[str], is_input: bool) -> None:
    """Refuses options that contradict each other, and input that none of them takes."""
    if is_input and made:
        raise click.UsageError(f"{made[0]} does not go with input (--file, --lines, --json-lines)")
    if not is_input and not made and has_input():
        raise click.UsageError(
            "standard input has data, and no option says what to do with it: --lines sends each"
            " line, --json-lines the message that each line says, --file - sends all of it as one"
            " message; --count, --size or --body send without it"
        )


def _intake(path: Path | None, is_by_line: bool, encode: Callable[[bytes], bytes]) -> Intake:
    """Opens the input, and says how messages are made of it."""
    try:
        descriptor, name = open_input(path)
    except OSError as error:
        raise click.UsageError(f"--file: {path}: {error.strerror}") from None
    return Intake(descriptor=descriptor, name=name, encode=encode, is_by_line=is_by_line)


def _with_head(head: AnnotatedMessage) -> Callable[[bytes], bytes]:
    def encode(body: bytes) -> bytes:
        return encode_message(attrs.evolve(head, data=[body]))

    return encode


def _encode_json(line: bytes) -> bytes:
    try:
        return encode_line(line)
    except UnfitValueError as error:
        raise LineError(error.rule) from None


def _read_beside(errand: Errand, intake: Intake) -> None:
    """Lets the input be read while the messages are sent."""
    why_still = errand.waits_for

    async def read(conversation: Conversation) -> None:
        await intake.run(conversation.wake)
        errand.expected = intake.count

    errand.expected = None
    errand.beside = read
    errand.is_whole = lambda: intake.has_ended
    errand.waits_for = lambda: intake.waits_for or why_still()


def _tell_rest(errand: Errand, intake: Intake) -> None:
    """Says what of the input was not sent; how much was, the account says as well."""
    if intake.descriptor != STANDARD_INPUT:
        os.close(intake.descriptor)
    if errand.error is not None:
        return
    problem = intake.problem
    if not intake.has_ended:
        problem = f"{intake.name}: the end was not reached"
    if problem is not None:
        report = errand.machine.report
        errand.error = (
            f"{problem}; before it {report.sent:,} were sent, {report.settled:,} of them settled,"
            " and nothing after it"
        )


# --- the account ----------------------------------------------------------------------------------


def _good(report: Report) -> int:
    return sum(report.outcomes[each] for each in GOOD)


def _body(text: str | None, size: int | None) -> bytes:
    """Makes a body: the text, cut or repeated to the given size."""
    octets = (text or "x").encode()
    if size is None:
        size = len(octets) if text is not None else 100
    return (octets * (size // len(octets) + 1))[:size]
