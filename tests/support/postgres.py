"""A PostgreSQL server of a test's own: made with initdb, on a Unix socket and on loopback."""

import atexit
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import pytest

from tests.support.certificates import make_certificates
from tests.support.ports import free_port

PATIENCE_SECONDS = 60.0
_FOLDERS = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
_USER = "nobody"


def _program(name: str) -> str | None:
    for folder in _FOLDERS:
        if (folder / name).exists():
            return str(folder / name)
    return shutil.which(name)


def needs_postgres() -> None:
    """Skips the test where PostgreSQL or psycopg is not installed; CI has both."""
    if os.environ.get("CI"):
        import psycopg  # noqa: F401

        assert _program("initdb") is not None
        return
    if _program("initdb") is None:
        pytest.skip("PostgreSQL is not installed")
    pytest.importorskip("psycopg", reason="the extra router[postgres] is not installed")


@attrs.define(eq=False)
class Server:
    """A server, running or not.

    Attributes:
        directory: of its data.
        port: on loopback, and in the name of its Unix socket.
    """

    directory: Path
    port: int
    process: subprocess.Popen[bytes] | None = None
    options: tuple[str, ...] = ()

    def url(self, database: str = "postgres", user: str = "postgres") -> str:
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def start(self) -> None:
        """Starts it and waits until it serves."""
        program = _program("postgres")
        assert program is not None
        self.process = subprocess.Popen(
            [
                *(program, "-D", str(self.directory / "data"), "-p", str(self.port)),
                *("-k", str(self.directory), "-c", "listen_addresses=127.0.0.1"),
                *("-c", "max_connections=200", *self.options),
            ],
            stdout=subprocess.DEVNULL,
            stderr=(self.directory / "log").open("ab"),
            **_as_user(),
        )
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        while not self._serves():
            assert self.process.poll() is None, (self.directory / "log").read_text()
            assert time.monotonic() < give_up_at, (self.directory / "log").read_text()
            time.sleep(0.05)

    def _serves(self) -> bool:
        import psycopg

        try:
            psycopg.connect(self.url()).close()
        except psycopg.OperationalError:
            return False
        return True

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stops it: SIGINT fast, SIGQUIT at once, as after a power cut."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(PATIENCE_SECONDS)
            self.process = None

    def run(self, statement: str, database: str = "postgres") -> list[tuple[object, ...]]:
        """Runs a statement as the superuser."""
        import psycopg

        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return list(cursor.fetchall()) if cursor.description is not None else []

    def new_database(self, name: str) -> str:
        """Makes an empty database and gives its URL."""
        self.run(f"CREATE DATABASE {name}")
        return self.url(name)


@cache
def shared_server() -> Server:
    """Runs one server for all tests of this process that only need a database."""
    running = postgres_server()
    server = running.__enter__()
    atexit.register(running.__exit__, None, None, None)
    return server


def _as_user() -> dict[str, Any]:
    """Says as whom it runs: PostgreSQL refuses root."""
    if os.geteuid():
        return {}
    home = {**os.environ, "HOME": "/"}  # libpq looks for certificates there
    return {"user": _USER, "group": "nogroup", "extra_groups": [], "env": home}


@contextmanager
def postgres_server(*options: str) -> Iterator[Server]:
    """Runs a server with an empty cluster, and removes both."""
    needs_postgres()
    initdb = _program("initdb")
    assert initdb is not None
    with tempfile.TemporaryDirectory(prefix="pg-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        if not os.geteuid():
            shutil.chown(directory, _USER)
        subprocess.run(
            [
                *(initdb, "-D", str(directory / "data"), "-U", "postgres", "--auth=trust"),
                *("--no-sync", "--no-locale", "-E", "UTF8"),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd="/",
            **_as_user(),
        )
        server = Server(directory, free_port(), options=options)
        server.start()
        try:
            yield server
        finally:
            server.stop(signal.SIGQUIT)


@attrs.define(eq=False)
class Replicated:
    """A primary with one synchronous standby, which takes its place; both demand TLS.

    Attributes:
        primary, standby: which is which now.
        authorities: file with who signed their certificate.
        has_failed_over: the standby was promoted; for those who wait for it.
    """

    primary: Server
    standby: Server
    authorities: Path
    has_failed_over: bool = False

    def fail_over(self) -> None:
        """Kills the primary as a power cut does, promotes the standby, and makes another one."""
        self.primary.stop(signal.SIGQUIT)
        self.standby.run("SELECT pg_promote()")
        self.primary, self.standby = self.standby, self.primary
        self.has_failed_over = True
        self.replicate()

    def replicate(self) -> None:
        """Makes the standby a copy of the primary; commits wait for it from then on."""
        copied = _program("pg_basebackup")
        assert copied is not None
        shutil.rmtree(self.standby.directory / "data", ignore_errors=True)
        subprocess.run(
            [
                *(copied, "-D", str(self.standby.directory / "data"), "-R", "-X", "stream"),
                *("-c", "fast", "--no-sync", "-d", self.primary.url()),
            ],
            check=True,
            stdout=subprocess.DEVNULL,
            cwd="/",
            **_as_user(),
        )
        self.standby.start()
        for setting in ("synchronous_standby_names = '*'", "synchronous_commit = on"):
            self.primary.run(f"ALTER SYSTEM SET {setting}")
        self.primary.run("SELECT pg_reload_conf()")
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        while not self.primary.run("SELECT FROM pg_stat_replication WHERE sync_state = 'sync'"):
            assert time.monotonic() < give_up_at, "the standby does not connect"
            time.sleep(0.05)


@contextmanager
def replicated_servers(folder: Path) -> Iterator[Replicated]:
    """Runs a primary and its synchronous standby.

    Args:
        folder: for the certificate's authorities.
    """
    certificates = make_certificates(folder)
    with postgres_server() as primary, tempfile.TemporaryDirectory(prefix="pg-") as name:
        directory = Path(name)
        directory.chmod(0o755)
        for each in (primary.directory, directory):
            pem = each / "server.pem"
            shutil.copy(certificates.server("good"), pem)
            pem.chmod(0o600)
            if not os.geteuid():
                shutil.chown(each, _USER)
                shutil.chown(pem, _USER)
        standby = Server(directory, free_port())
        for server in (primary, standby):
            pem = server.directory / "server.pem"
            server.options = tuple(
                part
                for setting in ("ssl=on", f"ssl_cert_file={pem}", f"ssl_key_file={pem}")
                for part in ("-c", setting)
            )
        primary.stop()
        rules = primary.directory / "data" / "pg_hba.conf"
        rules.write_text(
            "local all all trust\nhostssl all all 127.0.0.1/32 trust\n"
            "hostssl replication all 127.0.0.1/32 trust\n"
        )
        primary.start()
        servers = Replicated(primary, standby, certificates.authorities)
        servers.replicate()
        try:
            yield servers
        finally:
            for server in (primary, standby):
                server.stop(signal.SIGQUIT)
