"""The files of a ledger, in a directory of this machine or under the URL of a shared store.

PyArrow opens either, as ``store`` says. A file is made beside the ledger, in ``.NAME.unfinished``,
and moved to its place when it is complete: by rename, or on an object store by a copy within it,
which shows the object when it is whole.
"""

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import attrs

from router.journal.disk import Disk
from router.pipeline.store import (
    OBJECT_STORES,
    LocalStore,
    RemoteStore,
    Store,
    StoreError,
    local_path,
)

_ASIDE: Final = ".{}.unfinished"


@attrs.frozen(kw_only=True)
class File:
    """A file.

    Attributes:
        name: path below the directory, with ``/``.
        octets: its size.
    """

    name: str
    octets: int


@attrs.frozen
class Tree:
    """A directory with all that is below it.

    Attributes:
        root: path of the directory in its file system.
        path: the same on this machine; None: it is elsewhere.
    """

    _remote: Any
    root: str
    path: Path | None

    @classmethod
    def open(cls, place: str) -> "Tree":
        """Opens a directory by its path or URL.

        Raises:
            StoreError: PyArrow does not know the URL's scheme, or cannot connect.
        """
        path = local_path(place)
        if path is not None:
            return cls(None, str(path.resolve()), path.resolve())
        remote = RemoteStore.open(place)
        return cls(remote.system, remote.directory, None)

    @property
    def system(self) -> Any:
        """File system, of ``pyarrow.fs``."""
        if self._remote is not None:
            return self._remote
        from pyarrow import fs  # noqa: PLC0415  an extra

        return fs.LocalFileSystem()

    def aside(self) -> "Tree":
        """Returns the directory beside this one for what is unfinished.

        Raises:
            StoreError: there is no place beside it.
        """
        above, _, name = self.root.rpartition("/")
        if not name or not above:
            raise StoreError(f"{self.root}: a ledger needs a folder of its own in the store")
        path = None if self.path is None else self.path.with_name(_ASIDE.format(name))
        return Tree(self._remote, f"{above}/{_ASIDE.format(name)}", path)

    def store(self) -> Store:
        """Returns the directory itself as a store of whole files."""
        return RemoteStore(self.system, self.root) if self.path is None else LocalStore(self.path)

    def exists(self) -> bool:
        """Returns whether there is such a directory; an object store has one if it has a file."""
        from pyarrow import fs  # noqa: PLC0415  an extra

        return bool(self.system.get_file_info(self.root).type == fs.FileType.Directory)

    def has(self, name: str) -> bool:
        """Returns whether there is a file of that name."""
        from pyarrow import fs  # noqa: PLC0415  an extra

        return bool(self.system.get_file_info(f"{self.root}/{name}").type == fs.FileType.File)

    def folders(self) -> list[str]:
        """Returns the names of the directories in it, sorted."""
        from pyarrow import fs  # noqa: PLC0415  an extra

        return sorted(e.base_name for e in self._infos("", False) if e.type != fs.FileType.File)

    def files(self, folder: str) -> list[File]:
        """Returns all files below one of its directories, sorted."""
        from pyarrow import fs  # noqa: PLC0415  an extra

        return sorted(
            (
                File(name=each.path[len(self.root) + 1 :], octets=each.size)
                for each in self._infos(f"/{folder}", True)
                if each.type == fs.FileType.File
            ),
            key=lambda file: file.name,
        )

    @contextmanager
    def reading(self, name: str) -> Iterator[Any]:
        """Opens a file to read."""
        with self.system.open_input_file(f"{self.root}/{name}") as file:
            yield file

    @contextmanager
    def writing(self, name: str) -> Iterator[Any]:
        """Opens a new file to write; durable at the end."""
        path = f"{self.root}/{name}"
        self._make_folder_of(name)
        with self.system.open_output_stream(path, compression=None) as file:
            yield file
        if self.path is not None:
            with open(path, "rb") as written:
                os.fsync(written.fileno())

    def place(self, aside: "Tree", unfinished: str, name: str) -> None:
        """Moves a file from ``aside`` to its place, replacing what is there."""
        self._make_folder_of(name)
        self.system.move(f"{aside.root}/{unfinished}", f"{self.root}/{name}")
        self._sync(name)

    def remove(self, name: str) -> None:
        """Removes a file, if it exists, and the directories that are empty then."""
        with contextlib.suppress(FileNotFoundError):
            self.system.delete_file(f"{self.root}/{name}")
        if self.path is None:
            return
        self._sync(name)
        for above in list((self.path / name).parents)[:-1]:
            if above == self.path:
                break
            with contextlib.suppress(OSError):
                above.rmdir()

    def changed_at(self, folder: str) -> float:
        """Returns when something in one of its directories changed last, in seconds since 1970."""
        there = [self.system.get_file_info(f"{self.root}/{folder}")]
        there += self._infos(f"/{folder}", True)
        return max((each.mtime.timestamp() for each in there if each.mtime), default=0.0)

    def remove_folder(self, folder: str) -> None:
        """Removes one of its directories with all that is in it, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            self.system.delete_dir(f"{self.root}/{folder}")

    def leave(self) -> None:
        """Removes the directory itself, if it is empty."""
        if self.path is not None:
            with contextlib.suppress(OSError):
                self.path.rmdir()

    def _infos(self, folder: str, is_recursive: bool) -> list[Any]:
        from pyarrow import fs  # noqa: PLC0415  an extra

        found: list[Any] = self.system.get_file_info(
            fs.FileSelector(f"{self.root}{folder}", recursive=is_recursive, allow_not_found=True)
        )
        return found

    def _make_folder_of(self, name: str) -> None:
        if self.path is not None:
            Disk().make_directory((self.path / name).parent)
        elif self.system.type_name not in OBJECT_STORES:
            self.system.create_dir(f"{self.root}/{name}".rpartition("/")[0], recursive=True)

    def _sync(self, name: str) -> None:
        if self.path is not None:
            with contextlib.suppress(FileNotFoundError):
                Disk().sync_directory((self.path / name).parent)
