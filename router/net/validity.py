"""From when until when certificates in files are valid, for those who have to renew them in time.

A file of our own certificate holds its chain: it is good when all of them are, so from when the
last of them begins until the first of them expires. A file of authorities is good from the first
beginning until the last of them expires, since peers may be signed by any of them.
"""

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import attrs
from asn1crypto import pem, x509

from router.regular import read_regular

DUE_SECONDS: Final = 14 * 86400.0
"""A certificate that expires sooner should have been renewed."""

DUE_SHARE: Final = 0.25
"""Share of its life in which a certificate of a short life should have been renewed: those who
renew by themselves do it after two thirds."""

OWN: Final = ""
ISSUER: Final = "a certificate of its chain"
AUTHORITY: Final = "the last authority in it"


@attrs.frozen(kw_only=True)
class Validity:
    """From when until when a file's certificates are valid. Times are seconds since 1970.

    Attributes:
        option: of the configuration, which names the file.
        file: its path.
        what: which certificate in the file expires first, for people; empty: our own.
        begins, ends: validity of that certificate.
        own_ends: of a chain, when our own certificate expires.
        starts: from when the file is good.
        own_starts: of a chain, from when our own certificate is valid.
    """

    option: str
    file: str
    what: str = OWN
    begins: float
    ends: float
    own_ends: float
    starts: float = attrs.field()
    own_starts: float = attrs.field()

    @starts.default
    def _starts(self) -> float:
        return self.begins

    @own_starts.default
    def _own_starts(self) -> float:
        return self.starts

    @property
    def own(self) -> "Validity":
        """That of our own certificate, without the rest of its chain."""
        if (self.own_starts, self.own_ends) == (self.starts, self.ends):
            return self
        return attrs.evolve(self, what=OWN, starts=self.own_starts, ends=self.own_ends)

    def is_due(self, now: float) -> bool:
        """Returns whether it should have been renewed."""
        return self.ends - now <= min(DUE_SECONDS, DUE_SHARE * (self.ends - self.begins))

    def has_expired(self, now: float) -> bool:
        """Returns whether some peer refuses what is in the file."""
        return now > self.ends

    def is_early(self, now: float) -> bool:
        """Returns whether some peer refuses what is in the file until its time comes."""
        return now < self.starts and not self.has_expired(now)

    def is_valid(self, now: float) -> bool:
        """Returns whether no peer refuses what is in the file for its time."""
        return self.starts <= now <= self.ends

    def describe(self, now: float) -> str:
        """Says in one line when it expires, that it has, or when it will be valid."""
        if self.is_early(now):
            what = "" if self.own.is_early(now) else f": {ISSUER}"
            return f"{self.option}: {self.file}{what} is not valid before {show_time(self.starts)}"
        subject = f"{self.file}: {self.what}" if self.what else self.file
        verb = "expired" if self.has_expired(now) else "expires"
        return f"{self.option}: {subject} {verb} on {show_time(self.ends)}"


def why_refused(old: Validity, new: Validity, now: float) -> str | None:
    """Returns why one is not replaced by another: this is valid, and that is not, or not yet."""
    if new.own.is_valid(now) or not old.own.is_valid(now):
        return None
    later = ", and the new one is taken over when it is valid" if new.own.is_early(now) else ""
    until = show_time(old.own_ends)
    return f"{new.own.describe(now)}; what is in use is valid until {until}{later}"


def show_time(at: float) -> str:
    """Returns a time, in seconds since 1970, for people."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))


def read_chain(option: str, path: Path) -> Validity | None:
    """Returns the validity of our own certificate with its chain; None: it cannot be read."""
    spans = _read(path)
    if not spans:
        return None
    first = min(spans, key=lambda span: span[1])
    return Validity(
        option=option,
        file=str(path),
        what=OWN if first is spans[0] else ISSUER,
        begins=first[0],
        ends=first[1],
        own_ends=spans[0][1],
        starts=max(begins for begins, _ in spans),
        own_starts=spans[0][0],
    )


def read_authorities(option: str, path: Path) -> Validity | None:
    """Returns the validity of the authorities in a file; None: they cannot be read."""
    spans = _read(path)
    if not spans:
        return None
    begins, ends = max(spans, key=lambda span: span[1])
    return Validity(
        option=option,
        file=str(path),
        what=AUTHORITY,
        begins=begins,
        ends=ends,
        own_ends=ends,
        starts=min(begins for begins, _ in spans),
    )


def _read(path: Path) -> Sequence[tuple[float, float]]:
    """Returns from when to when each certificate of a PEM file is valid."""
    try:
        return tuple(_spans(read_regular(path)))
    except (OSError, ValueError, OverflowError):  # OpenSSL says why, or accepts it all the same
        return ()


def _spans(octets: bytes) -> Iterator[tuple[float, float]]:
    for kind, _, der in pem.unarmor(octets, multiple=True):
        if kind in _CERTIFICATES:
            found = x509.Certificate.load(der)
            yield found.not_valid_before.timestamp(), found.not_valid_after.timestamp()


_CERTIFICATES: Final = ("CERTIFICATE", "X509 CERTIFICATE")
