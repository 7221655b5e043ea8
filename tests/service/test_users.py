"""Files of users: what is kept, what it proves, and what happens when the file changes."""

import os
from pathlib import Path

import pytest

from router.service.users import (
    UserFile,
    UserFileError,
    hash_password,
    read_users,
    write_users,
)
from router.wire.mechanisms import MechanismClient, MechanismServer
from router.wire.sasl import Challenge, Success


def make(path: Path, **passwords: str) -> Path:
    write_users(path, {user: hash_password(password) for user, password in passwords.items()})
    return path


def test_the_file_has_no_passwords_and_is_its_owners(tmp_path: Path) -> None:
    path = make(tmp_path / "users", alice="correct horse")
    assert "horse" not in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o600
    assert [each.name for each in tmp_path.iterdir()] == ["users"]


def test_names_of_any_kind_come_back(tmp_path: Path) -> None:
    users = {name: hash_password("x") for name in ("a b", "#c", "mü", "a%20b", "cn=x,o=y")}
    write_users(tmp_path / "users", users)
    assert read_users(tmp_path / "users") == users


def test_plain_is_checked_twice_the_slow_and_the_quick_way(tmp_path: Path) -> None:
    users = UserFile(make(tmp_path / "users", alice="pencil"))
    for _ in range(2):
        assert users.verify_plain("alice", "pencil")
        assert not users.verify_plain("alice", "pen")
        assert not users.verify_plain("bob", "pencil")
        assert not users.verify_plain("bob", "")


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_scram_is_checked_with_the_same_file(tmp_path: Path, mechanism: str) -> None:
    users = UserFile(make(tmp_path / "users", alice="pencil"))
    server = MechanismServer(offer=(mechanism,), find_secret=users.find_secret)
    client = MechanismClient(user="alice", password="pencil")
    choice = client.choose(server.mechanisms)
    assert choice is not None
    first = server.start(*choice)
    assert isinstance(first, Challenge)
    assert isinstance(server.step(client.step(first.octets)), Success)


def test_a_changed_file_holds_at_once_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    path = make(tmp_path / "users", alice="old")
    users = UserFile(path)
    assert users.verify_plain("alice", "old")
    make(path, alice="new")
    assert not users.verify_plain("alice", "old")
    assert users.verify_plain("alice", "new")
    path.write_text("alice nonsense\n")
    os.utime(path, ns=(1, 1))
    assert users.verify_plain("alice", "new")
    path.unlink()
    assert users.verify_plain("alice", "new")


@pytest.mark.parametrize("text", ["alice\n", "alice x:y\n", "\n# ok\nbob SCRAM-SHA-256:1:a:b:c"])
def test_a_line_that_is_none_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "users"
    path.write_text(text)
    with pytest.raises(UserFileError, match=r"users: line [13]: "):
        UserFile(path)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserFileError, match="none: No such file"):
        UserFile(tmp_path / "none")
