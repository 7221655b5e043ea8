"""TLS contexts from files: errors that name option and file, and rotation."""

import os
import ssl
from pathlib import Path
from typing import Any

import pytest
import trustme
from structlog.testing import capture_logs

from router.net.tls import TlsError
from router.net.tls_files import TlsContext, TlsFiles
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
