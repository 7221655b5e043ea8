"""Who signs entries of a mesh: Ed25519 keys (RFC 8032), by the ``cryptography`` library.

The library is the extra ``router[mesh]``; a router without a mesh does not load it.
"""

from collections.abc import Mapping

import attrs
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

from router.routes.mesh.nouns import RouterId


@attrs.frozen
class KeySigner:
    """Signs with a router's private key (``routes.mesh.bodies.Signer``)."""

    key: Ed25519PrivateKey

    def sign(self, octets: bytes) -> bytes:
        """Returns a signature."""
        return self.key.sign(octets)


@attrs.frozen
class KeyRing:
    """Knows the public keys of routers (``routes.mesh.bodies.Verifier``).

    Attributes:
        keys: router → its key.
    """

    keys: Mapping[RouterId, Ed25519PublicKey]

    def verify(self, origin: RouterId, octets: bytes, signature: bytes) -> bool:
        """Returns whether a router signed octets; False if its key is not known."""
        key = self.keys.get(origin)
        if key is None:
            return False
        try:
            key.verify(signature, octets)
        except InvalidSignature:
            return False
        return True
