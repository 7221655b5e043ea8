"""Whole files on any file system: there with all of their octets, or not at all."""

from pathlib import Path

import pytest
from pyarrow import fs

from router.pipeline.store import (
    LocalStore,
    RemoteStore,
    Store,
    StoreError,
    local_path,
    open_store,
)


@pytest.fixture(params=["local", "remote"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    directory = tmp_path / "some/where"
    if request.param == "local":
        return LocalStore(directory)
    return RemoteStore(fs.LocalFileSystem(), str(directory))


def test_a_directory_that_is_not_there_is_empty(store: Store) -> None:
    assert store.sizes() == {}
    assert store.read("x") is None
    store.remove("x")


def test_what_is_written_is_read_and_leaves_nothing_else(store: Store, tmp_path: Path) -> None:
    store.write("a", b"one")
    store.write("a", b"three")
    assert store.read("a") == b"three"
    assert store.create("b", b"")
    assert not store.create("b", b"later")
    assert store.read("b") == b""
    assert store.sizes() == {"a": 5, "b": 0}
    assert store.times().keys() == {"a", "b"}
    store.remove("a")
    assert [path.name for path in (tmp_path / "some/where").iterdir()] == ["b"]


def test_a_file_that_cannot_be_replaced_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalStore(tmp_path)
    store.write("a", b"one")

    def fails(*_: object) -> None:
        raise OSError("no space left")

    monkeypatch.setattr("os.fsync", fails)
    with pytest.raises(OSError, match="no space"):
        store.write("a", b"two")
    assert store.read("a") == b"one"
    assert store.sizes() == {"a": 3}


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ("a/b", "a/b"),
        ("/a b", "/a b"),
        ("file:///a/b", "/a/b"),
        ("file:/a/b", "/a/b"),
        ("s3a://bucket/a", None),
        ("hdfs://host:8020/a", None),
    ],
)
def test_a_place_is_a_path_or_a_url(place: str, path: str | None) -> None:
    assert local_path(place) == (None if path is None else Path(path))


def test_a_url_that_nobody_knows_is_refused_in_words() -> None:
    with pytest.raises(StoreError, match="gopher://x/y"):
        open_store("gopher://x/y")
