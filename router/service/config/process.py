"""Section ``router``: the program itself."""

import enum
import os
import platform
from pathlib import Path

import attrs

from router.model.place import BindAddress, TcpAddress
from router.model.trace import Sampling
from router.service.config.addresses import Bind
from router.service.config.kinds import ListOf, OrWord
from router.service.config.options import Placed, Section, option
from router.service.config.references import Secret
from router.service.config.scalars import (
    FilePath,
    Flag,
    Octets,
    OneOf,
    PostgresUrl,
    Seconds,
    SecretText,
    Text,
    Whole,
)

DEFAULT_ADMIN = TcpAddress("127.0.0.1", 8672)


class LogFormat(enum.StrEnum):
    """Format of log lines."""

    AUTO = "auto"
    """``console`` on a terminal, otherwise ``json``."""
    CONSOLE = "console"
    JSON = "json"


class LogLevel(enum.StrEnum):
    """Least severity that is logged; debug has a line per delivery."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class OldSegments(enum.StrEnum):
    """Treatment of journal segments without unsettled deliveries."""

    RECLAIM = "reclaim"
    """Their files are reused."""
    KEEP = "keep"
    """They are kept for the pipeline, which removes them after compaction."""


class LedgerScope(enum.StrEnum):
    """Which routes' deliveries are in the ledger, unless a route says otherwise."""

    EXACTLY_ONCE = "exactly-once"
    ALL = "all"


class HomeScope(enum.StrEnum):
    """Which workers keep the links of exactly-once routes."""

    FIRST = "first"
    ALL = "all"
    """Those of direct routes and bridges; the first worker keeps the others."""


@attrs.frozen(kw_only=True)
class Admin(Placed):
    """The HTTP endpoint for status, metrics and control."""

    bind: BindAddress = option(
        Bind(), default=DEFAULT_ADMIN, help="where it listens: host:port or unix:/path"
    )
    token: Secret | None = option(
        SecretText(),
        default=None,
        help="bearer token that requests must have; required unless only this machine can connect",
    )
    tls_cert: Path | None = option(
        FilePath(), default=None, help="certificate chain (PEM); without one it speaks plain HTTP"
    )
    tls_key: Path | None = option(
        FilePath(), default=None, help="private key (PEM) of the certificate"
    )


@attrs.frozen(kw_only=True)
class Journal(Placed):
    """The log of unsettled deliveries, from which the ledger is made as well."""

    store: Secret | None = option(
        OrWord(PostgresUrl(), "files"),
        default=None,
        default_text="files",
        help="where it is kept: files (below router.state), or the URL of a PostgreSQL database"
        " (postgresql://USER@HOST/DATABASE), with which it outlives this machine; needs the extra"
        " router[postgres] and `router journal init`. TLS to the database as the URL's sslmode"
        " says",
    )
    standby: bool = option(
        Flag(),
        default=False,
        help="several routers with this file: one leads, and the others wait for its lease, answer"
        " peers with a redirect to it, and dial nobody; needs a store on PostgreSQL",
    )
    host: str | None = option(
        Text(r"[A-Za-z0-9._:-]{1,255}", "a name or an IP address"),
        default=None,
        default_text="the one that a listener binds",
        help="where peers reach this machine: a standby redirects peers of AMQP 1.0 there while"
        " this router leads",
    )
    segment_octets: int = option(
        Octets(minimum=1 << 20, maximum=1 << 32),
        default=64 << 20,
        help="size of one segment file, at most; on a small disk it is a 48th of that",
    )
    old_segments: OldSegments = option(
        OneOf(OldSegments),
        default=OldSegments.RECLAIM,
        help="segments in which everything is settled: reclaim, or keep for the pipeline",
    )


class Sample(enum.StrEnum):
    """Which deliveries have spans, unless a route says otherwise."""

    SENDER = "sender"
    """Those whose senders record the trace."""
    ALWAYS = "always"
    NEVER = "never"

    @property
    def sampling(self) -> Sampling | None:
        """The same as the rest of the program uses it."""
        return None if self is Sample.NEVER else Sampling(self.value)


@attrs.frozen(kw_only=True)
class Tracing(Placed):
    """Spans of deliveries, exported to OpenTelemetry by a process of its own."""

    endpoint: str = option(
        Text(r"https?://[^\s/]+(/\S*)?", "an URL such as http://127.0.0.1:4318"),
        help="collector that takes OTLP over HTTP; its path is /v1/traces, unless the URL has one."
        " Headers, certificates and the like come from the environment (OTEL_EXPORTER_OTLP_...)",
    )
    sample: Sample = option(
        OneOf(Sample),
        default=Sample.SENDER,
        help="deliveries that have spans: sender: those whose senders record the trace (flag"
        " sampled in traceparent); always: all; never: only those of routes that say so",
    )
    buffer_octets: int = option(
        Octets(minimum=1 << 20),
        default=512 << 20,
        help="most octets of journal segments that are kept while the collector is away",
    )


@attrs.frozen(kw_only=True)
class Compaction(Placed):
    """Parquet files of the journal's segments, for the pipeline."""

    directory: Path = option(
        FilePath(must_exist=False),
        help="where the ledger's Parquet files go; several routers may share it",
    )
    every_seconds: float = option(
        Seconds(1.0),
        default=300.0,
        help="interval at which a process of its own compacts sealed segments",
    )


def _one_per_core() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@attrs.frozen(kw_only=True)
class Router(Placed):
    """The program itself."""

    id: str = option(
        Text(r"[^\s/]{1,256}", "a name without blanks or '/'"),
        factory=lambda: platform.node() or "router",
        default_text="the host name",
        help="container-id that peers see (§2.4.1); different for every router",
    )
    workers: int = option(
        Whole(1, 256),
        factory=_one_per_core,
        default_text="one per core",
        unit="processes",
        help="worker processes that share the listeners",
    )
    homes: HomeScope = option(
        OneOf(HomeScope),
        default=HomeScope.FIRST,
        help="workers that keep the links of exactly-once routes: first: the first worker; all:"
        " each address of a direct route, and each group of containers that bridges connect, has"
        " one of all workers, so these routes use all cores. A reload refuses a file with another"
        " value, or without one that was given: it moves no links",
    )
    state: Path = option(
        FilePath(must_exist=False),
        default=Path("router-state"),
        default_text="./router-state",
        help="directory of journal and ledger, made if it does not exist; each router has its own:"
        " another process of the same id takes this one's place there",
    )
    admin: Admin | None = option(
        OrWord(Section(Admin, shorthand="bind"), "off"),
        factory=Admin,
        default_text="127.0.0.1:8672",
        help="HTTP endpoint: /livez /readyz /metrics, API and console; an address alone, the keys"
        " below, or off",
    )
    probes: BindAddress | None = option(
        OrWord(Bind(), "off"),
        default=None,
        default_text="off",
        help="separate address for /livez and /readyz, in plain HTTP and without a"
        " token, independent of load on router.admin: host:port or unix:/path; or off",
    )
    management: bool = option(
        Flag(),
        default=False,
        help="answer AMQP management requests (QUERY, READ) that are sent to $management; policy"
        " says by whom",
    )
    drain_seconds: float = option(
        Seconds(),
        default=30.0,
        help="how long a drain may take: deliveries finish, then connections are closed; what is"
        " not finished stays unsettled",
    )
    wait_for: tuple[str, ...] = option(
        ListOf(Text(), "container"),
        default=(),
        help="containers that must be connected before the router calls itself ready",
    )
    log_level: LogLevel = option(
        OneOf(LogLevel), default=LogLevel.INFO, help="least severity that is logged"
    )
    log_format: LogFormat = option(
        OneOf(LogFormat),
        default=LogFormat.AUTO,
        help="json, console, or auto: console on a terminal",
    )
    ledger: LedgerScope = option(
        OneOf(LedgerScope),
        default=LedgerScope.EXACTLY_ONCE,
        help="routes whose deliveries are recorded for `router audit`: exactly-once"
        " routes, or all. With all, other traffic costs some 10 us more a message,"
        " leaves the express lane, and waits for nothing",
    )
    journal: Journal = option(
        Section(Journal),
        factory=Journal,
        default_text="as below",
        help="the log of unsettled deliveries",
    )
    compaction: Compaction | None = option(
        OrWord(Section(Compaction, shorthand="directory"), "off"),
        default=None,
        default_text="off",
        help="makes Parquet files of journal segments for `router audit`, which are removed then;"
        " needs the extra router[spark]. A directory alone, the keys below, or off",
    )
    tracing: Tracing | None = option(
        OrWord(Section(Tracing, shorthand="endpoint"), "off"),
        default=None,
        default_text="off",
        help="exports a span of each traced delivery; needs the extra router[otel]. Routes that"
        " trace are recorded as with ledger: all. An endpoint alone, the keys below, or off",
    )
