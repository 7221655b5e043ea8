"""Entries of a mesh are signed with certificates, which authorities vouch for."""

from pathlib import Path

import pytest

from router.net.mesh_certificates import (
    CERTIFICATE_OCTETS_MOST,
    CertificateRing,
    CertificateSigner,
    MeshKeyError,
    read_keys,
)
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
    assert "has no DNS name 'dc1'" in refusal(authority, authority.issue("dc2")).reason
    assert "is not valid now" in refusal(authority, authority.issue("dc1", days=-1)).reason
    (tmp_path / "other").mkdir()
    strange = Authority(tmp_path / "other").issue("dc1")
    assert "does not come from an authority of ca" in refusal(authority, strange).reason


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
