"""Entries of a mesh are signed and checked with Ed25519 keys."""

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from router.core.mesh_octets import Codec10
from router.net.mesh_keys import KeyRing, KeySigner
from router.routes.mesh.bodies import Bad, Notary
from router.routes.mesh.nouns import Key, Kind, Links, RouterId, Version

DC1, DC2, DC3 = RouterId("dc1"), RouterId("dc2"), RouterId("dc3")
KEYS = {DC1: Ed25519PrivateKey.generate(), DC2: Ed25519PrivateKey.generate()}
RING = KeyRing({router: key.public_key() for router, key in KEYS.items()})


def notary(router: RouterId) -> Notary:
    return Notary(Codec10(), KeySigner(KEYS[router]), RING)


def test_an_entry_opens_with_the_key_of_its_origin() -> None:
    links = Links({DC2: 5})
    entry = notary(DC1).seal(Key(DC1, Kind.LINKS, 0), Version(1, 1), links)
    assert len(entry.signature) == 64
    assert notary(DC2).open(entry) == links


def test_a_router_cannot_sign_for_another() -> None:
    entry = notary(DC2).seal(Key(DC1, Kind.LINKS, 0), Version(1, 1), Links({}))
    refused = notary(DC2).open(entry)
    assert refused == Bad("an entry links of dc1 that dc1 has not signed", is_forged=True)


def test_a_router_whose_key_is_not_known_is_not_believed() -> None:
    entry = notary(DC2).seal(Key(DC3, Kind.LINKS, 0), Version(1, 1), Links({}))
    assert isinstance(notary(DC1).open(entry), Bad)


def test_a_signature_of_a_wrong_size_is_none() -> None:
    assert not RING.verify(DC1, b"octets", b"")
    assert not RING.verify(DC1, b"octets", b"x" * 63)
