"""Strings of peers: which must be UTF-8, which pass as they are, and how people see them.

The strings of all protocols are meant to be UTF-8, and peers send what they like. Every string is
one of three kinds, and each kind has one rule::

    names    addresses, queues, exchanges, keys, link names, container-ids, users: they are told
             to other workers, compared, hashed and written down. ``decode_name`` takes UTF-8 and
             nothing else; a peer that sends anything else is answered with its protocol's error.
    carried  what belongs to a message, and what a broker that we dialed calls its own things. They
             go out again octet for octet: ``decode_text`` keeps what is not UTF-8 as lone
             surrogates, ``encode_text`` writes it back. They stay inside their engine; a
             translation makes binaries of those that are not ``is_text``.
    words    reply texts and what peers say of themselves. ``words`` reads any octets.

What may never happen: a string with a lone surrogate leaves an engine, for nothing else encodes it.

``shown`` is how all of them, once they are text, get onto a screen: a terminal, a log, a page or a
label obeys no name.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

from router.errors import DecodeError

SHOWN_MOST: Final = 200
"""Characters of a name that people are shown; more say nothing, and push the rest off a screen."""

_FIRST_OCTET: Final = 0xDC80
_LAST_OCTET: Final = 0xDCFF
"""Lone surrogates that stand for octets (PEP 383)."""


def decode_name(octets: bytes, at: int = 0) -> str:
    """Reads a name.

    Args:
        octets: of the name.
        at: where they begin in what was received, for the error.

    Raises:
        DecodeError: they are not UTF-8.
    """
    try:
        return str(octets, "utf-8")
    except UnicodeDecodeError as error:
        raise DecodeError(at + error.start, "a name is not UTF-8") from None


def decode_text(octets: bytes) -> str:
    """Reads a string that goes out again as it came, whatever its octets are."""
    return str(octets, "utf-8", "surrogateescape")


def encode_text(text: str) -> bytes:
    """Writes a string's octets, also those that were not UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def is_text(text: str) -> bool:
    """Returns whether a string can be encoded: it was UTF-8, or never octets at all."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def words(text: str) -> str:
    r"""Makes text for people of a carried string: what is not UTF-8 becomes ``\xNN``."""
    if is_text(text):
        return text
    return "".join([_escape(each) if _is_surrogate(each) else each for each in text])


def readable(properties: Mapping[str, object]) -> dict[object, object]:
    """Returns what a peer says of itself, as far as it is strings, as words."""
    return {words(name): words(text) for name, text in properties.items() if isinstance(text, str)}


def name_of(octets: bytes) -> str:
    r"""Makes a name of octets that need not be text; different octets give different names.

    What is not UTF-8 becomes ``\xNN``, and a backslash two.
    """
    return words(decode_text(octets.replace(b"\\", b"\\\\")))


def shown(text: str, most: int = SHOWN_MOST) -> str:
    r"""Makes what people may see of a foreign string: in one line, without any control.

    Control characters, line ends, marks that change the direction of writing, and whatever else is
    not printed are escaped (``\x1b``, ``\n``, ``\u202e``); what is longer than ``most``
    characters is cut, and its length told.
    """
    escaped = _escaped(text[:most])
    if len(text) <= most and len(escaped) <= most:
        return escaped
    return f"{escaped[:most]}… ({len(text):,} characters)"


def label(text: str, most: int = SHOWN_MOST) -> str:
    """Makes what is shown of a string that is told apart by it: different strings differ.

    As ``shown``, but backslashes are doubled, and what is cut ends in a hash of all of it.
    """
    escaped = _escaped(text.replace("\\", "\\\\"))
    if len(escaped) <= most:
        return escaped
    octets = text.encode("utf-8", "surrogatepass")
    return f"{escaped[:most]}…{hashlib.blake2b(octets, digest_size=8).hexdigest()}"


def _escaped(text: str) -> str:
    if text.isprintable():
        return text
    return "".join([each if each.isprintable() else _escape(each) for each in text])


def _escape(character: str) -> str:
    if _FIRST_OCTET <= ord(character) <= _LAST_OCTET:  # as ``decode_text`` keeps it
        return f"\\x{ord(character) & 0xFF:02x}"
    return character.encode("unicode_escape").decode()


def _is_surrogate(character: str) -> bool:
    return "\ud800" <= character <= "\udfff"
