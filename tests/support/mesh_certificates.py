"""Certificates of routers of a mesh, of Ed25519 keys, as PEM files."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import attrs
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


@attrs.define(eq=False)
class Authority:
    """An authority; ``pem`` is its certificate's file.

    Attributes:
        issuer: whose key signs its certificate; None: its own.
    """

    folder: Path
    name: str = "mesh-ca"
    issuer: "Authority | None" = None
    _key: Ed25519PrivateKey = attrs.field(factory=Ed25519PrivateKey.generate, init=False)

    def __attrs_post_init__(self) -> None:
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        issuer = self if self.issuer is None else self.issuer
        builder = issuer._begin(_name(self.name), self._key, days=30)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        builder = builder.add_extension(usage, True)
        own = x509.SubjectKeyIdentifier.from_public_key(self._key.public_key())
        made = builder.add_extension(own, False).sign(issuer._key, None)
        self.pem.write_bytes(made.public_bytes(Encoding.PEM))

    @property
    def pem(self) -> Path:
        return self.folder / f"{self.name}.pem"

    def issue(self, router: str, *names: str, days: int = 30) -> Path:
        """Writes key and certificate of a router; the certificate's DNS names are its id's."""
        own = Ed25519PrivateKey.generate()
        builder = self._begin(_name(router), own, days)
        alternatives = [x509.DNSName(name) for name in names or (router,)]
        builder = builder.add_extension(x509.SubjectAlternativeName(alternatives), False)
        ours = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        made = builder.add_extension(ours, False).sign(self._key, None)
        path = self.folder / f"{router}.pem"
        path.write_bytes(made.public_bytes(Encoding.PEM))
        octets = own.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        path.with_suffix(".key").write_bytes(octets)
        return path

    def _begin(self, name: x509.Name, key: Ed25519PrivateKey, days: int) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        builder = x509.CertificateBuilder().subject_name(name).issuer_name(_name(self.name))
        builder = builder.public_key(key.public_key()).serial_number(x509.random_serial_number())
        begin = min(now - timedelta(days=1), now + timedelta(days=days - 1))
        return builder.not_valid_before(begin).not_valid_after(now + timedelta(days=days))
