"""Where listeners bind and where containers are found: host:port, unix:/path, amqp URLs."""

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Final
from urllib.parse import quote, unquote

import attrs

from router.model.place import Alternative, BindAddress, TcpAddress, UnixAddress, is_host
from router.net.proxy import Proxy
from router.service.config.document import Items, Node
from router.service.config.hints import bind_hint, scheme_hint
from router.service.config.kinds import (
    Broken,
    Kind,
    Reading,
    ScalarKind,
    Schema,
    read_part,
)
from router.service.config.problems import ReportedError, UnfitError
from router.service.config.references import Part, Secret

HIGHEST_PORT: Final = 65535
DEFAULT_PORTS: Final = {"amqp": 5672, "amqps": 5671, "ws": 80, "wss": 443}
_OVER_TLS: Final = ("amqps", "wss")
WEBSOCKET_SCHEMES: Final = ("ws", "wss")
_PROXY: Final = re.compile(r"http://", re.IGNORECASE)

_HOST_AND_PORT: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9._-]+)):([0-9]{1,5})")
_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")
_HOST_PATTERN: Final = re.compile(r"\*|(\*\.)?[A-Za-z0-9._-]+|[0-9A-Fa-f:.]+")
_NEXT_URL: Final = re.compile(r",\s*(?=[A-Za-z]+://)")


@attrs.frozen
class Bind(ScalarKind[BindAddress]):
    """``host:port``, ``[v6]:port`` or ``unix:/path``."""

    def read(self, node: Node, at: str, reading: Reading) -> BindAddress:
        """Reads an address; a relative path starts from the directory of the configuration file."""
        address = super().read(node, at, reading)
        if isinstance(address, UnixAddress):
            return UnixAddress(reading.sources.directory / address.path)
        return address

    def parse(self, text: str) -> BindAddress:
        """Accepts the three forms."""
        if text.startswith("unix:"):
            path = text.removeprefix("unix:")
            if not path or "\0" in path:
                raise UnfitError("names no path after unix:")
            return UnixAddress(Path(path))
        match = _HOST_AND_PORT.fullmatch(text)
        if match is None:
            raise UnfitError(f"is not {self.wanted()}{bind_hint(text)}")
        return TcpAddress(_host(match), _port(match.group(3)))

    def wanted(self) -> str:
        """Returns the three forms."""
        return "host:port, [v6]:port or unix:/path"


@attrs.frozen
class HostPort(Bind):
    """``host:port`` or ``[v6]:port``: a place to dial."""

    def parse(self, text: str) -> TcpAddress:
        """Accepts the two forms."""
        address = super().parse(text)
        if not isinstance(address, TcpAddress) or not address.port:
            raise UnfitError(f"is not {self.wanted()}")
        return address

    def wanted(self) -> str:
        """Returns the two forms."""
        return "host:port or [v6]:port"


def _host(match: re.Match[str]) -> str:
    """Returns what ``_HOST_AND_PORT`` has found, if it is a host."""
    host: str = match.group(1) or match.group(2)
    if is_host(host):
        return host
    if match.group(1) is not None:
        raise UnfitError("has no IPv6 address between the brackets")
    raise UnfitError("has a host that is no name: between dots there are 1 to 63 characters")


def _port(text: str) -> int:
    if int(text) > HIGHEST_PORT:
        raise UnfitError(f"has a port above {HIGHEST_PORT}")
    return int(text)


@attrs.frozen(kw_only=True)
class ContainerUrl:
    """One place where a container can be dialed. ``str`` leaves the password out.

    Attributes:
        user: SASL identity in the URL; None: none was given.
        vhost: virtual host from the path, decoded; None: none was given.
        path: of the WebSocket, from the URL as it is; None: no WebSocket.
    """

    host: str
    port: int
    is_tls: bool = False
    user: str | None = None
    password: Secret | None = None
    vhost: str | None = None
    path: str | None = None

    @property
    def address(self) -> TcpAddress:
        """Host and port alone."""
        return TcpAddress(self.host, self.port)

    def __str__(self) -> str:
        who = "" if self.user is None else quote(self.user, safe="")
        who += "" if self.password is None else ":***"
        path = "" if self.vhost is None else f"/{quote(self.vhost, safe='')}"
        scheme = "amqps" if self.is_tls else "amqp"
        if self.path is not None:
            path, scheme = self.path, "wss" if self.is_tls else "ws"
        return f"{scheme}://{f'{who}@' if who else ''}{self.address}{path}"


@attrs.frozen
class Urls(Kind[tuple[ContainerUrl, ...]]):
    """One URL, several with commas between them, or a list: the same container, dialed in turn.

    ``amqp[s]://[user[:password]@]host[:port][/vhost]`` or ``ws[s]://`` with the path of a
    WebSocket; parts are percent-encoded; the text of a
    reference in user or password is used as it is and may hold any character.
    """

    def read(self, node: Node, at: str, reading: Reading) -> tuple[ContainerUrl, ...]:
        """Reads every URL."""
        if not isinstance(node, Items):
            return _UrlList().read(node, at, reading)
        found: list[ContainerUrl] = []
        for number, item in enumerate(node.items):
            urls = read_part(_UrlList(), item, f"{at}[{number}]", reading)
            if isinstance(urls, Broken):
                raise ReportedError("holds a URL that cannot be read")
            found += urls
        if not found:
            raise UnfitError("is an empty list")
        return tuple(found)

    def schema(self) -> Schema:
        """A text or a list of them."""
        one = {"type": "string", "pattern": r"^(amqps?|wss?)://|\$\{"}
        return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}


@attrs.frozen
class _UrlList(ScalarKind[tuple[ContainerUrl, ...]]):
    """One or several URLs in one text. Reasons never quote it: it may hold passwords."""

    is_secret = True
    absent = "write amqp://host, or amqps://host for TLS"

    def join(self, parts: Sequence[Part]) -> str:
        """Percent-encodes the text of references in user and password."""
        return _join_url(parts)

    def parse(self, text: str) -> tuple[ContainerUrl, ...]:
        """Parses the URLs."""
        return tuple(parse_url(each.strip()) for each in _NEXT_URL.split(text))

    def wanted(self) -> str:
        """Returns the form."""
        return "amqp://[user[:password]@]host[:port][/vhost] or amqps://..."


@attrs.frozen
class OtherPlace(ScalarKind[Alternative]):
    """``host[:port]``, or a URL without user: where else clients of a listener find a container."""

    def parse(self, text: str) -> Alternative:
        """Parses the place; without a scheme, clients keep the one that they have."""
        scheme = _SCHEME.match(text)
        url = parse_url(text if scheme is not None else f"amqp://{text}")
        if url.user is not None or url.password is not None:
            raise UnfitError("names a user, and every client would read it: leave user@ out")
        has_port = re.search(r":[0-9]+(/.*)?$", text.rpartition("]")[2]) is not None
        return Alternative(
            host=url.host,
            port=url.port if scheme is not None or has_port else None,
            scheme=None if scheme is None else scheme.group(1).lower(),
            hostname=url.vhost,
            path=url.path,
        )

    def wanted(self) -> str:
        """Returns the form."""
        return "host[:port], or amqp[s]:// or ws[s]:// before it"


@attrs.frozen
class HostPattern(ScalarKind[str]):
    """A host, ``*.domain`` for any below a domain, or ``*``; in lower case."""

    def parse(self, text: str) -> str:
        """Parses a pattern."""
        plain = text.removeprefix("[").removesuffix("]")
        if _HOST_PATTERN.fullmatch(plain) is None:
            raise UnfitError(f"is not {self.wanted()}")
        return plain.lower().rstrip(".")

    def wanted(self) -> str:
        """Returns the form."""
        return "a host, *.domain, or *"


@attrs.frozen
class HostName(ScalarKind[str]):
    """A host's name or IP address."""

    def parse(self, text: str) -> str:
        """Accepts what can be looked up."""
        if not is_host(text):
            raise UnfitError(f"is not {self.wanted()}")
        return text

    def wanted(self) -> str:
        """Returns the forms."""
        return "a host name or an IP address"


@attrs.frozen
class ProxyUrl(ScalarKind[Proxy]):
    """``http://[user[:password]@]host:port``. Reasons never quote it: it may hold a password."""

    is_secret = True

    def join(self, parts: Sequence[Part]) -> str:
        """Percent-encodes the text of references in user and password."""
        return _join_url(parts)

    def parse(self, text: str) -> Proxy:
        """Parses the URL."""
        scheme = _PROXY.match(text)
        if scheme is None:
            raise UnfitError(f"is not {self.wanted()}")
        url = parse_url(f"amqp://{text[scheme.end() :].removesuffix('/')}")
        if url.vhost is not None or not re.search(r":[0-9]+/?$", text):
            raise UnfitError(f"is not {self.wanted()}")
        password = None if url.password is None else url.password.reveal()
        return Proxy(host=url.host, port=url.port, user=url.user, password=password)

    def wanted(self) -> str:
        """Returns the form."""
        return "http://[user[:password]@]host:port"


def _join_url(parts: Sequence[Part]) -> str:
    """Joins the parts of a URL; the text of references in user and password is encoded."""
    joined = ""
    for number, part in enumerate(parts):
        rest = "".join(each.text for each in parts[number + 1 :] if not each.is_reference)
        in_userinfo = part.is_reference and _is_in_userinfo(joined, rest)
        joined += quote(part.text, safe="") if in_userinfo else part.text
    return joined


def _is_in_userinfo(before: str, after: str) -> bool:
    """Returns whether a place in a URL is between the scheme and the ``@`` of the authority."""
    scheme, found, authority = before.rpartition("://")
    closing = re.match(r"[^/@,]*@", after)
    return bool(found and scheme) and not re.search(r"[/@,]", authority) and closing is not None


def parse_url(text: str) -> ContainerUrl:
    """Parses one URL.

    Raises:
        UnfitError: the text is not such a URL; the reason never quotes it.
    """
    scheme = _SCHEME.match(text)
    if scheme is None or scheme.group(1).lower() not in DEFAULT_PORTS:
        raise UnfitError(
            f"does not begin with amqp:// or amqps://, ws:// or wss://{scheme_hint(text)}"
        )
    _check_characters(text)
    authority, slash, path = text[scheme.end() :].partition("/")
    userinfo, _, place = authority.rpartition("@")
    if "@" in userinfo:
        raise UnfitError("has an '@' in user or password: there it is written %40")
    user, colon, password = userinfo.partition(":")
    if colon and not user:
        raise UnfitError("has a password and no user")
    name = scheme.group(1).lower()
    try:
        host, port = _host_and_port(place, DEFAULT_PORTS[name])
    except UnfitError:
        if "@" in path:
            raise UnfitError("has a '/' in user or password: there it is written %2F") from None
        raise
    is_websocket = name in WEBSOCKET_SCHEMES
    if is_websocket and not path.isascii():
        raise UnfitError("has a path that is not ASCII: percent-encode it")
    return ContainerUrl(
        host=host,
        port=port,
        is_tls=name in _OVER_TLS,
        user=_decoded(user) or None,
        password=Secret(_decoded(password)) if colon else None,
        vhost=_decoded(path) if slash and path and not is_websocket else None,
        path=f"/{path}" if is_websocket else None,
    )


def _check_characters(text: str) -> None:
    """Refuses characters that are to be percent-encoded (RFC 3986 §2.2)."""
    found = re.search(r"[?#\s]|%(?![0-9A-Fa-f]{2})", text)
    if found is None:
        return
    octets = found.group().encode()
    escape = "".join(f"%{octet:02X}" for octet in octets)
    what = "a blank" if found.group().isspace() else f"a '{found.group()}'"
    options = "; options are keys of the container, not of its URL" if what == "a '?'" else ""
    raise UnfitError(f"has {what}: percent-encode it, {escape}{options}")


def _host_and_port(place: str, default_port: int) -> tuple[str, int]:
    match = _HOST_AND_PORT.fullmatch(place) or _HOST_AND_PORT.fullmatch(f"{place}:{default_port}")
    if match is None:
        if not place or place.startswith(":"):
            raise UnfitError("has no host")
        if place.count(":") > 1 and "[" not in place:
            raise UnfitError("has an IPv6 address without brackets: write [::1]:5672")
        raise UnfitError("has no host, or a port that is no number")
    port = _port(match.group(3))
    if port == 0:
        raise UnfitError("has port 0, which nobody can dial")
    return _host(match), port


def _decoded(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        raise UnfitError("has percent-encoded octets that are not UTF-8") from None
