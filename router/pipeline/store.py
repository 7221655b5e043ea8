"""Whole files in a directory that is a path of this machine or the URL of a shared store.

A file appears with all of its octets or not at all. A local directory gets it by rename, after a
flush to disk; an object store shows an object when its upload has ended; other file systems get a
temporary file and a rename. URLs are those that Spark's file systems know: ``s3a://``, ``hdfs://``,
``abfs://``, ``gs://``, ``file://``; PyArrow opens them, so no Java is needed. Credentials and the
endpoint come from the environment, as PyArrow documents it (``AWS_ENDPOINT_URL``, …).
"""

import contextlib
import os
import re
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, Protocol

import attrs

from router.errors import RouterError
from router.journal.disk import Disk

_URL: Final = re.compile(r"([a-z][a-z0-9+.-]*):/", re.IGNORECASE)
_AS_PYARROW_HAS_IT: Final = {"s3a": "s3", "s3n": "s3", "abfss": "abfs"}
OBJECT_STORES: Final = frozenset(("s3", "gcs", "abfs"))
"""File systems of PyArrow that show a file only when it is complete."""


class StoreError(RouterError):
    """A store's URL cannot be opened."""


class Store(Protocol):
    """A directory of whole files."""

    def sizes(self) -> Mapping[str, int]:
        """Returns the files in the directory with their sizes in octets."""

    def times(self) -> Mapping[str, float]:
        """Returns the files with the time of their last change, in seconds since 1970."""

    def read(self, name: str) -> bytes | None:
        """Returns the octets of a file; None: there is none of that name."""

    def write(self, name: str, octets: bytes) -> None:
        """Writes a file, replacing an existing one; durable on return."""

    def create(self, name: str, octets: bytes) -> bool:
        """Writes a file unless there is one of that name; returns whether it was written."""

    def remove(self, name: str) -> None:
        """Removes a file, if it exists."""


def local_path(place: str) -> Path | None:
    """Returns the path of a local directory, given as path or ``file:`` URL; None: of another."""
    found = _URL.match(place)
    if found is None:
        return Path(place)
    if found[1].lower() != "file":
        return None
    return Path("/" + place[len("file:") :].lstrip("/"))


def open_store(place: str) -> Store:
    """Opens a directory by its path or URL; it is made when the first file is written.

    Raises:
        StoreError: PyArrow does not know the URL's scheme, or cannot connect.
    """
    path = local_path(place)
    return LocalStore(path) if path is not None else RemoteStore.open(place)


@attrs.frozen
class LocalStore:
    """A directory of this machine, or one that is mounted on it."""

    directory: Path

    def sizes(self) -> Mapping[str, int]:
        """Returns the files in the directory with their sizes in octets."""
        return {name: status.st_size for name, status in self._statuses()}

    def times(self) -> Mapping[str, float]:
        """Returns the files with the time of their last change, in seconds since 1970."""
        return {name: status.st_mtime for name, status in self._statuses()}

    def read(self, name: str) -> bytes | None:
        """Returns the octets of a file; None: there is none of that name."""
        with contextlib.suppress(FileNotFoundError):
            return (self.directory / name).read_bytes()
        return None

    def write(self, name: str, octets: bytes) -> None:
        """Writes a file, replacing an existing one; durable on return."""
        self._aside(name, octets).replace(self.directory / name)
        Disk().sync_directory(self.directory)

    def create(self, name: str, octets: bytes) -> bool:
        """Writes a file unless there is one of that name; returns whether it was written."""
        aside = self._aside(name, octets)
        try:
            os.link(aside, self.directory / name)
        except FileExistsError:
            return False
        finally:
            aside.unlink()
        Disk().sync_directory(self.directory)
        return True

    def remove(self, name: str) -> None:
        """Removes a file, if it exists."""
        (self.directory / name).unlink(missing_ok=True)

    def _statuses(self) -> Iterator[tuple[str, os.stat_result]]:
        with contextlib.suppress(FileNotFoundError):
            for entry in os.scandir(self.directory):
                if not entry.name.startswith(".") and entry.is_file():
                    with contextlib.suppress(FileNotFoundError):
                        yield entry.name, entry.stat()

    def _aside(self, name: str, octets: bytes) -> Path:
        self.directory.mkdir(parents=True, exist_ok=True)
        aside = self.directory / f".{name}.{uuid.uuid4().hex}"
        with aside.open("wb") as file:
            file.write(octets)
            file.flush()
            os.fsync(file.fileno())
        return aside


@attrs.frozen
class RemoteStore:
    """A directory on a file system that PyArrow knows.

    ``create`` looks before it writes: where two writers come at the same moment, the later one
    wins. Whoever needs more has to make sure that there is one writer at a time.
    """

    system: Any
    directory: str

    @classmethod
    def open(cls, url: str) -> "RemoteStore":
        """Opens a URL.

        Raises:
            StoreError: PyArrow does not know the URL's scheme, or cannot connect.
        """
        from pyarrow import ArrowException, fs  # noqa: PLC0415  an extra

        scheme, _, rest = url.partition(":")
        scheme = _AS_PYARROW_HAS_IT.get(scheme.lower(), scheme.lower())
        try:
            system, directory = fs.FileSystem.from_uri(f"{scheme}:{rest}")
        except (ArrowException, OSError, ValueError) as error:
            raise StoreError(f"{url}: {error}") from None
        return cls(system, directory.rstrip("/"))

    def sizes(self) -> Mapping[str, int]:
        """Returns the files in the directory with their sizes in octets."""
        return {each.base_name: each.size for each in self._files()}

    def times(self) -> Mapping[str, float]:
        """Returns the files with the time of their last change, in seconds since 1970."""
        return {each.base_name: each.mtime.timestamp() for each in self._files()}

    def read(self, name: str) -> bytes | None:
        """Returns the octets of a file; None: there is none of that name."""
        with (
            contextlib.suppress(FileNotFoundError),
            self.system.open_input_stream(f"{self.directory}/{name}", compression=None) as file,
        ):
            octets: bytes = file.read()
            return octets
        return None

    def write(self, name: str, octets: bytes) -> None:
        """Writes a file, replacing an existing one; durable on return."""
        final = f"{self.directory}/{name}"
        if self.system.type_name in OBJECT_STORES:
            self._put(final, octets)
            return
        self.system.create_dir(self.directory, recursive=True)
        aside = f"{self.directory}/.{name}.{uuid.uuid4().hex}"
        self._put(aside, octets)
        self.system.move(aside, final)

    def create(self, name: str, octets: bytes) -> bool:
        """Writes a file unless there is one of that name; returns whether it was written."""
        if self.read(name) is not None:
            return False
        self.write(name, octets)
        return True

    def remove(self, name: str) -> None:
        """Removes a file, if it exists."""
        with contextlib.suppress(FileNotFoundError):
            self.system.delete_file(f"{self.directory}/{name}")

    def _files(self) -> list[Any]:
        from pyarrow import fs  # noqa: PLC0415  an extra

        found = self.system.get_file_info(fs.FileSelector(self.directory, allow_not_found=True))
        return [
            each
            for each in found
            if each.type == fs.FileType.File and not each.base_name.startswith(".")
        ]

    def _put(self, path: str, octets: bytes) -> None:
        with self.system.open_output_stream(path, compression=None) as file:
            file.write(octets)
