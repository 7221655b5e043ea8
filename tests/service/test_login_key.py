"""Users that do not exist look like those that do, at every worker and after a restart."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from router.service.config import Secret
from router.service.login_key import FILE_NAME, LoginKeyError, keep_key
from router.service.users import UserFile, WrittenUsers, hash_password, write_users
from router.wire.mechanisms import MechanismClient, MechanismServer
from router.wire.sasl import Challenge, Failure
from router.wire.scram import derive

MECHANISM = "SCRAM-SHA-256"

Users = WrittenUsers | UserFile


def written(tmp_path: Path) -> Users:
    return WrittenUsers({"alice": Secret("pencil")}, keep_key(tmp_path / "state"))


def filed(tmp_path: Path) -> Users:
    path = tmp_path / "users"
    if not path.exists():
        write_users(path, {"alice": hash_password("pencil")})
    return UserFile(path, keep_key(tmp_path / "state"))


BOTH = pytest.mark.parametrize("make", [written, filed])


def server_first(users: Users, name: str, mechanism: str = MECHANISM) -> dict[str, str]:
    server = MechanismServer(offer=(mechanism,), find_secret=users.find_secret)
    challenge = server.start(mechanism, f"n,,n={name},r=abcdef".encode())
    assert isinstance(challenge, Challenge)
    fields = dict(part.split("=", 1) for part in challenge.octets.decode().split(","))
    fields.pop("r")
    return fields


@BOTH
def test_what_is_told_of_a_name_is_the_same_at_every_worker_and_after_a_restart(
    make: Callable[[Path], Users], tmp_path: Path
) -> None:
    for name, mechanism in itertools.product(("alice", "nobody"), (MECHANISM, "SCRAM-SHA-512")):
        told = [server_first(make(tmp_path), name, mechanism) for _ in range(2)]
        assert told[0] == told[1]
        assert told[0]["i"] == "15000"
        assert len(told[0]["s"]) == 24


@BOTH
def test_salts_differ_by_name_by_mechanism_and_by_router(
    make: Callable[[Path], Users], tmp_path: Path
) -> None:
    folders = (tmp_path / "one", tmp_path / "two")
    for folder in folders:
        folder.mkdir()
    salts = [
        server_first(make(folder), name, mechanism)["s"]
        for folder in folders
        for name in ("alice", "nobody", "mallory")
        for mechanism in (MECHANISM, "SCRAM-SHA-512")
    ]
    assert len(set(salts)) == len(salts)


def why_refused(users: Users, name: str) -> str:
    server = MechanismServer(offer=(MECHANISM,), find_secret=users.find_secret)
    client = MechanismClient(user=name, password="pen", allowed=(MECHANISM,))
    choice = client.choose(server.mechanisms)
    assert choice is not None
    challenge = server.start(*choice)
    assert isinstance(challenge, Challenge)
    verdict = server.step(client.step(challenge.octets))
    assert isinstance(verdict, Failure)
    return verdict.reason


@BOTH
def test_a_wrong_password_fails_in_the_same_words_whoever_is_named(
    make: Callable[[Path], Users], tmp_path: Path
) -> None:
    users = make(tmp_path)
    assert why_refused(users, "alice").replace("alice", "nobody") == why_refused(users, "nobody")


def test_names_nobody_has_are_told_what_kinds_of_secrets_the_file_has(tmp_path: Path) -> None:
    path = tmp_path / "users"
    kinds = {(4096, 12), (20_000, 24)}
    users = {
        f"user{iterations}": {MECHANISM: derive(MECHANISM, "x", bytes(size), iterations)}
        for iterations, size in kinds
    }
    write_users(path, users)
    file = UserFile(path, keep_key(tmp_path))
    found = [file.find_secret(f"nobody{number}", MECHANISM) for number in range(50)]
    assert {(each.iterations, len(each.salt)) for each in found} == kinds
    assert not any(file.verify_plain(f"nobody{number}", "x") for number in range(3))


def test_the_same_work_is_done_for_every_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    worked: Iterator[int] = itertools.count()

    def counted(*arguments: object) -> object:
        next(worked)
        return derive(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr("router.service.users.derive", counted)
    users = WrittenUsers({"alice": Secret("pencil")}, keep_key(tmp_path))
    for name in ("alice", "nobody", "alice", "nobody"):
        users.find_secret(name, MECHANISM)
    assert next(worked) == 2, "once for each of them, and never again"


def test_a_password_that_scram_cannot_take_is_proved_by_nothing(tmp_path: Path) -> None:
    users = WrittenUsers({"alice": Secret("a\u0007b")}, keep_key(tmp_path))
    assert server_first(users, "alice")["i"] == "15000"


def test_the_secret_is_made_once_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    state = tmp_path / "deep/state"
    assert keep_key(state) == keep_key(state)
    assert (state / FILE_NAME).stat().st_mode & 0o777 == 0o600
    assert [each.name for each in state.iterdir()] == [FILE_NAME]
    assert "octets" not in repr(keep_key(state))


def test_what_is_no_secret_and_what_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / FILE_NAME).write_bytes(b"short")
    with pytest.raises(LoginKeyError, match=r"router.state: .*login.key: it has 5 octets"):
        keep_key(tmp_path)
    with pytest.raises(LoginKeyError, match=r"router.state: .*Not a directory"):
        keep_key(tmp_path / FILE_NAME / "below")
