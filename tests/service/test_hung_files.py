"""Files that the configuration names, and that do not answer: pipes, and disks that hang."""

import itertools
import os
import signal
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from click.testing import CliRunner
from structlog.testing import capture_logs

from router import looking
from router.cli.main import main
from router.net.cbs import token_from_file
from router.net.tls_files import TlsContext, TlsFiles
from router.net.validity import read_authorities, read_chain
from router.regular import read_regular
from router.service import kept_store
from router.service.config import ConfigError, Secret, read
from router.service.credentials import load_usable
from router.service.kept_store import await_storing
from router.service.login_key import KEY_OCTETS, keep_key
from router.service.users import (
    UserFile,
    UserFileError,
    WrittenUsers,
    hash_password,
    read_users,
    write_users,
)
from tests.support.planes import papers
from tests.support.running import RunningRouter, running_router

RULE = "it is no regular file: a pipe, socket or device is not read"

HEAD = 'router: {admin: off}\nroutes: [{address: "#"}]\n'
OPTIONS = {
    "a reference": "containers: {a: {url: amqp://a, sasl: {user: u, password: '${file:pipe}'}}}\n",
    "a certificate": "listeners: [{bind: 127.0.0.1:1, tls: {cert: pipe, key: server.pem}}]\n",
    "a key": "listeners: [{bind: 127.0.0.1:1, tls: {cert: server.pem, key: pipe}}]\n",
    "authorities": "containers: {a: {url: amqps://a, tls: {ca: pipe}}}\n",
    "users": "listeners: [{bind: 127.0.0.1:1, sasl: {users: pipe}}]\n",
    "a token": "containers: {a: {url: amqps://a, cbs: {audience: a, token_file: pipe}}}\n",
    "the key of a mesh": "mesh: {listen: 127.0.0.1:1, tls: {cert: server.pem, key: pipe,"
    " ca: server.pem}}\n",
}


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    papers(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    return tmp_path / "pipe"


@pytest.mark.parametrize("option", OPTIONS)
def test_a_pipe_is_refused_at_its_place_by_whoever_reads_the_file(pipe: Path, option: str) -> None:
    file = pipe.parent / "router.yaml"
    file.write_text(HEAD + OPTIONS[option])
    with pytest.raises(ConfigError) as caught:
        load_usable(file)
    (problem,) = caught.value.problems
    assert problem.problem.endswith(RULE)
    assert problem.position.line == 3
    result = CliRunner().invoke(main, ["check", str(file)])
    assert result.exit_code == 2
    assert RULE in result.output


READERS: dict[str, Callable[[Path], object]] = {
    "any file": read_regular,
    "users": read_users,
    "a token": lambda path: token_from_file(path)(0.0),
}


@pytest.mark.parametrize("reader", READERS)
def test_a_pipe_that_has_taken_a_files_place_is_not_waited_for(pipe: Path, reader: str) -> None:
    with pytest.raises((OSError, UserFileError), match=RULE):
        READERS[reader](pipe)


def test_a_pipe_has_no_certificates(pipe: Path) -> None:
    assert read_chain("a", pipe) is None
    assert read_authorities("a", pipe) is None


def test_the_null_device_and_a_link_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"abc")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "link") == b"abc"
    assert read_regular(tmp_path / "link", 2) == b"ab"
    assert read_regular(Path(os.devnull)) == b""
    with pytest.raises(IsADirectoryError):
        read_regular(tmp_path)
    with pytest.raises(OSError, match=RULE):
        read_regular(Path("/dev/zero"))


@pytest.mark.parametrize("which", ["certificate", "authorities"])
async def test_a_certificate_that_becomes_a_pipe_stays_in_use(pipe: Path, which: str) -> None:
    now = 0.0
    folder = pipe.parent
    signed = TlsFiles(
        option="a", certificate=folder / "server.pem", authorities=folder / "authorities.pem"
    )
    context = TlsContext(signed, TlsFiles.server_context, clock=lambda: now)
    before = context.current()
    pipe.rename(getattr(signed, which))
    now = 10.0
    assert context.current() is before
    assert context.trouble is not None
    assert context.trouble.endswith(RULE)


def test_users_that_become_a_pipe_stay_known(pipe: Path) -> None:
    file = pipe.parent / "users"
    file.write_text("")
    users = UserFile(file)
    pipe.rename(file)
    assert not users.verify_plain("a", "b")


class HungMount:
    """Files of which the system says nothing, while it hangs.

    Attributes:
        asked: the threads that have asked, and wait.
        answers: set when it answers again.
    """

    def __init__(self, patch: pytest.MonkeyPatch, *files: Path) -> None:
        self.asked: list[threading.Thread] = []
        self.answers = threading.Event()

        def hang(really: Callable[..., object], path: Any, *more: Any, **named: Any) -> object:
            if path in files and not self.answers.is_set():
                self.asked.append(threading.current_thread())
                assert self.answers.wait(60)
            return really(path, *more, **named)

        patch.setattr(os, "stat", partial(hang, os.stat))
        patch.setattr(os, "open", partial(hang, os.open))
        patch.setattr(os, "listdir", partial(hang, os.listdir))
        patch.setattr(looking, "UNANSWERED_SECONDS", 0.0)

    def look(self, look: Callable[[], object]) -> list[str]:
        """Has files looked at often, while they do not answer; returns what is logged."""
        with capture_logs() as lines:
            for _ in range(5):
                look()
        assert len(self.asked) == 1
        assert self.asked[0] is not threading.current_thread()
        return [line["event"] for line in lines]

    def answer(self, look: Callable[[], bool]) -> list[str]:
        """Has them answer; returns what is logged until they are used."""
        with capture_logs() as lines:
            self.answers.set()
            while not look():
                os.sched_yield()
        return [line["event"] for line in lines]


def test_handshakes_go_on_with_the_certificate_in_use_while_its_disk_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signed = papers(tmp_path)
    seconds = itertools.count(0, 10)
    context = TlsContext(
        signed.server_files(), TlsFiles.server_context, clock=lambda: float(next(seconds))
    )
    before = context.current()
    signed.write_server("other.example")
    mount = HungMount(monkeypatch, signed.server)
    try:
        assert mount.look(context.current) == ["file.unanswered"]
        assert context.current() is before
    finally:
        said = mount.answer(lambda: context.current() is not before)
    assert said == ["file.answered", "certificate.replaced"]


def test_users_log_in_as_they_were_read_last_while_their_disk_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "users"
    write_users(file, {"alice": hash_password("first")})
    users = UserFile(file)
    write_users(file, {"alice": hash_password("second")})
    mount = HungMount(monkeypatch, file)
    try:
        look = partial(users.verify_plain, "alice", "first")
        assert mount.look(look) == ["file.unanswered"]
        assert look()
    finally:
        said = mount.answer(partial(users.verify_plain, "alice", "second"))
    assert said == ["file.answered"]
    assert not users.verify_plain("alice", "first")


def test_salts_are_made_by_the_secret_that_was_read_last_while_its_disk_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = keep_key(tmp_path)
    users = WrittenUsers({"alice": Secret("pencil")}, key)
    before = users.find_secret("alice", "SCRAM-SHA-256").salt
    assert key.path is not None
    (tmp_path / "other").write_bytes(bytes(KEY_OCTETS))
    (tmp_path / "other").rename(key.path)
    mount = HungMount(monkeypatch, key.path)

    def salt() -> bytes:
        return users.find_secret("alice", "SCRAM-SHA-256").salt

    try:
        assert mount.look(salt) == ["file.unanswered"]
        assert salt() == before
    finally:
        said = mount.answer(lambda: salt() != before)
    assert said == ["file.answered"]
    assert key.octets == bytes(KEY_OCTETS)


def test_the_token_that_was_read_last_is_put_while_its_disk_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text("first")
    make_token = token_from_file(file)
    assert make_token(0.0) == "first"
    file.write_text("second")
    mount = HungMount(monkeypatch, file)
    look = partial(make_token, 0.0)
    try:
        assert mount.look(look) == ["file.unanswered"]
        assert look() == "first"
    finally:
        said = mount.answer(lambda: look() == "second")
    assert said == ["file.answered"]


def test_a_token_that_was_never_read_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "token"
    file.write_text("first")
    make_token = token_from_file(file)
    mount = HungMount(monkeypatch, file)

    def look() -> None:
        with pytest.raises(OSError, match="its disk does not answer"):
            make_token(0.0)

    try:
        assert mount.look(look) == ["file.unanswered"]
    finally:
        mount.answers.set()


def test_what_was_answered_late_is_looked_at_once_more(tmp_path: Path) -> None:
    """It was read as the disk came back, perhaps long before it is asked for."""
    file, answers, has_read = tmp_path / "token", threading.Event(), threading.Event()
    file.write_text("old")
    looker: looking.Looker[str] = looking.Looker(str(file))

    def read_late() -> str:
        assert answers.wait(60)
        found = file.read_text()
        has_read.set()
        return found

    assert looker.look(read_late) is None
    answers.set()
    assert has_read.wait(60)
    file.write_text("new")
    found = None
    while found is None:
        found = looker.look(file.read_text)
    assert found == "new"


async def test_a_start_says_that_it_waits_for_the_disk_of_the_store_and_may_be_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "messages").mkdir()
    config = read(f"router: {{state: {tmp_path}}}\n" + HEAD[HEAD.index("routes") :], "", Path(), {})
    mount = HungMount(monkeypatch, tmp_path / "messages")
    monkeypatch.setattr(kept_store, "LATE_SECONDS", 0.0)
    try:
        with capture_logs() as lines, trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(await_storing, config)
                while not (lines and mount.asked):
                    await trio.sleep(0.01)
                nursery.cancel_scope.cancel()
            async with trio.open_nursery() as nursery:
                nursery.start_soon(await_storing, config)
                while len(mount.asked) < 2:
                    await trio.sleep(0.01)
                mount.answers.set()
    finally:
        mount.answers.set()
    said = ["store.unanswered", "store.unanswered", "store.answered"]
    assert [line["event"] for line in lines] == said
    assert threading.current_thread() not in mount.asked


HANGING = """
import os, time

really_open = os.open

def open_late(path, *more, **named):
    if str(path).endswith("secret") and os.path.exists({hangs!r}):
        really_open({reached!r}, os.O_CREAT | os.O_WRONLY)
        while os.path.exists({hangs!r}):
            time.sleep(0.01)
    return really_open(path, *more, **named)

os.open = open_late
"""
"""A ``sitecustomize`` with which a file is on a disk that hangs."""


@attrs.frozen
class HungDisk:
    """The disk with the file ``secret``; it hangs while the file ``hangs`` is there."""

    folder: Path

    def __attrs_post_init__(self) -> None:
        (self.folder / "secret").write_text("s")
        text = HANGING.format(hangs=str(self.hangs), reached=str(self.reached))
        (self.folder / "sitecustomize.py").write_text(text)

    @property
    def hangs(self) -> Path:
        return self.folder / "hangs"

    @property
    def reached(self) -> Path:
        return self.folder / "reached"

    @property
    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": str(self.folder)}

    def reload(self, router: RunningRouter) -> None:
        """Returns when a reload hangs."""
        self.hangs.touch()
        router.process.send_signal(signal.SIGHUP)
        while not self.reached.exists():
            assert router.process.poll() is None
            os.sched_yield()


SECRET = """\
router: {{admin: off, workers: {workers}, id: r}}
listeners: [{{bind: 127.0.0.1:0}}]
containers: {{a: {{url: "amqp://127.0.0.1:9", sasl: {{user: u, password: "${{file:secret}}"}}}}}}
routes: [{{address: "#"}}]
"""


@pytest.mark.processes
@pytest.mark.parametrize("workers", [1, 2])
def test_a_router_whose_reload_hangs_drains_in_order(tmp_path: Path, workers: int) -> None:
    disk = HungDisk(tmp_path)
    text = SECRET.format(workers=workers)
    with running_router(text, tmp_path, disk.environment) as router:
        disk.reload(router)
        assert router.stop() == 0
        assert '"unfinished": false' in router.wait_for("router.drained")
        assert not any("Traceback" in line or "config.refused" in line for line in router.log)


@pytest.mark.processes
def test_a_signal_to_reload_that_comes_while_files_are_read_is_obeyed_after_that(
    tmp_path: Path,
) -> None:
    disk = HungDisk(tmp_path)
    with running_router(SECRET.format(workers=1), tmp_path, disk.environment) as router:
        disk.reload(router)
        router.process.send_signal(signal.SIGHUP)
        disk.hangs.unlink()
        first = router.log.index(router.wait_for("config.reloaded"))
        router.wait_for("config.reloaded", since=first + 1)
        assert router.stop() == 0
    assert not any("config.refused" in line for line in router.log)


@pytest.mark.processes
def test_a_second_signal_to_end_ends_a_router_whose_reload_hangs_at_once(tmp_path: Path) -> None:
    disk = HungDisk(tmp_path)
    with running_router(SECRET.format(workers=1), tmp_path, disk.environment) as router:
        disk.reload(router)
        router.process.send_signal(signal.SIGTERM)
        router.process.send_signal(signal.SIGTERM)
        assert router.process.wait(60) in (0, 1)
