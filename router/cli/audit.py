"""``router audit``: the verdict on every delivery, over one or many routers' ledgers."""

import datetime
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import attrs
import click

from router.cli.output import json_text, print_lines
from router.cli.pipeline import FAILED, pipeline, read_ledgers
from router.model.text import shown
from router.pipeline.extra import need_spark
from router.pipeline.session import MASTER_HELP, spark_session

if TYPE_CHECKING:
    from router.pipeline.audit import Audit

DAY = click.DateTime(formats=["%Y-%m-%d"])


def day_of(context: click.Context, parameter: click.Parameter, value: Any) -> datetime.date | None:
    """Parses a day."""
    return None if value is None else value.date()


@click.command("audit")
@click.argument("ledgers", nargs=-1, required=True, metavar="LEDGER...", callback=read_ledgers)
@click.option("--since", type=DAY, callback=day_of, help="First day, UTC; default: the first.")
@click.option("--until", type=DAY, callback=day_of, help="Last day, UTC; default: the last.")
@click.option(
    "--out",
    metavar="DIR",
    help="Where audit.json and, with --html, audit.html go: a directory, or a URL as s3a://,"
    " hdfs://, abfs:// or gs://; default: nowhere.",
)
@click.option("--html", "as_html", is_flag=True, help="Also a page with plots; needs --out.")
@click.option(
    "--carry",
    metavar="DIR",
    help="Read only what no earlier audit with this directory (or URL) has read; deliveries that"
    " were open then are judged again. Default: read everything.",
)
@click.option(
    "--grace",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=300.0,
    show_default=True,
    help="How long before the end of the ledgers a delivery must have been quiet to be called"
    " lost; 0 for routers that have ended.",
)
@click.option(
    "--horizon",
    metavar="DAYS",
    type=click.IntRange(min=1),
    default=7,
    show_default=True,
    help="With --carry: how many days late a file may come. A later one is reported and not read.",
)
@click.option(
    "--ended",
    metavar="ROUTER",
    multiple=True,
    help="This router has ended without recording it: what its ledger does not tell is missing, and"
    " not waited for. May be repeated; --carry remembers it.",
)
@click.option(
    "--deliveries", metavar="DIR", help="Write one row for each delivery there, as Parquet."
)
@click.option("--master", metavar="URL", help=MASTER_HELP)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON; default: lines.")
def command(
    *,
    ledgers: tuple[str, ...],
    since: datetime.date | None,
    until: datetime.date | None,
    out: str | None,
    as_html: bool,
    carry: str | None,
    grace: float,
    horizon: int,
    ended: tuple[str, ...],
    deliveries: str | None,
    master: str | None,
    as_json: bool,
) -> None:
    """Report for every delivery in LEDGER... whether it was delivered once.

    LEDGER is a directory that `router ledger compact` or a running router wrote, or a URL that
    Spark reads. Verdicts: delivered-once, duplicated, lost, in-doubt, rejected, released, expired,
    open; ledger-gap if the records that decide it are missing. Exits with 1 if anything was lost
    or duplicated. Needs the extra router[spark] and Java.
    """
    if as_html and out is None:
        raise click.UsageError("--html needs --out")
    with pipeline(need_spark):
        from router.pipeline.audit import audit  # noqa: PLC0415  an extra
        from router.pipeline.leases import reading  # noqa: PLC0415
        from router.pipeline.report import render  # noqa: PLC0415
        from router.pipeline.store import open_store  # noqa: PLC0415

        with spark_session("router audit", master) as spark, reading(ledgers):
            found = audit(
                spark,
                ledgers,
                since=since,
                until=until,
                carry=carry,
                grace_seconds=grace,
                horizon_days=horizon,
                ended=ended,
                deliveries_to=deliveries,
            )
        text = json_text(attrs.asdict(found), indent=2)
        if out is not None:
            store = open_store(out)
            store.write("audit.json", text.encode())
            if as_html:
                store.write("audit.html", render(found).encode())
    if as_json:
        click.echo(text)
    else:
        print_lines(*_lines(found))
    if found.failures:
        raise SystemExit(FAILED)


def _coverage(audit: "Audit") -> Iterator[str]:
    """Yields how far each ledger reaches, by which clock, and which files tell nothing."""
    from router.pipeline.stories import iso  # noqa: PLC0415  an extra

    clocks = {each.router: each for each in audit.clocks}
    for reach in audit.reaches:
        clock = clocks[reach.router]
        ends = ", where it ended" if reach.has_ended or reach.is_declared else ""
        ahead = ""
        if clock.reference != clock.router:
            ahead = (
                f"; its clock is {clock.ahead_ns / 1e9:+.3f} s from that of"
                f" {shown(clock.reference)}, within {clock.within_ns / 1e9:.3f} s"
            )
        lacks = f"; {len(reach.holes)} gaps" if reach.holes else ""
        where = iso(reach.reach_ns) if reach.reach_ns else "nowhere"
        yield f"  {shown(reach.router)} reaches to {where}{ends}{ahead}{lacks}"
    for router in audit.unseen[:10]:
        yield f"  {shown(router)}: no ledger of it was read"
    for name, files in (("too late, not read", audit.too_late), ("far future", audit.future)):
        for file in files[:10]:
            yield f"  {name}: {shown(file)}"


def _lines(audit: "Audit") -> list[str]:
    """Returns the lines that present the result to people."""
    lines = [
        f"{audit.records:,} records of {', '.join(audit.routers)}, {audit.since} to {audit.until}"
    ]
    lines += _coverage(audit)
    for name, count in audit.verdicts.items():
        if count:
            lines.append(f"  {name:<16}{count:>14,}")
    for name, count in audit.carried.items():
        if count:
            lines.append(f"  {name:<16}{count:>14,}   may still change")
    for each in audit.corrected:
        lines.append(f"  corrected        {each.deliveries:>13,}   {each.before}: {each.after}")
    for hole in audit.holes[:10]:
        what = "segments" if hole.is_of_segments else f"records of worker {hole.worker}:"
        lines.append(
            f"  missing: {what} {hole.first:,} to {hole.last:,}, router {shown(hole.router)}"
        )
    if audit.unrecorded:
        lines.append(f"  not recorded     {audit.unrecorded:>13,}   the journal was stuck")
    for offender in audit.offenders[:10]:
        lines.append(f"  {offender.verdict}: {offender.key} {shown(offender.address)}")
    return lines
