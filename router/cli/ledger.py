"""``router ledger``: makes the ledger that the pipeline reads, merges its files, describes it."""

import datetime
import json
from pathlib import Path

import attrs
import click

from router.cli.pipeline import pipeline
from router.pipeline.extra import need_arrow


@click.group("ledger")
def command() -> None:
    """Make and describe the ledger that `router audit` and `router traffic` read."""


@command.command("compact")
@click.argument("state", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--out",
    "out",
    metavar="LEDGER",
    required=True,
    help="Directory of the ledger, or its URL as s3a://, hdfs://, abfs:// or gs://; made if it does"
    " not exist. Routers may share one.",
)
@click.option(
    "--open",
    "includes_open",
    is_flag=True,
    help="Also the segment that is not sealed, of a router that was killed; default: off.",
)
@click.option(
    "--remove",
    "removes",
    is_flag=True,
    help="Remove segments that the journal has handed over (STATE/segments) once they are"
    " compacted; default: off.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON; default: a line.")
def compact(state: Path, out: str, includes_open: bool, removes: bool, as_json: bool) -> None:
    """Make Parquet files of the journal segments in STATE, the state directory of a router.

    Repeating it is harmless: the same segment gives the same file. A running router may go on.
    Needs the extra router[spark]; no Java, no Spark.
    """
    with pipeline(need_arrow):
        from router.pipeline.compaction import compact as make  # noqa: PLC0415  an extra

        report = make(state, out, includes_open=includes_open, removes=removes)
    if as_json:
        click.echo(json.dumps(attrs.asdict(report)))
        return
    click.echo(
        f"{report.segments} segments, {report.rows:,} records in {len(report.files)} files;"
        f" {report.missing} missing, {report.damaged_octets} octets damaged"
    )


@command.command("merge")
@click.argument("ledger", metavar="LEDGER")
@click.option(
    "--older-than",
    "older_days",
    metavar="DAYS",
    type=click.IntRange(min=0),
    default=2,
    show_default=True,
    help="Merge days that ended more than this many days ago (UTC).",
)
@click.option(
    "--keep",
    "keep_days",
    metavar="DAYS",
    type=click.IntRange(min=1),
    help="Remove days that ended more than this many days ago; default: keep all.",
)
@click.option(
    "--size",
    "megaoctets",
    metavar="MB",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    help="Size that a file should have; files of half that size are left as they are.",
)
@click.option(
    "--wait",
    "patience_seconds",
    metavar="SECONDS",
    type=click.FloatRange(min=0),
    default=600.0,
    show_default=True,
    help="How long to wait for audits and reports that are reading the ledger.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON; default: a line.")
def merge(
    *,
    ledger: str,
    older_days: int,
    keep_days: int | None,
    megaoctets: int,
    patience_seconds: float,
    as_json: bool,
) -> None:
    """Merge the small files of each day and router in LEDGER, a directory or a URL.

    Routers and audits may go on; a file is replaced only while no audit reads. Repeating it is
    harmless. Needs the extra router[spark]; no Java, no Spark.
    """
    with pipeline(need_arrow):
        from router.pipeline.merging import merge as make  # noqa: PLC0415  an extra

        report = make(
            ledger,
            datetime.datetime.now(datetime.UTC).date(),
            older_days=older_days,
            keep_days=keep_days,
            full_octets=megaoctets << 20,
            patience_seconds=patience_seconds,
        )
    if as_json:
        click.echo(json.dumps(attrs.asdict(report)))
        return
    click.echo(
        f"{report.merged} files merged to {len(report.files)}, {report.rows:,} records;"
        f" {report.removed} removed"
    )


@command.command("schema")
def schema() -> None:
    """Print the columns of the ledger, with type, unit and meaning, and what each code means."""
    from router.pipeline.schema import (  # noqa: PLC0415  beside its only user
        LEDGER,
        NAMES,
        PARTITIONS,
        enumerations,
    )

    for column in (*PARTITIONS, *LEDGER, *NAMES):
        kind = column.type + (" or null" if column.nullable else "")
        unit = f" ({column.unit})" if column.unit else ""
        click.echo(f"{column.name:<18} {kind:<20} {column.help}{unit}")
    for name, codes in enumerations().items():
        click.echo("")
        for code, text in codes.items():
            click.echo(f"{name:<18} {code:<20} {text}")
