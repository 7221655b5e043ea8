"""`router journal`: prints records of the journal and the ledger."""

import datetime
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

import attrs
import click

from router.cli.journal_store import accept, init, move, storage_of
from router.cli.output import json_text
from router.journal.ending import Ending
from router.journal.files import FileStorage
from router.journal.keys import LinkKey
from router.journal.record import (
    OutcomeCode,
    Record,
    RecordError,
    RecordFlag,
    RecordKind,
    Resolution,
    link_from_record,
)
from router.journal.segment import (
    NEWEST_NAME,
    Chain,
    SegmentScan,
    Tail,
    numbered,
    segment_name,
    snapshot_name,
)
from router.journal.sequence import SequenceFollower
from router.journal.storage import Storage
from router.model.text import shown
from router.service.journal import Store

FAILED: Final = 1
_NANOSECONDS: Final = 1_000_000_000
_KEY_OCTETS_SHOWN: Final = 8
_HEADINGS: Final = (
    f"{'time':<27} {'worker':>6} {'sequence':>10}  {'record':<14} {'delivery':<16} "
    f"{'outcome':<10} {'octets':>9}  link"
)


@attrs.define
class Findings:
    """Counts and defects of the files that were read.

    Attributes:
        records: number of records read.
        holes: number of missing records.
        damaged_octets: number of durable octets that cannot be read.
        torn_octets: number of octets torn off by a crash before they were durable.
        missing: number of missing segments.
        unread: number of files that are cut off, or cannot be read.
    """

    records: int = 0
    holes: int = 0
    damaged_octets: int = 0
    torn_octets: int = 0
    missing: int = 0
    unread: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether everything durable is there; a torn tail was never durable."""
        return not (self.holes or self.damaged_octets or self.missing or self.unread)


@attrs.frozen(kw_only=True)
class Selection:
    """Which records to show.

    Attributes:
        key: beginning of the delivery key, in hexadecimal digits.
        kinds: names of kinds, in lower case with hyphens; all if empty.
        own: whether to show the journal's own records, too.
    """

    key: str
    kinds: frozenset[str]
    own: bool

    def shows(self, record: Record, *, is_own: bool) -> bool:
        """Returns whether ``record`` is selected."""
        if is_own and not self.own:
            return False
        if self.kinds and _kind_name(record.kind) not in self.kinds:
            return False
        return not self.key or record.key.hex().startswith(self.key)


@click.group("journal")
def command() -> None:
    """Inspect the journal and the ledger; prepare and move a journal on PostgreSQL."""


command.add_command(accept)
command.add_command(init)
command.add_command(move)


@command.command("inspect")
@click.argument("paths", nargs=-1, type=click.Path(exists=True, path_type=Path), metavar="[PATH…]")
@click.option(
    "--config",
    metavar="CONFIG",
    help="Also the journal of the router of CONFIG, on PostgreSQL; default: none.",
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line, for programs.")
@click.option("--key", default="", help="Only deliveries whose key begins with these hex digits.")
@click.option(
    "--kind",
    "kinds",
    multiple=True,
    type=click.Choice([kind.name.lower().replace("_", "-") for kind in RecordKind]),
    help="Only records of this kind; may be repeated. Default: all.",
)
@click.option("--own", is_flag=True, help="Also the journal's own records: marks, fences, ends.")
def inspect(  # noqa: PLR0917 - click passes them by name
    paths: tuple[Path, ...],
    config: str | None,
    as_json: bool,
    key: str,
    kinds: tuple[str, ...],
    own: bool,
) -> None:
    """Print the records of segments, or of all segments in a directory.

    PATH is a segment, a directory of segments, or the state directory of a router: its journal.

    Reports segments and records that are missing (missing, holes), octets that were durable and
    cannot be read (damage), files that are cut off or cannot be read at all (cut, unread), and
    tails torn by a crash, which never were durable. Payloads are never printed.

    Exits with 0, or with 1 if anything durable is missing.
    """
    selection = Selection(key=key.lower(), kinds=frozenset(kinds), own=own)
    findings = Findings()
    places = [_place(path) for path in paths]
    if config is not None:
        storage = storage_of(config)
        places.append(Place(storage=storage, title=str(storage)))
    if not places:
        raise click.UsageError("name a PATH, or a router's file with --config")
    if not as_json:
        click.echo(_HEADINGS)
    for place in places:
        for line in _inspect(place, selection, findings, as_json=as_json):
            click.echo(line)
    if not as_json:
        if findings.missing:
            segments = "segment" if findings.missing == 1 else "segments"
            click.echo(f"{findings.missing} {segments} missing")
        if findings.unread:
            files = "file is" if findings.unread == 1 else "files are"
            click.echo(f"{findings.unread} {files} cut off, or cannot be read")
        click.echo(
            f"{findings.records} records, {findings.holes} missing, "
            f"{findings.damaged_octets} octets damaged, {findings.torn_octets} octets torn off"
        )
    if not findings.is_whole:
        sys.exit(FAILED)


@attrs.frozen(kw_only=True)
class Place:
    """Segments to inspect.

    Attributes:
        storage: where they are.
        title: of the place, for people.
        name: of the only one to read; None: all of them.
        may_lack_oldest: the oldest may be gone, though no snapshot stands for them.
    """

    storage: Storage
    title: str
    name: str | None = None
    may_lack_oldest: bool = False

    def newest(self) -> int:
        """Returns the number of the newest segment with durable records; 0: it is not recorded."""
        return 0 if self.name is not None else self.storage.newest()

    def ended(self) -> Ending:
        """Returns where the last segment ended that was closed in order."""
        return self.storage.ended()

    def names(self) -> list[str]:
        """Returns what to read, in order: the newest snapshot and the segments."""
        if self.name is not None:
            return [self.name]
        names = self.storage.names()
        snapshots = [snapshot_name(number) for number in numbered(names, "snapshot")]
        return [*snapshots[-1:], *map(segment_name, numbered(names, "segment"))]


def _place(path: Path) -> Place:
    """Finds the segments of a path.

    Raises:
        click.UsageError: it has no segments.
    """
    if not path.is_dir():
        return Place(storage=FileStorage(path.parent), title=path.name, name=path.name)
    for directory in (path, path / Store.JOURNAL):
        names = [file.name for file in directory.iterdir()] if directory.is_dir() else []
        if numbered(names, "segment") or NEWEST_NAME in names:
            return Place(
                storage=FileStorage(directory),
                title=str(directory),
                may_lack_oldest=directory.name == Store.ARCHIVE,
            )
    raise click.UsageError(f"there is no segment in {path}")


def _inspect(
    place: Place, selection: Selection, findings: Findings, *, as_json: bool
) -> Iterator[str]:
    """Yields the lines about one segment, or about all segments of a store in their order."""
    ending = place.ended()
    newest, chain = place.newest(), Chain()  # before listing the names: more may appear meanwhile
    is_chained = bool(newest) and not place.may_lack_oldest
    follower, links = SequenceFollower(), dict[LinkKey, str]()
    for name in place.names():
        file = place.storage.title(name)
        try:
            scan = SegmentScan(place.storage.read(name))
        except OSError as error:
            findings.unread += 1
            yield _note(file, "unread", {"reason": error.strerror or str(error)}, as_json=as_json)
            continue
        is_snapshot = name.endswith(".snapshot")
        number = _number(name)
        if is_snapshot or not (is_chained or chain.last):
            chain.last = number
        for _, block in scan.blocks():
            is_own = block.is_own
            if not is_snapshot and chain.follow(number, block):
                yield _missing_line(chain, place.title, findings, as_json=as_json)
            known_holes = len(follower.holes)
            if is_own or not is_snapshot:
                is_new = follower.is_new(block)
                yield from _hole_lines(follower, known_holes, file, findings, as_json=as_json)
                if not is_new:
                    continue
            try:
                for record in block.records():
                    findings.records += not is_own
                    _learn_link(record, links)
                    if selection.shows(record, is_own=is_own):
                        yield (_json_line(record, file) if as_json else _table_line(record, links))
            except RecordError as error:
                yield _note(file, "unreadable", {"reason": str(error)}, as_json=as_json)
        if is_snapshot:
            scan.end_snapshot()
        elif number == ending.segment and (cut := ending.cut(scan)) is not None:
            scan.damage.append(cut)
        yield from _end_lines(scan, file, findings, as_json=as_json)
        chain.last = max(chain.last, number)
    if chain.end(newest):
        yield _missing_line(chain, place.title, findings, as_json=as_json)


def _number(name: str) -> int:
    """Returns the number of a segment or snapshot; 0: the file has another name."""
    found = [*numbered([name], "segment"), *numbered([name], "snapshot")]
    return found[0] if found else 0


def _missing_line(chain: Chain, title: str, findings: Findings, *, as_json: bool) -> str:
    findings.missing += 1
    facts = {"segment": chain.missing[-1]}
    return _note(title, "missing", facts, as_json=as_json)


def _hole_lines(
    follower: SequenceFollower, known: int, file: str, findings: Findings, *, as_json: bool
) -> Iterator[str]:
    for hole in follower.holes[known:]:
        findings.holes += hole.last - hole.first + 1
        facts = {
            "worker": hole.origin.worker,
            "incarnation": hole.origin.incarnation,
            "first": hole.first,
            "last": hole.last,
        }
        yield _note(file, "hole", facts, as_json=as_json)


def _end_lines(scan: SegmentScan, file: str, findings: Findings, *, as_json: bool) -> Iterator[str]:
    for damage in scan.damage:
        findings.damaged_octets += damage.octets
        facts = {"offset": damage.offset, "octets": damage.octets}
        findings.unread += damage.is_end
        yield _note(file, "cut" if damage.is_end else "damage", facts, as_json=as_json)
    if scan.tail is Tail.TORN and scan.torn_octets:
        findings.torn_octets += scan.torn_octets
        facts = {"offset": scan.end, "octets": scan.torn_octets}
        yield _note(file, "torn", facts, as_json=as_json)


def _note(file: str, finding: str, facts: Mapping[str, int | str], *, as_json: bool) -> str:
    if as_json:
        return json_text({"type": finding, "file": file, **facts})
    listed = ", ".join(f"{name} {value}" for name, value in facts.items())
    return f"*** {finding}: {shown(listed)} ({Path(file).name})"


def _learn_link(record: Record, links: dict[LinkKey, str]) -> None:
    if record.kind == RecordKind.LINK_ATTACHED:
        link = link_from_record(record.incoming, record.outgoing, record.body)
        links[link.key] = shown(f"{link.remote}/{link.name}")


def _table_line(record: Record, links: Mapping[LinkKey, str]) -> str:
    names = [
        f"{arrow} {links.get(link, f'{link:016x}')}"
        for arrow, link in (("<-", record.incoming), ("->", record.outgoing))
        if link and record.kind not in {RecordKind.MARK, RecordKind.SEGMENT}
    ]
    key = record.key.hex()[: 2 * _KEY_OCTETS_SHOWN] if any(record.key) else ""
    return (
        f"{_time(record.time_ns):<27} {record.worker:>6} {record.sequence:>10}  "
        f"{_kind_name(record.kind):<14} {key:<16} {_outcome(record):<10} "
        f"{record.message_octets or '':>9}  {' '.join(names)}{_suffix(record)}"
    )


def _suffix(record: Record) -> str:
    flags = [
        flag.name.lower().replace("_", "-")
        for flag in RecordFlag
        if record.flags & flag and flag.name
    ]
    notes = [f"tag {_octets(record.tag)}"] if record.tag else []
    if record.address:
        notes.append(f"address {shown(record.address)}")
    notes += flags
    return f"  ({', '.join(notes)})" if notes else ""


def _json_line(record: Record, file: str) -> str:
    facts: dict[str, object] = {
        "type": "record",
        "file": file,
        "kind": _kind_name(record.kind),
        "worker": record.worker,
        "incarnation": record.incarnation,
        "sequence": record.sequence,
        "time_ns": record.time_ns,
    }
    if any(record.key):
        facts["delivery"] = record.key.hex()
    for name, link in (("incoming", record.incoming), ("outgoing", record.outgoing)):
        if link:
            facts[name] = f"{link:016x}"
    if _outcome(record):
        facts["outcome"] = _outcome(record)
    if record.tag:
        facts["tag"] = record.tag.hex()
    for name in ("address", "message_octets", "message_format", "delivery_count", "guarantee"):
        if value := getattr(record, name):
            facts[name] = value
    if record.ttl_milliseconds is not None:
        facts["ttl_milliseconds"] = record.ttl_milliseconds
    if record.kind == RecordKind.LINK_ATTACHED:
        link_facts = attrs.asdict(
            link_from_record(record.incoming, record.outgoing, record.body),
            filter=attrs.filters.exclude("key", "terminus"),
        )
        facts["link"] = link_facts
    elif record.body:
        facts["body_octets"] = len(record.body)
    facts["flags"] = [flag.name for flag in RecordFlag if record.flags & flag]
    return json_text(facts)


def _time(time_ns: int) -> str:
    """Returns the time in UTC with microseconds."""
    seconds, rest = divmod(time_ns, _NANOSECONDS)
    moment = datetime.datetime.fromtimestamp(seconds, datetime.UTC)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{rest // 1000:06d}Z"


def _kind_name(kind: int) -> str:
    """Returns the name of a kind; one of a later version is shown as its number."""
    return kind.name.lower().replace("_", "-") if isinstance(kind, RecordKind) else f"kind-{kind}"


def _outcome(record: Record) -> str:
    if not record.outcome:
        return ""
    names = Resolution if record.kind == RecordKind.RESOLVED else OutcomeCode
    try:
        return names(record.outcome).name.lower().replace("_", "-")
    except ValueError:
        return f"{record.outcome:#04x}"


def _octets(octets: bytes) -> str:
    """Returns octets as text if they are printable ASCII, otherwise in hexadecimal."""
    if octets.isascii() and octets.decode("ascii").isprintable():
        return octets.decode("ascii")
    return octets.hex()
