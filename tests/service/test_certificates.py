"""Certificates that expire: what check, log, metrics and a reload say of them."""

import json
import signal
import time
from pathlib import Path

import pytest

from router.net.validity import Validity
from router.service.certificates import TlsRecord, certificate_notes, invalid_anew
from router.service.config import RouterConfig, load
from router.service.metrics import render
from tests.support.fleets import router_snapshot
from tests.support.planes import Papers, papers
from tests.support.ports import free_port
from tests.support.running import running_router

FILE = """\
router: {{id: r, workers: 1, admin: off, state: {folder}/state}}
listeners:
  - bind: 127.0.0.1:0
    tls: {{cert: {cert}, key: {cert}}}
routes: [{{address: "#"}}]
"""


@pytest.fixture
def signed(tmp_path: Path) -> Papers:
    return papers(tmp_path)


def configured(signed: Papers, cert: Path | None = None) -> RouterConfig:
    path = signed.server.parent / "router.yaml"
    path.write_text(text(signed, cert))
    return load(path)


def text(signed: Papers, cert: Path | None = None) -> str:
    return FILE.format(folder=signed.server.parent, cert=cert or signed.server)


def notes(config: RouterConfig) -> list[str]:
    return [str(each) for each in certificate_notes(config, time.time())]


def test_a_certificate_that_has_expired_or_soon_will_is_noted_at_its_place(signed: Papers) -> None:
    config = configured(signed)
    assert notes(config) == []
    signed.write_server(days=13)
    (note,) = notes(config)
    place = f"{config.file}:4:17: listeners[0].tls.cert: {signed.server}"
    assert note.startswith(f"{place} expires on 20")
    signed.write_server(days=-1)
    (note,) = notes(config)
    assert note.startswith(f"{place} expired on 20")
    signed.write_server(begins=1)
    (note,) = notes(config)
    assert note.startswith(f"{place} is not valid before 20")


def test_a_reload_to_another_file_does_not_give_up_a_valid_certificate(signed: Papers) -> None:
    other = signed.server.parent / "other.pem"
    signed.write_server(days=-1)
    signed.server.rename(other)
    signed.write_server()
    good, bad = configured(signed), configured(signed, other)
    (problem,) = invalid_anew(good, bad, time.time())
    assert f"listeners[0].tls.cert: {other} expired on 20" in str(problem)
    assert list(invalid_anew(bad, good, time.time())) == []
    assert list(invalid_anew(bad, bad, time.time())) == []
    signed.write_server(begins=2)
    signed.server.rename(other)
    signed.write_server()
    (problem,) = invalid_anew(good, bad, time.time())
    assert f"listeners[0].tls.cert: {other} is not valid before 20" in str(problem)


def test_a_metric_says_when_each_certificate_expires() -> None:
    long = Validity(option="mesh.tls.cert", file="a.pem", begins=0, ends=9e6, own_ends=9e6)
    short = Validity(option="mesh.tls.cert", file="a.pem", begins=0, ends=8e6, own_ends=8e6)
    tls = TlsRecord.merged((TlsRecord(in_use=(long,)), TlsRecord((short, long), ("bad",))))
    page = render(router_snapshot(at=7e6, tls=tls)).decode()
    labels = '{file="a.pem",option="mesh.tls.cert"}'
    assert f"router_certificate_expiry_timestamp_seconds{labels} 8e+06" in page
    assert f"router_certificate_due{labels} 1.0" in page
    assert f"router_certificate_start_timestamp_seconds{labels} 0.0" in page
    assert "router_certificate_files_refused 1.0" in page


@pytest.mark.processes
def test_an_expired_certificate_is_served_from_the_start_and_never_brought_by_a_reload(
    signed: Papers,
) -> None:
    folder = signed.server.parent
    other = folder / "other.pem"
    signed.write_server(days=-1)
    signed.server.rename(other)
    with running_router(text(signed, other), folder) as router:
        router.wait_for("certificate.due")
        signed.write_server()
        (folder / "router.yaml").write_text(text(signed))
        router.process.send_signal(signal.SIGHUP)
        router.wait_for("config.reloaded")
        (folder / "router.yaml").write_text(text(signed, other))
        router.process.send_signal(signal.SIGHUP)
        refused = json.loads(router.wait_for("config.refused"))["reason"]
    assert f"{other} expired on" in refused
    assert "what is in use is valid until" in refused
    assert sum("certificate.due" in line for line in router.log) == 1


@pytest.mark.processes
def test_a_reload_notes_the_certificates_in_use_and_not_those_it_refuses(signed: Papers) -> None:
    folder = signed.server.parent
    signed.write_server(days=60)
    with running_router(text(signed), folder) as router:
        signed.write_server(days=-1)
        router.process.send_signal(signal.SIGHUP)
        router.wait_for("config.reloaded")
        router.wait_for("certificate.refused")
        signed.write_server(days=1)
        router.process.send_signal(signal.SIGHUP)
        due = json.loads(router.wait_for("certificate.due"))["reason"]
    assert " expires on " in due
    assert not any("certificate.due" in line and "expired" in line for line in router.log)


WAITING = FILE.replace("admin: off", "admin: off, wait_for: [west]") + (
    "containers: {{west: {{url: 'amqp://127.0.0.1:{port}', retry_limit_seconds: 1s}}}}\n"
)


@pytest.mark.processes
def test_what_is_noted_at_the_start_are_the_certificates_in_use(signed: Papers) -> None:
    """Others may have been written to the files since the workers read them, and be refused."""
    folder = signed.server.parent
    port = free_port()
    waiting = WAITING.format(folder=folder, cert=signed.server, port=port)
    with running_router(waiting, folder, until="connector.failed") as router:
        signed.write_server(days=-1)
        (folder / "west").mkdir()
        plain = f"router: {{id: west, admin: off}}\nlisteners: [{{bind: 127.0.0.1:{port}}}]\n"
        with running_router(plain + 'routes: [{address: "#"}]\n', folder / "west"):
            router.wait_for("router.ready")
            router.wait_for("certificate.refused")
    assert not any("certificate.due" in line for line in router.log)
