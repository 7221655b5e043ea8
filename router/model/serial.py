"""Serial number arithmetic on 32 bits (RFC 1982), as §2.8.10 asks for all sequence numbers."""

MASK = 0xFFFF_FFFF
HALF = 0x8000_0000


def add(serial: int, increment: int) -> int:
    """Adds ``increment`` (0 to 2^31 - 1) to ``serial``, modulo 2^32 (RFC 1982 §3.1)."""
    return (serial + increment) & MASK


def distance(start: int, end: int) -> int:
    """Returns how far ``end`` lies after ``start``, from -2^31 to 2^31 - 1.

    RFC 1982 leaves a distance of exactly 2^31 undefined; here it counts as before.
    """
    return ((end - start + HALF) & MASK) - HALF


def is_before(first: int, second: int) -> bool:
    """Returns whether ``first`` comes before ``second`` (RFC 1982 §3.2)."""
    return distance(first, second) > 0
