"""TLS contexts from files, made anew when the files change.

Verification is on by default, against the system's authorities; the verified name is the
dialed host, unless another is given. Every error is one line that names option and file.

Certificates are rotated by writing the files: the ``current`` context is always made from the
present contents of the files. Established connections keep their certificate until
``rotation`` ends them. A file that cannot be used is reported once, and the last good context stays
in use. So it does if the new certificate has expired or is not valid yet, and the one in use is
valid; one that is not valid yet is used from when it is. They are looked at in a thread, and while
they do not answer the context in use stays so (``looking``).
"""

import hmac
import os
import ssl
import time
import weakref
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import attrs
import structlog
import trio

from router.looking import Looker
from router.net.tls import TlsError, describe_error
from router.net.tls_stream import judge_tickets, make_ready, share_tickets
from router.net.validity import Validity, read_authorities, read_chain, why_refused
from router.regular import read_regular

LOOK_SECONDS: Final = 1.0
"""The files are looked at no more often than this."""


@attrs.frozen(kw_only=True)
class TlsFiles:
    """What a context is made of.

    Attributes:
        option: where this stands in the configuration, for errors (``containers.west.tls``); the
            files are its options ``cert``, ``key`` and ``ca``.
        prefix: of the names of these options.
        certificate: ours with its chain, PEM; a listener needs one.
        key: its private key, PEM; None: it is in ``certificate``.
        authorities: those that sign peers' certificates, PEM; None: the system's.
        verify: whether the peer must show a certificate that these signed. A connector that does
            not verify checks no name either.
        minimum_version: older ones are not spoken.
        has_websocket: WebSocket may come above TLS, so that HTTP is offered beside AMQP.
        tickets: secret that all workers have in common; a client resumes its session at any of
            them, as long as the contents of the files stay the same. Empty: at this one only.
    """

    option: str
    prefix: str = ""
    certificate: Path | None = None
    key: Path | None = None
    authorities: Path | None = None
    verify: ssl.VerifyMode = ssl.CERT_REQUIRED
    minimum_version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_2
    has_websocket: bool = False
    tickets: bytes = attrs.field(default=b"", repr=False)

    def server_context(self) -> ssl.SSLContext:
        """Makes a context for a listener.

        Raises:
            TlsError: a file cannot be used.
        """
        if self.certificate is None:
            option = self._option("cert")
            raise TlsError(f"{option}: a listener needs one", option)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._load(context, ssl.Purpose.CLIENT_AUTH)
        context.verify_mode = self.verify
        if self.tickets:
            share_tickets(context, self._ticket_secret())
        if self.verify is not ssl.CERT_NONE:
            judge_tickets(context)
        return context

    def _ticket_secret(self) -> bytes:
        """Returns a secret that is another one when a client would have to prove something else.

        A session that is resumed is not verified again. So none outlives our certificate and the
        authorities with which it began, nor the client's certificate (``judge_tickets``).
        """
        digest = hmac.new(self.tickets, digestmod="sha512")
        for path in (self.certificate, self.key, self.authorities):
            octets = b"" if path is None else read_regular(path)
            digest.update(b"%d:" % len(octets) + octets)
        digest.update(f"{self.verify}:{self.minimum_version}".encode())
        return digest.digest()

    def client_context(self) -> ssl.SSLContext:
        """Makes a context for a connector.

        Raises:
            TlsError: a file cannot be used.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if self.verify is ssl.CERT_NONE:
            context.check_hostname = False
        context.verify_mode = self.verify
        self._load(context, ssl.Purpose.SERVER_AUTH)
        return context

    def validities(self) -> tuple[Validity, ...]:
        """Returns until when the certificates and authorities in the files are valid."""
        return tuple(each for each in self._validities() if each is not None)

    def _validities(self) -> Iterator[Validity | None]:
        if self.certificate is not None:
            yield read_chain(self._option("cert"), self.certificate)
        if self.authorities is not None:
            yield read_authorities(self._option("ca"), self.authorities)

    def _load(self, context: ssl.SSLContext, purpose: ssl.Purpose) -> None:
        context.minimum_version = self.minimum_version
        context.options |= ssl.OP_NO_RENEGOTIATION  # RFC 9325 §3.5: nothing here asks for it
        context.set_alpn_protocols([*ALPN, *ALPN_HTTP] if self.has_websocket else ALPN)
        make_ready(context)
        if self.authorities is not None:
            _trying(self._option("ca"), self.authorities, context.load_verify_locations)
        elif self.verify is not ssl.CERT_NONE:
            context.load_default_certs(purpose)
        if self.certificate is None:
            return
        if self.key is None:
            _trying(self._option("cert"), self.certificate, self._load_chain_into(context))
        else:
            probe = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # or both faults look like the key's
            _trying(self._option("cert"), self.certificate, probe.load_verify_locations)
            _trying(self._option("key"), self.key, self._load_chain_into(context))

    def _option(self, name: str) -> str:
        return f"{self.option}.{self.prefix}{name}"

    def _load_chain_into(self, context: ssl.SSLContext) -> Callable[[Path], object]:
        def load(_: Path) -> None:
            assert self.certificate is not None
            context.load_cert_chain(self.certificate, self.key, _NO_PASSWORD)

        return load


def _read(option: str, path: Path) -> bytes:
    try:
        return read_regular(path)
    except OSError as error:
        raise TlsError(f"{option}: {path}: {error.strerror}", option) from None


def _trying(option: str, path: Path, load: Callable[[Path], object]) -> None:
    octets = _read(option, path)
    try:
        load(path)
    except ssl.SSLError as error:
        raise TlsError(f"{option}: {path}: {_explain(error, octets)}", option) from None


def _explain(error: ssl.SSLError, octets: bytes) -> str:
    if b"ENCRYPTED" in octets:
        return "it is locked by a password; give one without"
    return _EXPLANATIONS.get(error.reason or "") or describe_error(error)


_EXPLANATIONS: Final = {
    "": "it holds no PEM of the kind that is wanted",
    "NO_CERTIFICATE_OR_CRL_FOUND": "it holds no certificate in PEM",
    "NO_START_LINE": "it holds no PEM",
    "KEY_VALUES_MISMATCH": "the key is not the certificate's",
}

_NO_PASSWORD: Final = "-"
"""Given for a key that wants one, so that OpenSSL does not ask on the terminal."""

ALPN: Final = ["amqp"]
"""As registered; whoever names none, or another, is served too."""

ALPN_HTTP: Final = ["http/1.1"]
"""What servers of WebSocket know: some refuse a client that offers nothing they know."""

Signature = tuple[tuple[int, int, int] | None, ...]


@attrs.frozen
class _Found:
    """What a look at changed files has brought.

    Attributes:
        signature: of the files.
        context: made of them; None: it cannot be, see ``trouble``.
        validities: of their certificates.
        trouble: why they cannot be used.
    """

    signature: Signature
    context: ssl.SSLContext | None = None
    validities: tuple[Validity, ...] = ()
    trouble: str = ""


@attrs.define(eq=False)
class TlsContext:
    """A context that follows its files.

    Attributes:
        files: what it is made of.
        make: ``TlsFiles.server_context`` or ``TlsFiles.client_context``.
        wall: the time in seconds since 1970.
        trouble: why the present files cannot be used, so that older ones are; None: they can.
        validities: until when the certificates in use are valid.
    """

    files: TlsFiles
    make: Callable[[TlsFiles], ssl.SSLContext]
    clock: Callable[[], float] = trio.current_time
    wall: Callable[[], float] = time.time
    trouble: str | None = attrs.field(default=None, init=False)
    validities: tuple[Validity, ...] = attrs.field(default=(), init=False)
    _context: ssl.SSLContext = attrs.field(init=False)
    _signature: Signature = attrs.field(init=False)
    _looked_at: float = attrs.field(default=float("-inf"), init=False)
    _valid_at: float = attrs.field(default=float("inf"), init=False)
    """When what was refused is valid, by ``wall``."""
    _replaced: "weakref.WeakKeyDictionary[ssl.SSLContext, float]" = attrs.field(
        factory=weakref.WeakKeyDictionary, init=False
    )
    _looker: Looker[_Found | None] = attrs.field(init=False)
    _log: Any = attrs.field(factory=structlog.get_logger, init=False)

    @_looker.default
    def _make_looker(self) -> Looker[_Found | None]:
        return Looker(self.files.option)

    def __attrs_post_init__(self) -> None:
        self._signature = self._sign()
        self._context = self.make(self.files)
        self.validities = self.files.validities()

    def current(self) -> ssl.SSLContext:
        """Returns the context for a new connection."""
        now = self.clock()
        if now - self._looked_at < LOOK_SECONDS:
            return self._context
        self._looked_at = now
        is_due = self.wall() >= self._valid_at
        found = self._looker.look(partial(self._find, self._signature, is_due))
        if found is not None:
            self._follow(found, now)
        return self._context

    def _find(self, known: Signature, is_due: bool) -> "_Found | None":
        """Looks at the files, in a thread, and makes a context of them if they have changed."""
        signature = self._sign()
        if signature == known and not is_due:
            return None
        try:
            return _Found(signature, self.make(self.files), self.files.validities())
        except TlsError as error:
            return _Found(signature, trouble=str(error))

    def _follow(self, found: "_Found", now: float) -> None:
        """Uses the context that was made anew, or keeps the one in use and says why."""
        self._signature, self._valid_at = found.signature, float("inf")
        if found.context is None:
            self._refuse(found.trouble)
            return
        validities = found.validities
        worse = self._is_worse(self.validities, validities)
        if worse is not None:
            self._refuse_until_valid(worse, validities)
            return
        self.trouble, self.validities = None, validities
        self._replaced[self._context] = now
        self._context = found.context
        self._log.info("certificate.replaced", option=self.files.option)

    def _refuse(self, reason: str) -> None:
        self.trouble = reason
        self._log.error("certificate.refused", option=self.files.option, reason=reason)

    def _refuse_until_valid(self, reason: str, validities: tuple[Validity, ...]) -> None:
        self._refuse(reason)
        now = self.wall()
        early = (each.own.starts for each in validities if each.own.is_early(now))
        self._valid_at = max(early, default=float("inf"))

    def _is_worse(self, before: tuple[Validity, ...], after: tuple[Validity, ...]) -> str | None:
        """Returns why a change is refused: it brings for a valid certificate one that is not."""
        in_use, now = {each.option: each for each in before}, self.wall()
        changes = ((in_use[each.option], each) for each in after if each.option in in_use)
        reasons = (why_refused(old, each, now) for old, each in changes)
        return next((each for each in reasons if each is not None), None)

    @property
    def has_replaced(self) -> bool:
        """Whether a context that was replaced is still in use."""
        return bool(self._replaced)

    def replaced_at(self, context: ssl.SSLContext) -> float | None:
        """Returns when a context was replaced; None: it is current, or none of ours."""
        return self._replaced.get(context)

    def succeed(self, other: "TlsContext") -> None:
        """Replaces another one, made for the same purpose before a reload."""
        self._replaced.update(other._replaced)
        is_same = attrs.evolve(other.files, option=self.files.option) == self.files
        in_use = tuple(
            attrs.evolve(each, option=self.files.option + each.option[len(other.files.option) :])
            for each in other.validities
        )
        found = self.validities
        worse = self._is_worse(in_use, found)
        if not is_same or (other._signature != self._signature and worse is None):
            self._replaced[other._context] = self.clock()
            return
        self._context, self.validities, self.trouble = other._context, in_use, other.trouble
        self._valid_at = other._valid_at
        if other._signature != self._signature and worse is not None:
            self._refuse_until_valid(worse, found)

    def _sign(self) -> Signature:
        """Returns a signature of the files' states, without reading them."""
        signatures: list[tuple[int, int, int] | None] = []
        for path in (self.files.certificate, self.files.key, self.files.authorities):
            try:
                status = None if path is None else os.stat(path)
            except OSError:
                status = None
            signatures.append(status and (status.st_mtime_ns, status.st_size, status.st_ino))
        return tuple(signatures)
