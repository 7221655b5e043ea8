"""Certificates good and bad, as PEM files, for tests of TLS."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import attrs
import trustme

SERVER_FLAWS = ("good", "expired", "wrong-host", "wrong-ca")
CLIENT_FLAWS = ("good", "expired", "wrong-ca", "missing")
CLIENT_NAME = "app"


@attrs.define(eq=False)
class Certificates:
    """A folder of certificates; each ``.pem`` has key, certificate and chain.

    Attributes:
        authority: signs what is good; ``authorities`` is its PEM.
        stranger: nobody trusts it.
    """

    folder: Path
    authority: trustme.CA = attrs.field(factory=trustme.CA)
    stranger: trustme.CA = attrs.field(factory=trustme.CA)

    @property
    def authorities(self) -> Path:
        return self.folder / "authorities.pem"

    def server(self, flaw: str) -> Path:
        return self.folder / f"server-{flaw}.pem"

    def client(self, flaw: str) -> Path | None:
        return None if flaw == "missing" else self.folder / f"client-{flaw}.pem"

    def write(self) -> None:
        """Writes everything."""
        self.authority.cert_pem.write_to_path(str(self.authorities))
        for flaw in SERVER_FLAWS:
            names = ["other.example"] if flaw == "wrong-host" else ["localhost", "127.0.0.1"]
            self._issue(self.server(flaw), flaw, *names)
        for flaw in CLIENT_FLAWS:
            path = self.client(flaw)
            if path is not None:
                self._issue(path, flaw, "client.example")

    def renew(self, path: Path) -> None:
        """Writes another good certificate of the server to a file, in one step."""
        fresh = path.with_suffix(".new")
        self._issue(fresh, "good", "localhost", "127.0.0.1")
        fresh.replace(path)

    def _issue(self, path: Path, flaw: str, *names: str) -> None:
        authority = self.stranger if flaw == "wrong-ca" else self.authority
        now = datetime.now(UTC)
        begin, end = now - timedelta(days=30), now + timedelta(days=30)
        if flaw == "expired":
            end = now - timedelta(days=1)
        issued = authority.issue_cert(
            *names, common_name=CLIENT_NAME, not_before=begin, not_after=end
        )
        issued.private_key_and_cert_chain_pem.write_to_path(str(path))


def make_certificates(folder: Path) -> Certificates:
    """Makes and writes them all."""
    certificates = Certificates(folder)
    certificates.write()
    return certificates
