"""Signatures of a mesh by the certificates of its routers: each entry brings its signer's.

::

    signature = Ed25519 signature (64 octets)   certificate of the origin (DER)

Whoever receives an entry knows the authorities of the mesh alone. So a router that joins needs no
key told to the others: its certificate is signed by an authority, and its subjectAltName has the
router's id as a DNS name. A certificate is verified once, and remembered.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import attrs
from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, load_pem_private_key

from router.errors import RouterError
from router.regular import read_regular
from router.routes.mesh.messages import SIGNATURE_OCTETS_MOST
from router.routes.mesh.nouns import RouterId

SIGNATURE_OCTETS: Final = 64
CERTIFICATE_OCTETS_MOST: Final = SIGNATURE_OCTETS_MOST - SIGNATURE_OCTETS

REMEMBERED: Final = 4_096
"""Certificates that are remembered; the oldest is dropped for a new one."""


class MeshKeyError(RouterError):
    """A file of the mesh's TLS cannot be used for signatures.

    Attributes:
        option: cert, key or ca.
        reason: what is wrong.
    """

    def __init__(self, option: str, reason: str) -> None:
        self.option, self.reason = option, reason
        super().__init__(f"{option}: {reason}")


@attrs.frozen
class CertificateSigner:
    """Signs as the owner of a certificate (``routes.mesh.bodies.Signer``)."""

    key: Ed25519PrivateKey
    certificate: bytes

    def sign(self, octets: bytes) -> bytes:
        """Returns a signature, with the certificate."""
        return self.key.sign(octets) + self.certificate


@attrs.frozen
class _Key:
    """The key in a certificate, and when it is valid."""

    key: Ed25519PublicKey
    begins: datetime
    ends: datetime

    @classmethod
    def of(cls, certificate: x509.Certificate) -> "_Key":
        """Returns that of a certificate which has such a key."""
        key = certificate.public_key()
        assert isinstance(key, Ed25519PublicKey)
        return cls(key, certificate.not_valid_before_utc, certificate.not_valid_after_utc)

    @property
    def is_valid(self) -> bool:
        """Whether it is valid now."""
        return self.begins <= datetime.now(UTC) <= self.ends


@attrs.define(eq=False)
class CertificateRing:
    """Believes certificates of some authorities (``routes.mesh.bodies.Verifier``)."""

    authorities: Sequence[x509.Certificate]
    _known: dict[tuple[RouterId, bytes], _Key | None] = attrs.field(factory=dict, init=False)

    def verify(self, origin: RouterId, octets: bytes, signature: bytes) -> bool:
        """Returns whether a router signed octets."""
        certificate = signature[SIGNATURE_OCTETS:]
        key = self._key_of(origin, certificate)
        if key is None:
            return False
        try:
            key.verify(signature[:SIGNATURE_OCTETS], octets)
        except InvalidSignature:
            return False
        return True

    def _key_of(self, origin: RouterId, octets: bytes) -> Ed25519PublicKey | None:
        named = (origin, octets)
        if named not in self._known:
            if len(self._known) >= REMEMBERED:
                del self._known[next(iter(self._known))]
            found = self._read(octets)
            if not isinstance(found, str) and origin not in _names(found):
                found = f"has no DNS name '{origin}' in its subjectAltName"
            self._known[named] = None if isinstance(found, str) else _Key.of(found)
        known = self._known[named]
        return None if known is None or not known.is_valid else known.key

    def _read(self, octets: bytes) -> x509.Certificate | str:
        """Returns a certificate of a router, or why it is refused at any time."""
        try:
            certificate = x509.load_der_x509_certificate(octets)
            key = certificate.public_key()
            _names(certificate)
        except (ValueError, UnsupportedAlgorithm):
            return "is no certificate"
        if not isinstance(key, Ed25519PublicKey):
            return "is not that of an Ed25519 key"
        if not any(_has_issued(each, certificate) for each in self.authorities):
            return "does not come from an authority of ca directly"
        return certificate

    def judge(self, octets: bytes) -> str | None:
        """Returns why a neighbor's certificate (DER) is refused now; None: it is believed.

        TLS would also take a certificate that a router of the mesh has issued with its own.
        """
        found = self._read(octets)
        if isinstance(found, str):
            return found
        return None if _Key.of(found).is_valid else "is not valid now"

    def explain(self, origin: RouterId, octets: bytes) -> str | None:
        """Returns why others would refuse a router's certificate now; None: they believe it."""
        refusal = self.judge(octets)
        if refusal is not None:
            return refusal
        if _names(x509.load_der_x509_certificate(octets))[:1] != [origin]:
            return f"does not have router.id, '{origin}', as the first DNS name of subjectAltName"
        return None


def _names(certificate: x509.Certificate) -> list[str]:
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return []
    return found.value.get_values_for_type(x509.DNSName)


def _has_issued(authority: x509.Certificate, certificate: x509.Certificate) -> bool:
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature, UnsupportedAlgorithm):
        return False
    return True


def read_ring(ca: Path) -> CertificateRing:
    """Reads the authorities of a mesh.

    Raises:
        MeshKeyError: the file is unusable.
    """
    return CertificateRing(_read_certificates("ca", ca))


def read_keys(
    router: RouterId, cert: Path, key: Path, ca: Path
) -> tuple[CertificateSigner, CertificateRing]:
    """Reads a router's key and certificate, and the authorities of its mesh.

    Raises:
        MeshKeyError: a file is unusable, or other routers would not believe the certificate.
    """
    try:
        private = load_pem_private_key(read_regular(key), None)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise MeshKeyError("key", f"cannot be read: {error}") from None
    if not isinstance(private, Ed25519PrivateKey):
        raise MeshKeyError("key", "is no Ed25519 key, which signs what the router advertises")
    leaf = _read_certificates("cert", cert)[0]
    octets = leaf.public_bytes(Encoding.DER)
    if len(octets) > CERTIFICATE_OCTETS_MOST:
        reason = f"has {len(octets)} octets; in a mesh at most {CERTIFICATE_OCTETS_MOST}"
        raise MeshKeyError("cert", reason)
    ring = read_ring(ca)
    refusal = ring.explain(router, octets)
    if refusal is not None:
        raise MeshKeyError("cert", refusal)
    return CertificateSigner(private, octets), ring


def _read_certificates(option: str, path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(read_regular(path))
    except (OSError, ValueError) as error:
        raise MeshKeyError(option, f"cannot be read: {error}") from None
