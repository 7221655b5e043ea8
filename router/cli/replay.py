"""``router replay``: sends messages of an archive again, each once."""

import datetime
from pathlib import Path
from typing import Any, Final

import attrs
import click

from router.cli.output import TEXT, print_json, print_lines
from router.cli.pipeline import pipeline
from router.cli.place import Place, read_place
from router.pipeline.extra import need_arrow
from router.routes.route import Guarantee

MOMENT: Final = click.DateTime(formats=["%Y-%m-%d", "%Y-%m-%dT%H:%M:%S"])
_NANOSECONDS: Final = 1_000_000_000


def nanoseconds_of(context: click.Context, parameter: click.Parameter, value: Any) -> int | None:
    """Parses a time in UTC."""
    if value is None:
        return None
    return int(value.replace(tzinfo=datetime.UTC).timestamp()) * _NANOSECONDS


@click.command("replay")
@click.argument("archive", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("url")
@click.option(
    "--work",
    metavar="DIR",
    required=True,
    help="Directory of this replay, or its URL on a shared store: with the same one, it resumes"
    " where it was killed, and nothing is sent twice.",
)
@click.option(
    "--to",
    "address",
    metavar="ADDRESS",
    type=TEXT,
    help="Address for all messages; default: for each the address that it was sent to.",
)
@click.option(
    "--from",
    "pattern",
    metavar="PATTERN",
    type=TEXT,
    default="*",
    show_default=True,
    help="Addresses that the messages were sent to; * and ? stand for any text and any character.",
)
@click.option("--since", type=MOMENT, callback=nanoseconds_of, help="First moment, UTC.")
@click.option("--until", type=MOMENT, callback=nanoseconds_of, help="Up to this moment, UTC.")
@click.option(
    "--key",
    metavar="HEX",
    default="",
    help="Only deliveries whose key begins with these hex digits.",
)
@click.option(
    "--settle",
    type=click.Choice([str(Guarantee.EXACTLY_ONCE), str(Guarantee.AT_LEAST_ONCE)]),
    default=str(Guarantee.EXACTLY_ONCE),
    show_default=True,
    help="Guarantee: how often a message may arrive.",
)
@click.option("--dry-run", is_flag=True, help="Count what would be sent, and send nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON; default: a line.")
def command(
    *,
    archive: Path,
    url: str,
    work: str,
    address: str | None,
    pattern: str,
    since: int | None,
    until: int | None,
    key: str,
    settle: str,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Send messages again that routes with `archive: true` kept in ARCHIVE, to the peer at URL.

    ARCHIVE is the state directory of a router, or its archive. A delivery that stands there several
    times is sent once. Needs the extra router[spark].
    """
    place = read_place(click.get_current_context(), _URL, url)
    assert isinstance(place, Place), "what it takes apart is right"
    with pipeline(need_arrow):
        from router.pipeline.amqp.options import Options  # noqa: PLC0415  an extra
        from router.pipeline.replay import send  # noqa: PLC0415
        from router.pipeline.selection import Selection, select  # noqa: PLC0415

        selection = Selection(since_ns=since, until_ns=until, address=pattern, key=key.lower())
        selected = select(archive, selection)
        options = Options(url=url, address="", store=work, guarantee=Guarantee(settle))
        sent = 0 if dry_run else send(selected, options, address)
    facts = {name: value for name, value in attrs.asdict(selected).items() if name != "payloads"}
    facts |= {"selected": selected.count, "sent": sent}
    if as_json:
        print_json(facts)
        return
    counts = [f"{facts[name]:,} {name}" for name in ("selected", "sent") if facts[name]]
    print_lines(", ".join([*counts, *selected.losses()]) or "nothing fits")


_URL: Final = click.Argument(["url"])
