"""TLS contexts from files: errors that name option and file, and rotation."""

import os
import ssl
import time
from pathlib import Path
from typing import Any

import attrs
import pytest
import trustme
from structlog.testing import capture_logs

from router.net.tls import TlsError
from router.net.tls_files import TlsContext, TlsFiles
from router.net.validity import Validity
from tests.support.planes import Papers, papers


@pytest.fixture
def signed(tmp_path: Path) -> Papers:
    return papers(tmp_path)


def test_a_connector_verifies_the_peer_against_the_systems_authorities_by_default() -> None:
    context = TlsFiles(option="containers.west.tls").client_context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_verification_is_off_only_where_the_option_says_so() -> None:
    context = TlsFiles(option="containers.west.tls", verify=ssl.CERT_NONE).client_context()
    assert context.verify_mode is ssl.CERT_NONE
    assert not context.check_hostname


def test_a_fault_is_one_line_that_names_option_and_file(signed: Papers, tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.pem"
    garbage.write_text("no PEM at all")
    missing = tmp_path / "missing.pem"
    other_key = tmp_path / "other.key"
    signed.authority.issue_cert("other").private_key_pem.write_to_path(str(other_key))
    cases: list[tuple[dict[str, Any], str]] = [
        ({"certificate": missing}, f"cert: {missing}: No such file or directory"),
        ({"certificate": tmp_path}, f"cert: {tmp_path}: Is a directory"),
        ({"certificate": garbage}, f"cert: {garbage}: it holds no PEM"),
        ({"certificate": signed.server, "key": missing}, f"key: {missing}: No such file or"),
        ({"certificate": signed.server, "key": other_key}, f"key: {other_key}: the key is not"),
        ({"certificate": signed.server, "authorities": garbage}, f"ca: {garbage}: it "),
        ({"certificate": signed.server, "authorities": missing}, f"ca: {missing}: No"),
        ({}, "cert: a listener needs one"),
    ]
    for options, expected in cases:
        files = TlsFiles(option="listeners[1].tls", **options)
        with pytest.raises(TlsError) as raised:
            files.server_context()
        assert str(raised.value).startswith(f"listeners[1].tls.{expected}")
        assert "\n" not in str(raised.value)


def test_a_locked_key_is_named_and_nobody_is_asked_for_its_password(
    signed: Papers, tmp_path: Path
) -> None:
    from cryptography.hazmat.primitives import serialization

    issued = signed.authority.issue_cert("localhost")
    key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
    (tmp_path / "locked.key").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"secret"),
        )
    )
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "locked.pem"))
    files = TlsFiles(
        option="listeners[0].tls",
        certificate=tmp_path / "locked.pem",
        key=tmp_path / "locked.key",
        verify=ssl.CERT_NONE,
    )
    with pytest.raises(TlsError, match=r"tls\.key: .*locked\.key: it is locked by"):
        files.server_context()


def test_new_connections_use_new_certificates_and_bad_ones_change_nothing(
    signed: Papers,
) -> None:
    now = 0.0
    context = TlsContext(signed.server_files(), TlsFiles.server_context, lambda: now)
    first = context.current()

    with capture_logs() as lines:
        signed.write_server("other.example")
        assert context.current() is first  # looked at a moment ago
        now += 2
        second = context.current()
        assert second is not first
        signed.server.write_text("half written")
        now += 2
        assert context.current() is second
        now += 2
        assert context.current() is second
        assert str(signed.server) in str(context.trouble)
        os.unlink(signed.server)
        now += 2
        assert context.current() is second
        signed.write_server("third.example")
        now += 2
        assert context.current() not in (first, second)
        assert context.trouble is None
    assert [line["event"] for line in lines] == [
        "certificate.replaced",
        "certificate.refused",
        "certificate.refused",
        "certificate.replaced",
    ]
    assert str(signed.server) in lines[1]["reason"]


def test_an_authority_of_ones_own_replaces_the_systems(tmp_path: Path) -> None:
    authority = trustme.CA()
    path = tmp_path / "own.pem"
    authority.cert_pem.write_to_path(str(path))
    context = TlsFiles(option="containers.west.tls", authorities=path).client_context()
    assert len(context.get_ca_certs()) == 1


class Watched:
    """A context whose files are looked at anew each time."""

    def __init__(self, signed: Papers) -> None:
        self.now = 0.0
        self.signed = signed
        self.ahead = 0.0
        self.context = self.anew("listeners[0].tls")

    def anew(self, option: str) -> TlsContext:
        files = attrs.evolve(self.signed.server_files(), option=option)
        return TlsContext(
            files,
            TlsFiles.server_context,
            clock=lambda: self.now,
            wall=lambda: time.time() + self.ahead,
        )

    def look(self) -> ssl.SSLContext:
        self.now += 2
        return self.context.current()


def test_an_expired_certificate_does_not_replace_one_that_is_valid(signed: Papers) -> None:
    watched = Watched(signed)
    first = watched.look()
    with capture_logs() as lines:
        signed.write_server(days=-1)
        assert watched.look() is first
        assert [line["event"] for line in lines] == ["certificate.refused"]
    (in_use,) = watched.context.validities
    assert not in_use.has_expired(time.time())
    trouble = str(watched.context.trouble)
    assert trouble.startswith(f"listeners[0].tls.cert: {signed.server} expired on 20")
    assert "; what is in use is valid until 20" in trouble
    signed.write_server(days=60)
    assert watched.look() is not first
    assert watched.context.trouble is None
    assert watched.context.validities[0].ends > in_use.ends


def test_an_expired_certificate_is_served_where_there_was_none_better(signed: Papers) -> None:
    signed.write_server(days=-2)
    watched = Watched(signed)
    first = watched.look()
    signed.write_server(days=-1)
    assert watched.look() is not first
    assert watched.context.trouble is None
    assert watched.context.validities[0].has_expired(time.time())


def test_a_reload_does_not_bring_a_certificate_that_was_refused(signed: Papers) -> None:
    watched = Watched(signed)
    first = watched.look()
    signed.write_server(days=-1)
    for option in ("listeners[1].tls", "listeners[2].tls"):
        before = watched.context
        watched.context = watched.anew(option)
        watched.context.succeed(before)
        assert watched.look() is first
        assert "expired on" in str(watched.context.trouble)
        (in_use,) = watched.context.validities
        assert in_use.option == f"{option}.cert"
        assert not in_use.has_expired(time.time())


@pytest.mark.parametrize("reloads", range(3))
def test_a_certificate_that_is_not_valid_yet_is_used_from_when_it_is(
    signed: Papers, reloads: int
) -> None:
    watched = Watched(signed)
    first = watched.look()
    signed.write_server(begins=2, days=60)
    for _ in range(reloads):
        before = watched.context
        watched.context = watched.anew("listeners[0].tls")
        watched.context.succeed(before)
    assert watched.look() is first
    trouble = str(watched.context.trouble)
    assert trouble.startswith(f"listeners[0].tls.cert: {signed.server} is not valid before 20")
    assert "; what is in use is valid until 20" in trouble
    assert trouble.endswith(", and the new one is taken over when it is valid")
    watched.ahead = 1.9 * 86400
    assert watched.look() is first
    watched.ahead = 2.1 * 86400
    assert watched.look() is not first
    assert watched.context.trouble is None


def test_a_certificate_that_is_not_valid_yet_is_served_where_there_was_none_better(
    signed: Papers,
) -> None:
    signed.write_server(days=-1)
    watched = Watched(signed)
    first = watched.look()
    signed.write_server(begins=1)
    assert watched.look() is not first
    assert watched.context.validities[0].is_early(time.time())


def test_a_chain_is_valid_from_its_last_and_authorities_from_their_first(
    signed: Papers, tmp_path: Path
) -> None:
    now = time.time()
    chain = tmp_path / "chain.pem"
    own = signed.server.read_bytes()
    signed.write_server(begins=1)
    chain.write_bytes(own + signed.server.read_bytes())
    (both,) = attrs.evolve(signed.server_files(), certificate=chain).validities()
    assert both.is_early(now)
    assert not both.own.is_early(now)
    assert "chain.pem: a certificate of its chain is not valid before 20" in both.describe(now)
    (authorities,) = TlsFiles(option="containers.west.tls", authorities=chain).validities()
    assert not authorities.is_early(now)


def test_a_chain_is_due_with_its_first_and_authorities_with_their_last(
    signed: Papers, tmp_path: Path
) -> None:
    now = time.time()
    (own,) = signed.server_files().validities()
    assert (own.what, own.is_due(now)) == ("", False)
    chain = tmp_path / "chain.pem"
    long = signed.server.read_bytes()
    signed.write_server(days=10)
    chain.write_bytes(long + signed.server.read_bytes())
    (both,) = attrs.evolve(signed.server_files(), certificate=chain).validities()
    assert both.is_due(now)
    assert both.own_ends > both.ends
    assert "a certificate of its chain expires on 20" in both.describe(now)
    files = TlsFiles(option="containers.west.tls", authorities=chain)
    (authorities,) = files.validities()
    assert not authorities.is_due(now)
    assert TlsFiles(option="x", certificate=tmp_path / "none.pem").validities() == ()


def test_a_certificate_of_a_short_life_is_due_in_its_last_quarter() -> None:
    day = Validity(option="x", file="y", begins=0.0, ends=86400.0, own_ends=86400.0)
    assert not day.is_due(60_000.0)
    assert day.is_due(70_000.0)
    assert day.describe(0.0) == "x: y expires on 1970-01-02 00:00 UTC"
    assert day.describe(86401.0) == "x: y expired on 1970-01-02 00:00 UTC"
