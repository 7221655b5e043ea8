"""``router otel``: exports the spans of traced deliveries to OpenTelemetry."""

import contextlib
import json
import os
from pathlib import Path
from typing import Final

import attrs
import click

from router.cli.interrupts import until_told
from router.cli.pipeline import pipeline
from router.pipeline.extra import need_otel

NICENESS: Final = 10


@click.group("otel")
def command() -> None:
    """Export the spans of traced deliveries to OpenTelemetry."""


@command.command("export")
@click.argument("state", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--endpoint",
    metavar="URL",
    required=True,
    help="Collector that takes OTLP over HTTP; its path is /v1/traces, unless the URL has one."
    " Headers, certificates and the like come from the environment (OTEL_EXPORTER_OTLP_...).",
)
@click.option(
    "--follow",
    "follows",
    is_flag=True,
    help="Go on until SIGTERM or Ctrl-C; a collector that is away is"
    " waited for. Default: end after what is there.",
)
@click.option(
    "--buffer",
    "buffer_octets",
    metavar="OCTETS",
    type=click.IntRange(min=1 << 20),
    default=512 << 20,
    show_default=True,
    help="Most octets of journal segments that are kept in STATE/spans while the collector is"
    " away; the oldest are dropped then.",
)
@click.option(
    "--parent",
    metavar="PID",
    type=click.IntRange(min=1),
    help="With --follow: end when this process, the parent, has ended; default: go on.",
)
@click.option(
    "--json", "as_json", is_flag=True, help="Print each change as JSON, one a line; default: text."
)
def export(
    *,
    state: Path,
    endpoint: str,
    follows: bool,
    buffer_octets: int,
    parent: int | None,
    as_json: bool,
) -> None:
    """Export the spans of traced deliveries from the journal in STATE, a router's state directory.

    The router does so by itself where router.tracing is given. A later run goes on where one ended
    or was killed; a span that is exported again has the same id. Needs the extra router[otel].
    """
    goes_on = until_told()
    with pipeline(need_otel):
        from router.pipeline import collector, otel  # noqa: PLC0415  an extra

        def report(health: otel.Health) -> None:
            if as_json:
                with contextlib.suppress(BrokenPipeError):  # nobody reads any more
                    click.echo(json.dumps(attrs.asdict(health)))
            elif health.trouble is not None and follows:
                click.echo(f"router: {health.trouble}; trying again", err=True)

        def is_wanted() -> bool:
            return goes_on() and parent in (None, os.getppid())

        os.nice(max(0, NICENESS - os.nice(0)))
        with otel.only_exporter(state, wait=lambda: follows and is_wanted()):
            exporter = otel.Exporter(
                state=state,
                send=collector.collector(endpoint),
                where=endpoint,
                buffer_octets=buffer_octets,
                report=report,
                is_wanted=is_wanted,
            )
            exporter.run(follows=follows)
        health = exporter.health
        if not as_json:
            count = f"{health.exported} spans exported; {health.dropped} segments dropped unread"
            click.echo(count)
        if health.refused and not follows:
            raise otel.ExportError(f"{health.refused} spans were dropped: {health.refusal}")
