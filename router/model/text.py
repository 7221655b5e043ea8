"""Strings of peers: which must be UTF-8, which pass unchanged, and how they are displayed.

All protocols define their strings as UTF-8, but peers send other octets, too. Every string is
of one of three kinds, and each kind has one rule::

    names    addresses, queues, exchanges, keys, link names, container-ids, users: they are sent
             to other workers, compared, hashed and recorded. ``decode_name`` accepts UTF-8 only;
             a peer that sends anything else is answered with its protocol's error.
    carried  strings of a message, and a dialed broker's names for its own things. They are sent
             on octet for octet: ``decode_text`` keeps octets that are not UTF-8 as lone
             surrogates, ``encode_text`` writes them back. They stay inside their engine; a
             translation makes binaries of those that are not ``is_text``.
    words    reply texts and peers' descriptions of themselves. ``words`` reads any octets.

What may never happen: a string with a lone surrogate leaves an engine; nothing else can encode it.

``shown`` escapes any of these strings for display, so that no name can control a terminal, a log, a
page or a label.
"""

import hashlib
from collections.abc import Mapping
from typing import Final

from router.errors import DecodeError

SHOWN_MOST: Final = 200
"""Characters of a name that are displayed; longer names would push the rest off a screen."""

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
    """Reads a string that is sent on unchanged, whatever its octets are."""
    return str(octets, "utf-8", "surrogateescape")


def encode_text(text: str) -> bytes:
    """Writes a string's octets, also those that were not UTF-8."""
    return text.encode("utf-8", "surrogateescape")


def is_text(text: str) -> bool:
    """Returns whether a string can be encoded as UTF-8: it has no lone surrogates."""
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def words(text: str) -> str:
    r"""Makes text for people of a carried string: octets that are not UTF-8 become ``\xNN``."""
    if is_text(text):
        return text
    return "".join([_escape(each) if _is_surrogate(each) else each for each in text])


def readable(properties: Mapping[str, object]) -> dict[object, object]:
    """Returns those properties of a peer that are strings, as words."""
    return {words(name): words(text) for name, text in properties.items() if isinstance(text, str)}


def name_of(octets: bytes) -> str:
    r"""Makes a name of any octets; different octets give different names.

    An octet that is not UTF-8 becomes ``\xNN``; a backslash is doubled.
    """
    return words(decode_text(octets.replace(b"\\", b"\\\\")))


def shown(text: str, most: int = SHOWN_MOST) -> str:
    r"""Makes a foreign string safe to display: one line, without control characters.

    Control characters, line ends, marks that change the direction of writing, and other characters
    that are not printable are escaped (``\x1b``, ``\n``, ``\u202e``). A string longer than ``most``
    characters is cut, and its length added.
    """
    escaped = _escaped(text[:most])
    if len(text) <= most and len(escaped) <= most:
        return escaped
    return f"{escaped[:most]}… ({len(text):,} characters)"


def label(text: str, most: int = SHOWN_MOST) -> str:
    """Makes a string safe to display as a label: different strings give different labels.

    As ``shown``, but backslashes are doubled, and a cut string ends in a hash of the whole.
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
