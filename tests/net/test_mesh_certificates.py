"""Entries of a mesh are signed with certificates, which authorities vouch for."""

import socket
import ssl
import time
from datetime import datetime, tzinfo
from pathlib import Path

import pytest
import trio
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding

from router.net import mesh_certificates
from router.net.mesh_certificates import (
    CERTIFICATE_OCTETS_MOST,
    CertificateRing,
    CertificateSigner,
    MeshKeyError,
    read_keys,
)
from router.net.tls import TlsError, TlsSession
from router.routes.mesh.nouns import RouterId
from tests.support.certificates import make_certificates
from tests.support.mesh_certificates import Authority

DC1, DC2 = RouterId("dc1"), RouterId("dc2")


def keys_of(authority: Authority, router: str) -> tuple[CertificateSigner, CertificateRing]:
    path = authority.issue(router)
    return read_keys(RouterId(router), path, path.with_suffix(".key"), authority.pem)


def test_a_router_believes_another_of_the_same_authority(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    signer, _ = keys_of(authority, "dc1")
    _, ring = keys_of(authority, "dc2")
    signature = signer.sign(b"entry")
    assert len(signature) <= 64 + CERTIFICATE_OCTETS_MOST
    assert ring.verify(DC1, b"entry", signature)
    assert not ring.verify(DC2, b"entry", signature)
    assert not ring.verify(DC1, b"other", signature)
    assert not ring.verify(DC1, b"entry", b"\0" + signature[1:])
    assert not ring.verify(DC1, b"entry", signature[:-1])
    assert not ring.verify(DC1, b"entry", b"")


def test_a_certificate_of_another_authority_is_not_believed(tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    stranger, _ = keys_of(Authority(tmp_path / "other"), "dc1")
    _, ring = keys_of(Authority(tmp_path), "dc2")
    assert not ring.verify(DC1, b"entry", stranger.sign(b"entry"))


def refusal(authority: Authority, path: Path, key: Path | None = None) -> MeshKeyError:
    with pytest.raises(MeshKeyError) as caught:
        read_keys(DC1, path, key or path.with_suffix(".key"), authority.pem)
    return caught.value


def test_a_router_does_not_start_with_what_others_would_refuse(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    not_first = "'dc1', as the first DNS name"
    assert not_first in refusal(authority, authority.issue("dc2")).reason
    assert not_first in refusal(authority, authority.issue("dc1", "host", "dc1")).reason
    assert "is not valid now" in refusal(authority, authority.issue("dc1", days=-1)).reason
    (tmp_path / "other").mkdir()
    strange = Authority(tmp_path / "other").issue("dc1")
    assert "does not come from an authority of ca" in refusal(authority, strange).reason


def der(path: Path) -> bytes:
    certificate, *_ = x509.load_pem_x509_certificates(path.read_bytes())
    return certificate.public_bytes(Encoding.DER)


def test_a_certificate_that_a_router_has_issued_is_no_neighbors(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    _, ring = keys_of(authority, "dc1")
    assert ring.judge(der(authority.issue("dc2"))) is None
    (tmp_path / "forged").mkdir()
    between = Authority(tmp_path / "forged", "dc3", issuer=authority)
    forged = between.issue("dc2")
    assert "does not come from an authority of ca directly" in str(ring.judge(der(forged)))
    assert ring.judge(b"") == "is no certificate"


async def test_neighbors_do_not_talk_to_who_shows_a_certificate_of_another_router(
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    _, ring = keys_of(authority, "dc1")
    (tmp_path / "forged").mkdir()
    forged = Authority(tmp_path / "forged", "dc3", issuer=authority).issue("dc2")
    with forged.open("ab") as file:
        file.write((tmp_path / "forged" / "dc3.pem").read_bytes())
    for path, believed in ((authority.issue("dc2"), True), (forged, False)):
        server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        server.load_cert_chain(path, path.with_suffix(".key"))
        client = ssl.create_default_context(cafile=str(authority.pem))
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        errors: list[TlsError] = []

        async def dial(errors: list[TlsError], session: TlsSession, sock: object) -> None:
            try:
                await session.shake_hands(sock, b"", trio.Lock())
            except TlsError as error:
                errors.append(error)

        async with trio.open_nursery() as nursery:
            asked = TlsSession(client, "dc2", judge=ring.judge)
            nursery.start_soon(dial, errors, asked, ours)
            nursery.start_soon(TlsSession(server).shake_hands, theirs, b"", trio.Lock())
        assert (not errors) is believed
        ours.close()
        theirs.close()


def test_a_certificate_is_believed_while_it_is_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signer, ring = keys_of(Authority(tmp_path), "dc1")
    signature = signer.sign(b"entry")
    assert ring.verify(DC1, b"entry", signature)

    class Later(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> "Later":
            return cls.fromtimestamp(time.time() + 40 * 86_400, tz)

    monkeypatch.setattr(mesh_certificates, "datetime", Later)
    assert not ring.verify(DC1, b"entry", signature)
    monkeypatch.undo()
    assert ring.verify(DC1, b"entry", signature)


def test_keys_and_files_of_other_kinds_are_refused_by_name(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    good = authority.issue("dc1")
    others = make_certificates(tmp_path)
    error = refusal(authority, good, others.server("good"))
    assert error.option == "key"
    assert "is no Ed25519 key" in error.reason
    assert refusal(authority, others.server("good"), good.with_suffix(".key")).option == "cert"
    assert refusal(authority, tmp_path / "missing", good.with_suffix(".key")).option == "cert"
    assert refusal(authority, good, tmp_path / "missing").option == "key"
