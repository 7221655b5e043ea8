"""The marks that a move of the journal leaves in the state directory, and what they forbid.

    journal.moved-…     what was in ``journal`` is on PostgreSQL, or began there; ``moved-to`` in
                        it says where
    journal.returned-…  it was, and came back to files

``copied`` in the first one says that what is on PostgreSQL under these names is in files as well,
and only has to be removed there. The same goes for ``messages``. A move to files makes the first
mark, if it is missing, before it copies anything, and takes it away when PostgreSQL holds nothing
more. So whenever one of the two stores holds a journal, a router that is to use the other one sees
that, and does not begin a second journal beside it.
"""

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Final

from router.journal.disk import Disk
from router.journal.postgres.url import shown
from router.journal.segment import numbered
from router.service.config import RouterConfig

MOVED_TO: Final = "moved-to"
"""File in a mark: the URL of the database, without its password."""

_COPIED: Final = "copied"
_MOVED: Final = "moved"
_RETURNED: Final = "returned"
_JOURNAL: Final = "journal"


def held_in(directory: Path) -> bool:
    """Returns whether a directory holds segments or snapshots."""
    with contextlib.suppress(FileNotFoundError):
        names = [each.name for each in directory.iterdir()]
        return bool(numbered(names, "segment") or numbered(names, "snapshot"))
    return False


def marks_of(directory: Path) -> list[Path]:
    """Returns the marks that what was in a store's directory is on PostgreSQL, the newest last."""
    return sorted(directory.parent.glob(f"{directory.name}.{_MOVED}-*"))


def place_of(mark: Path) -> str | None:
    """Returns the URL of the database that a mark names; None: it names none."""
    try:
        return (mark / MOVED_TO).read_text().strip() or None
    except OSError:
        return None


def put_aside(directory: Path, place: str, now_ns: int) -> None:
    """Makes a mark of a store's directory, which was copied to the database ``place``."""
    _write(directory / MOVED_TO, [place])
    directory.rename(_mark(directory, now_ns))


def begin_return(directory: Path, place: str, now_ns: int) -> None:
    """Makes a mark before a store is copied from the database ``place`` to ``directory``."""
    if not marks_of(directory):
        mark = _mark(directory, now_ns)
        mark.mkdir(mode=0o700, parents=True)
        _write(mark / MOVED_TO, [place])


def note_begun(config: RouterConfig, directory: Path, now_ns: int) -> None:
    """Makes a mark when a router of this directory uses a store on PostgreSQL from the start."""
    store = config.router.journal.store
    if store is not None:
        begin_return(directory, shown(store.reveal()), now_ns)


def note_copied(directory: Path, names: Iterable[str]) -> None:
    """Notes that all of a store that is on its way back to ``directory`` has come."""
    _write(marks_of(directory)[-1] / _COPIED, sorted(names))


def was_copied(directory: Path, names: Iterable[str]) -> bool:
    """Returns whether an earlier try has copied all, and nothing has been added since.

    Args:
        directory: of the store in files.
        names: of what is on PostgreSQL now; a router that used it there has begun a segment.
    """
    try:
        copied = (marks_of(directory)[-1] / _COPIED).read_text().split()
    except (IndexError, FileNotFoundError):
        return False
    return set(names) <= set(copied)


def end_return(directory: Path) -> None:
    """Takes the marks away: the store is in files, and nowhere else."""
    for mark in marks_of(directory):
        stem, _, when = mark.name.rpartition(f".{_MOVED}-")
        mark.rename(mark.with_name(f"{stem}.{_RETURNED}-{when}"))


def _write(path: Path, lines: Iterable[str]) -> None:
    with path.open("w") as file:
        file.writelines(f"{line}\n" for line in lines)
        file.flush()
        os.fsync(file.fileno())
    Disk().sync_directory(path.parent)


def _mark(directory: Path, now_ns: int) -> Path:
    return directory.with_name(f"{directory.name}.{_MOVED}-{now_ns}")


def why_not_files(config: RouterConfig, directory: Path) -> str | None:
    """Returns why a store may not be used in files; None: it may.

    Segments of a journal beside a mark are those of a router that has run since the journal came
    back: a move brings a snapshot alone. Segments of messages may be half a move.
    """
    marks = marks_of(directory)
    is_journal = directory.name == _JOURNAL
    if not marks or (is_journal and any(directory.glob("*.segment"))):
        return None
    mark, place = marks[-1], place_of(marks[-1]) or "PostgreSQL"
    again = "name that in router.journal.store again"
    if config.router.journal.store is not None:
        again = "write in: journal at store of its routes"
    return (
        f"what belongs here is on {place}, says {mark.name}:"
        f" {again}; or bring it back with `router journal move {config.file} --to files`, which"
        f" needs it named there, and write files then; or, if it is to be forgotten, move {mark}"
        f" out of {mark.parent}"
    )


def why_not_postgres(config: RouterConfig, directory: Path) -> str | None:
    """Returns why a store may not be used on PostgreSQL; None: it may."""
    if not held_in(directory):
        return None
    store = config.router.journal.store
    place = "PostgreSQL" if store is None else shown(store.reveal())
    what = "a journal" if directory.name == _JOURNAL else "stored messages"
    found = f"it holds {what}, and router.journal.store names {place}"
    move = f"router journal move {config.file} --to"
    if why_not_files(config, directory) is not None:
        return f"{found}: a move to files has not ended; end it with `{move} files`"
    return (
        f"{found}: move what is here there with `{move} postgresql`, or set router.journal.store"
        " to files"
    )
