"""``router traffic``: who sends how much to whom, from one or many routers' ledgers."""

import datetime
from typing import TYPE_CHECKING

import attrs
import click

from router.cli.audit import DAY, day_of
from router.cli.output import print_json, print_lines
from router.cli.pipeline import pipeline, read_ledgers
from router.model.text import shown
from router.pipeline.extra import need_spark
from router.pipeline.session import MASTER_HELP, spark_session

if TYPE_CHECKING:
    from router.pipeline.traffic import Traffic


@click.command("traffic")
@click.argument("ledgers", nargs=-1, required=True, metavar="LEDGER...", callback=read_ledgers)
@click.option("--since", type=DAY, callback=day_of, help="First day, UTC; default: the first.")
@click.option("--until", type=DAY, callback=day_of, help="Last day, UTC; default: the last.")
@click.option(
    "--span",
    "seconds",
    metavar="SECONDS",
    type=click.IntRange(min=1),
    default=3600,
    show_default=True,
    help="Length of the interval for rates.",
)
@click.option("--master", metavar="URL", help=MASTER_HELP)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON; default: tables.")
@click.option(
    "--follow",
    is_flag=True,
    help="Count by minute as files arrive, until interrupted; needs --out and --checkpoint.",
)
@click.option("--once", "is_once", is_flag=True, help="With --follow: end after the last file.")
@click.option(
    "--out", metavar="DIR", help="With --follow: directory of the counts by minute, as Parquet."
)
@click.option("--checkpoint", metavar="DIR", help="With --follow: directory of the progress.")
@click.option(
    "--alert",
    "bad_percent",
    metavar="PERCENT",
    type=click.FloatRange(min=0),
    default=1.0,
    show_default=True,
    help="With --follow: print minutes in which this many were rejected or in doubt.",
)
def command(
    *,
    ledgers: tuple[str, ...],
    since: datetime.date | None,
    until: datetime.date | None,
    seconds: int,
    master: str | None,
    as_json: bool,
    follow: bool,
    is_once: bool,
    out: str | None,
    checkpoint: str | None,
    bad_percent: float,
) -> None:
    """Tell what LEDGER... says was carried: between whom, when, how fast, who most.

    Needs the extra router[spark] and Java.
    """
    if follow and (out is None or checkpoint is None or len(ledgers) != 1):
        raise click.UsageError("--follow needs one LEDGER, --out and --checkpoint")
    with pipeline(need_spark):
        from router.pipeline.leases import reading  # noqa: PLC0415  an extra
        from router.pipeline.traffic import Alert, summarize  # noqa: PLC0415  an extra
        from router.pipeline.traffic import follow as begin  # noqa: PLC0415

        def alert(found: Alert) -> None:
            print_json({"event": "traffic.alert", **attrs.asdict(found)})

        with spark_session("router traffic", master) as spark:
            if follow:
                begin(
                    spark,
                    ledgers[0],
                    checkpoint=str(checkpoint),
                    out=str(out),
                    alert=alert,
                    bad_percent=bad_percent,
                    is_once=is_once,
                ).awaitTermination()
                return
            with reading(ledgers):
                found = summarize(spark, ledgers, since=since, until=until, seconds=seconds)
    if as_json:
        print_json(attrs.asdict(found))
    else:
        print_lines(*_lines(found))


def _lines(traffic: "Traffic") -> list[str]:
    """Returns the lines that present the result to people."""
    lines = [
        f"{'address':<24}{'from':<28}{'to':<28}{'deliveries':>12}{'octets':>16}"
        f"{'50 %':>10}{'99 %':>10}"
    ]
    for cell in traffic.matrix[:40]:
        half, most = (
            (f"{cell.milliseconds[0]:.3g} ms", f"{cell.milliseconds[2]:.3g} ms")
            if cell.milliseconds
            else ("", "")
        )
        source = f"{shown(cell.source)} @{cell.from_site}"
        target = f"{shown(cell.target)} @{cell.to_site}"
        lines.append(
            f"{shown(cell.address):<24}{source:<28}{target if cell.target else '-':<28}"
            f"{cell.deliveries:>12,}{cell.octets:>16,}{half:>10}{most:>10}"
        )
    lines += ["", f"{'from':<28}{'address':<24}{'a second':>12}{'octets a second':>18}"]
    for span in traffic.spans[-48:]:
        lines.append(
            f"{span.start:<28}{shown(span.address):<24}{span.deliveries / traffic.seconds:>12,.1f}"
            f"{span.octets / traffic.seconds:>18,.0f}"
        )
    lines += ["", f"{'container':<28}{'':<10}{'deliveries':>12}{'octets':>16}"]
    for talker in traffic.talkers:
        lines.append(
            f"{shown(talker.container):<28}{talker.direction:<10}{talker.deliveries:>12,}"
            f"{talker.octets:>16,}"
        )
    return lines
