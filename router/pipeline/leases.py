"""Keeps ``router ledger merge`` from replacing files that somebody is reading.

Both leave small files beside the ledger, in ``.LEDGER.unfinished``; whoever is alive writes its own
anew every minute, and one that is ten minutes old belongs to nobody any more:

    reader-*     an audit or a report lists and reads files
    merging      merged files are being made
    replacing    they replace others

    reader       writes reader-*; while there is ``replacing``, waits; lists files, reads them
    merge        writes ``replacing``; if there is a reader, takes it back, and tries again later

Whichever of the two writes first is seen by the other. A reader that cannot write beside the ledger
reads without, as programs do that know nothing of this: they may miss a file that they have listed.
"""

import contextlib
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from router.errors import RouterError
from router.pipeline.store import Store
from router.pipeline.tree import Tree

RENEW_SECONDS: Final = 60.0
STALE_SECONDS: Final = 600.0
"""Age at which a file belongs to nobody: ten renewals."""

POLL_SECONDS: Final = 0.5

_READER: Final = "reader-"
_MERGING: Final = "merging"
_REPLACING: Final = "replacing"


class InUseError(RouterError):
    """Somebody is reading the ledger, or merging its files."""


@contextmanager
def reading(ledgers: Sequence[str]) -> Iterator[None]:
    """Keeps the files of ledgers from being replaced, if possible.

    Args:
        ledgers: directories, as paths or URLs.
    """
    with contextlib.ExitStack() as stack:
        for ledger in ledgers:
            with contextlib.suppress(RouterError, OSError):
                aside = Tree.open(ledger).aside()
                store = aside.store()
                stack.callback(aside.leave)
                stack.enter_context(_held(store, f"{_READER}{uuid.uuid4().hex}"))
                while _alive(store, _REPLACING):
                    time.sleep(POLL_SECONDS)
        yield


@contextmanager
def merging(aside: Tree) -> Iterator[None]:
    """Keeps other merges away. What two of them do at once is wasted, and does no harm.

    Args:
        aside: the directory beside the ledger.

    Raises:
        InUseError: another merge is under way, or died in the last ten minutes.
    """
    store = aside.store()
    try:
        with _held(store, f"{_MERGING}-{uuid.uuid4().hex}") as name:
            if _alive(store, _MERGING, name):
                raise InUseError(f"{aside.root}: another merge is under way")
            yield
    finally:
        aside.leave()


@contextmanager
def replacing(aside: Tree, patience_seconds: float) -> Iterator[None]:
    """Waits until nobody reads, and keeps new readers waiting.

    Args:
        aside: the directory beside the ledger.
        patience_seconds: how long to wait for readers.

    Raises:
        InUseError: somebody still reads.
    """
    store = aside.store()
    until = time.monotonic() + patience_seconds
    while True:
        with _held(store, _REPLACING):
            if not _alive(store, _READER):
                yield
                return
        if time.monotonic() >= until:
            raise InUseError(f"{aside.root}: an audit or a report is reading; nothing was replaced")
        time.sleep(POLL_SECONDS)


@contextmanager
def _held(store: Store, name: str) -> Iterator[str]:
    """Has a file there, young, until the end."""
    store.write(name, b"")
    is_over = threading.Event()

    def renew() -> None:
        while not is_over.wait(RENEW_SECONDS):
            with contextlib.suppress(OSError):
                store.write(name, b"")

    thread = threading.Thread(target=renew, daemon=True)
    thread.start()
    try:
        yield name
    finally:
        is_over.set()
        thread.join()
        store.remove(name)


def _alive(store: Store, prefix: str, own: str = "") -> bool:
    """Returns whether there is a file of that prefix that somebody else keeps young.

    Ages are by the store's clock: that of the latest file, ours among them, is now.
    """
    times = store.times()
    now = max(times.values(), default=0.0)
    return any(
        name.startswith(prefix) and name != own and now - modified < STALE_SECONDS
        for name, modified in times.items()
    )
