"""Where else a container can be dialed: how peers write it, in all protocols.

AMQP 1.0 has one form for it, a map with the keys of a redirect (§2.8.16)::

    {network-host: str, port: ushort or digits, hostname: str, scheme: str, path: str}

It is the info of ``amqp:connection:redirect``, and of ``amqp:link:redirect``, where the key
``address`` may stand beside or instead (§2.8.18). A list of such maps is the property
``failover-server-list`` of open, which no specification has: ActiveMQ Artemis and Qpid Dispatch
send it (Dispatch with ports in digits), and Qpid JMS reads it. ``scheme`` and ``path`` are those of
AMQP over WebSocket (amqp-wsb 1.0 §3.2).

Before AMQP 1.0 it is text. AMQP 0-10 has URLs (``amqp-host-url``), 0-8, 0-9 and the draft have
``known-hosts``, which are the same without a prefix::

    [amqp:] [[tcp:|tls:] host [:port]] {, [tcp:|tls:] host [:port]}

What a peer names wrongly is refused by name, and does not spoil the rest.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

import attrs

from router.errors import RouterError
from router.model.condition import CONNECTION_REDIRECT, Condition
from router.model.place import Alternative, is_host
from router.wire.v1_0.forms import Array, Symbol, Ushort

FAILOVER_SERVER_LIST: Final = "failover-server-list"
"""Property of open: other places where the container is found."""

SCHEMES: Final = ("amqp", "amqps", "ws", "wss")

ENTRIES_MOST: Final = 32
"""As many entries of a list are read. More places would only delay the round of a dialer."""

_KEYS: Final = ("network-host", "port", "hostname", "scheme", "path")
_HIGHEST_PORT: Final = 65535
_TEXT_MOST: Final = 512
_KINDS: Final = (
    (type(None), "nothing"),
    (bool, "a boolean"),
    ((int, float), "a number"),
    (str, "text"),
    (bytes, "binary"),
    (Mapping, "a map"),
    ((list, tuple, Array), "a list"),
)
_SCHEME_OF: Final = {"tcp": "amqp", "tls": "amqps", "ssl": "amqps"}
_IN_TEXT: Final = re.compile(
    r"(?:(?P<transport>tcp|tls|ssl):)?"
    r"(?:\[(?P<v6>[0-9A-Fa-f:.]+)\]|(?P<host>[A-Za-z0-9._-]+))(?::(?P<port>[0-9]+))?"
)


class UnfitAlternativeError(RouterError):
    """What a peer says of another place cannot be dialed."""


@attrs.frozen
class Listed:
    """What a peer's list says.

    Attributes:
        alternatives: the entries that can be dialed, in order.
        refused: why others cannot, one phrase for each.
    """

    alternatives: tuple[Alternative, ...] = ()
    refused: tuple[str, ...] = ()


def read_list(value: object) -> Listed:
    """Reads the value of ``failover-server-list``."""
    entries = value.items if isinstance(value, Array) else value
    if not isinstance(entries, (list, tuple)):
        return Listed(refused=(f"it is {_kind_of(value)}, and no list",))
    found: dict[Alternative, None] = {}
    refused: list[str] = []
    for number, entry in enumerate(entries[:ENTRIES_MOST]):
        try:
            found[read_alternative(entry)] = None
        except UnfitAlternativeError as error:
            refused.append(f"entry {number + 1} {error}")
    if len(entries) > ENTRIES_MOST:
        refused.append(f"it has {len(entries)} entries; the first {ENTRIES_MOST} are read")
    return Listed(tuple(found), tuple(refused))


def read_alternative(entry: object) -> Alternative:
    """Reads one map: an entry of a list, or the info of a redirect.

    Raises:
        UnfitAlternativeError: it names no place that could be dialed.
    """
    if not isinstance(entry, Mapping):
        raise UnfitAlternativeError(f"is {_kind_of(entry)}, and no map")
    host = _text(entry, "network-host")
    if host is None:
        raise UnfitAlternativeError("names no network-host")
    host = host.removeprefix("[").removesuffix("]")
    if not is_host(host):
        raise UnfitAlternativeError(f"has a network-host that is no host: {host[:64]!r}")
    scheme = _text(entry, "scheme")
    if scheme is not None and scheme.lower() not in SCHEMES:
        raise UnfitAlternativeError(f"has the unknown scheme {scheme[:64]!r}")
    path = _text(entry, "path")
    if path is not None and " " in path:
        raise UnfitAlternativeError(f"has a path that nobody can ask for: {path[:64]!r}")
    return Alternative(
        host=host,
        port=_port(entry.get("port")),
        scheme=None if scheme is None else scheme.lower(),
        hostname=_text(entry, "hostname"),
        path=path if path is None or path.startswith("/") else f"/{path}",
    )


def read_link_redirect(info: object) -> tuple[Alternative | None, str | None]:
    """Reads the info of ``amqp:link:redirect`` (§2.8.18).

    Returns:
        The place, and the address there. None as the place: on the same connection; None as the
        address: the one that was asked for.

    Raises:
        UnfitAlternativeError: it names neither, or what nobody can attach to.
    """
    entry = {} if info is None else info
    if not isinstance(entry, Mapping):
        raise UnfitAlternativeError(f"the redirect is {_kind_of(info)}, and no map")
    address = entry.get("address")
    if address is not None and not isinstance(address, str):
        raise UnfitAlternativeError(f"the redirect has {_kind_of(address)} as address, and no text")
    if address is not None and (len(address) > _TEXT_MOST or not address.isprintable()):
        raise UnfitAlternativeError(f"the redirect has an unfit address: {address[:64]!r}")
    place = None
    if any(entry.get(key) is not None for key in _KEYS):
        try:
            place = read_alternative(entry)
        except UnfitAlternativeError as error:
            raise UnfitAlternativeError(f"the redirect {error}") from None
    elif not address:
        raise UnfitAlternativeError("the redirect names neither a place nor an address")
    return place, address or None


def _text(entry: Mapping[Any, object], key: str) -> str | None:
    """Returns the text at a key; None: there is none, or it is empty."""
    value = entry.get(key)
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise UnfitAlternativeError(f"has {_kind_of(value)} as {key}, and no text")
    if len(value) > _TEXT_MOST or not value.isascii() or not value.isprintable():
        raise UnfitAlternativeError(f"has a {key} that nobody can dial: {value[:64]!r}")
    return value


def _port(value: object) -> int | None:
    """Reads a port, which is a number or digits."""
    if value is None:
        return None
    is_number = isinstance(value, int) and not isinstance(value, bool)
    is_digits = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 6
    if not (is_number or is_digits) or not 0 < int(str(value)) <= _HIGHEST_PORT:
        is_plain = isinstance(value, (str, int))
        said = repr(value)[:66] if is_plain else _kind_of(value)
        raise UnfitAlternativeError(f"has a port that is none from 1 to {_HIGHEST_PORT}: {said}")
    return int(str(value))


def _kind_of(value: object) -> str:
    """Returns what a value is, in words."""
    return next((words for kind, words in _KINDS if isinstance(value, kind)), "another value")


def as_map(alternative: Alternative) -> dict[object, object]:
    """Writes one map."""
    fields: dict[object, object] = {Symbol("network-host"): alternative.host}
    for key in _KEYS[1:]:
        value = getattr(alternative, key)
        if value is not None:
            fields[Symbol(key)] = Ushort(value) if key == "port" else value
    return fields


def read_known_hosts(texts: object) -> list[dict[object, object]]:
    """Reads what protocols before AMQP 1.0 say, as a ``failover-server-list`` would.

    Args:
        texts: one text with commas, or an array of them. What is not such a text becomes an entry
            that ``read_list`` refuses by name.
    """
    several = texts if isinstance(texts, (list, tuple)) else [texts]
    found: list[dict[object, object]] = []
    for text in several[: ENTRIES_MOST + 1]:
        plain = str(text or "").strip()
        plain = plain.removeprefix("amqp://").removeprefix("amqp:")
        found += [_from_text(each.strip()) for each in plain.split(",") if each.strip()]
    return found


def redirect(host: object, known_hosts: object) -> Condition:
    """Returns the condition of a redirect of a protocol before AMQP 1.0.

    Args:
        host: where to dial, as the peer writes it.
        known_hosts: other places, if that one cannot be dialed.
    """
    places = [*read_known_hosts(host), *read_known_hosts(known_hosts)]
    info = dict(places[0]) if places else {}
    if places[1:]:
        info[FAILOVER_SERVER_LIST] = places[1:]
    return Condition(CONNECTION_REDIRECT, f"dial {host}", info)


def _from_text(text: str) -> dict[object, object]:
    match = _IN_TEXT.fullmatch(text)
    if match is None:
        return {"network-host": text}
    fields: dict[object, object] = {"network-host": match["v6"] or match["host"]}
    if match["transport"] is not None:
        fields["scheme"] = _SCHEME_OF[match["transport"]]
    if match["port"] is not None:
        fields["port"] = int(match["port"][:6])
    return fields


def write_known_hosts(alternatives: Iterable[Alternative], *, is_url: bool) -> list[str]:
    """Writes places as protocols before AMQP 1.0 do; those with a WebSocket they cannot name.

    Args:
        alternatives: the places.
        is_url: write URLs of AMQP 0-10; otherwise host and port alone, as 0-8 to the draft have it,
            which cannot say that TLS is needed.
    """
    return [_as_text(each, is_url=is_url) for each in alternatives if _is_socket(each)]


def _is_socket(alternative: Alternative) -> bool:
    return alternative.scheme not in ("ws", "wss")


def _as_text(alternative: Alternative, *, is_url: bool) -> str:
    place = str(attrs.evolve(alternative, scheme=None, path=None))
    if not is_url:
        return place
    transport = "tls" if alternative.scheme == "amqps" else "tcp"
    return f"amqp:{transport}:{place}"
