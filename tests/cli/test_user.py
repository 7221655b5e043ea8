"""``router user``: adding, changing, listing, removing."""

from pathlib import Path

from click.testing import CliRunner, Result

from router.cli.main import main
from router.service.users import UserFile


def run(*arguments: str | Path, stdin: str = "") -> Result:
    return CliRunner().invoke(main, ["user", *map(str, arguments)], input=stdin)


def test_users_are_added_changed_listed_and_removed(tmp_path: Path) -> None:
    file = tmp_path / "users"
    assert run("add", file, "alice", stdin="pencil\n").output == "alice: added\n"
    assert UserFile(file).verify_plain("alice", "pencil")
    assert run("add", file, "alice", stdin="pen\n").output == "alice: changed\n"
    assert run("add", file, "bob", stdin="x\n").exit_code == 0
    assert run("list", file).output == "alice\nbob\n"
    assert run("remove", file, "alice").output == "alice: removed\n"
    assert run("list", file).output == "bob\n"
    assert not UserFile(file).verify_plain("alice", "pen")


def test_what_cannot_be_done_is_said(tmp_path: Path) -> None:
    file = tmp_path / "users"
    assert run("add", file, "alice", stdin="\n").exit_code == 2
    assert not file.exists()
    assert run("list", file).exit_code == 1
    run("add", file, "alice", stdin="x\n")
    refused = run("remove", file, "bob")
    assert refused.exit_code == 1
    assert "has no user bob" in refused.output
