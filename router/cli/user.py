"""``router user``: files of users with hashed passwords, for ``sasl.users`` of a listener."""

import sys
from pathlib import Path

import click

from router.cli.output import LINE_MOST, TEXT, print_lines
from router.model.text import shown
from router.service.users import UserFileError, hash_password, read_users, write_users
from router.wire.sasl import ScramSecret


@click.group("user")
def command() -> None:
    """Keep a file of users whose passwords are hashed.

    A listener takes it as sasl.users, for SCRAM and PLAIN. A running router sees changes at once.
    """


_FILE = click.argument("file", type=click.Path(path_type=Path, dir_okay=False))


@command.command("add")
@_FILE
@click.argument("user", type=TEXT)
def add(file: Path, user: str) -> None:
    """Add USER to FILE, or give USER another password.

    The password is asked for, or read from the first line of standard input if that is no
    terminal. FILE is made if it is not there.
    """
    if not user or "\0" in user:
        raise click.UsageError("this is not a user")
    users = _read(file) if file.exists() else {}
    if sys.stdin.isatty():
        password = click.prompt("Password", hide_input=True, confirmation_prompt=True)
    else:
        password = sys.stdin.readline().rstrip("\r\n")
    if not password:
        raise click.UsageError("there is no password")
    is_new = user not in users
    try:
        users[user] = hash_password(password)
    except ValueError as error:
        raise click.UsageError(f"this is not a password: {error}") from None
    _write(file, users)
    print_lines(f"{user}: {'added' if is_new else 'changed'}")


@command.command("remove")
@_FILE
@click.argument("user", type=TEXT)
def remove(file: Path, user: str) -> None:
    """Remove USER from FILE. Connections that USER has stay."""
    users = _read(file)
    if users.pop(user, None) is None:
        raise click.ClickException(shown(f"{file} has no user {user}"))
    _write(file, users)
    print_lines(f"{user}: removed")


@command.command("list")
@_FILE
def show(file: Path) -> None:
    """List the users of FILE."""
    for user in sorted(_read(file)):
        print_lines(user)


def _read(file: Path) -> dict[str, dict[str, ScramSecret]]:
    try:
        return read_users(file)
    except UserFileError as error:
        raise click.ClickException(shown(str(error), LINE_MOST)) from None


def _write(file: Path, users: dict[str, dict[str, ScramSecret]]) -> None:
    try:
        write_users(file, users)
    except OSError as error:
        raise click.ClickException(f"{file}: {error.strerror}") from None
