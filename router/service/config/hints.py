"""What the writer of a file has probably meant, as a phrase that ends a problem.

Hints never quote a value, which may hold a secret; names of keys and containers they do.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Final

_ALIKE: Final = 0.75
"""Similarity from which on a key is taken for a mistyped one."""

_ALIKE_WORDS: Final = 0.55
"""The same for one of a few words."""

_ALIASES: Final = {
    "brokers": "containers",
    "broker": "containers",
    "connections": "containers",
    "connectors": "containers",
    "peers": "containers",
    "servers": "containers",
    "queues": "routes",
    "bindings": "routes",
    "bridges": "routes",
    "addresses": "routes",
    "listen": "listeners",
    "listener": "listeners",
    "server": "listeners",
    "ports": "listeners",
    "host": "url",
    "hostname": "url",
    "port": "url",
    "uri": "url",
    "server_url": "url",
    "queue": "address",
    "exchange": "address",
    "topic": "address",
    "pattern": "address",
    "source": "from",
    "src": "from",
    "target": "to",
    "dest": "to",
    "destination": "to",
    "username": "user",
    "login": "user",
    "pass": "password",
    "threads": "workers",
    "processes": "workers",
    "container_id": "id",
    "ssl": "tls",
    "ttl": "ttl_seconds",
    "heartbeat": "idle_seconds",
    "virtual_host": "vhost",
    "rabbitmq": "amqp-0-9-1",
    "rabbit": "amqp-0-9-1",
    "artemis": "amqp-1.0",
    "activemq": "amqp-1.0",
    "azure": "amqp-1.0",
    "qpid": "amqp-1.0",
    "amqp": "amqp-1.0",
    "round-robin": "balanced",
    "anycast": "balanced",
    "fanout": "multicast",
    "broadcast": "multicast",
    "true": "durable",
    "yes": "durable",
}
"""Words of brokers and other programs, and the router's for them."""

Inner = Mapping[str, tuple[str, Collection[str]]]
"""Keys with sections in them: how to name the place inside, and the keys there."""


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns a hint with the known name that is most similar to a mistaken one."""
    names = list(known)
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.0)
    return f"; the nearest known one is '{close[0]}'" if close else "; none is known here"


def unknown_key(name: str, known: Collection[str], inner: Inner) -> str:
    """Returns a hint about a key that its section does not have.

    Args:
        name: as written.
        known: the section's keys.
        inner: those of them that have sections inside.
    """
    before, colon, _ = name.partition(":")
    if colon and before in known:
        return f"; write a blank after '{before}:'"
    if name.startswith("-") and name[1:] in known:
        return "; write a blank after the '-'"
    meant = _ALIASES.get(name.lower(), name)
    if meant in known:
        return f"; here that is '{meant}'"
    close = difflib.get_close_matches(name.lower(), known, n=1, cutoff=_ALIKE)
    if close:
        return f"; the nearest known one is '{close[0]}'"
    places = [place for place, keys in inner.values() if meant in keys]
    if places:
        called = "it" if meant == name else f"'{meant}'"
        return f"; {called} belongs in {' or '.join(places)}: indent it there"
    return f"; the keys here are {', '.join(known)}"


def unlike_section(text: str | None, known: Collection[str], example: str) -> str:
    """Returns why something is no section, and how one is written.

    Args:
        text: what is written there, if that is a single text.
        known: the section's keys.
        example: one of them, which is likely to be meant.
    """
    keys = f"its keys are {', '.join(known)}"
    before, colon, _ = (text or "").partition(":")
    if colon and before in known:
        return f"wants keys and values: write a blank after '{before}:'; {keys}"
    return f"wants keys and values, such as '{example}: ...'; {keys}"


def unknown_word(text: str, words: Collection[str]) -> str:
    """Returns a hint about a text that is none of some words."""
    plain = {_without_points(each): each for each in words}
    close = difflib.get_close_matches(_without_points(text), plain, n=1, cutoff=_ALIKE_WORDS)
    bare = {_bare(each): each for each in words}
    meant = _ALIASES.get(text.lower(), bare.get(_bare(text)))
    if meant not in words:
        meant = plain[close[0]] if close else None
    return "" if meant is None else f"; write {meant}"


def _without_points(text: str) -> str:
    return re.sub(r"[._ ]", "-", text.lower())


def _bare(text: str) -> str:
    return re.sub(r"[^a-z0-9]", "", text.lower())


def unknown_container(name: str, known: Collection[str], sites: Collection[str] = ()) -> str:
    """Returns a hint about the name of a container that the file does not have.

    Args:
        name: it.
        known: the containers that the file has.
        sites: the neighbors in the mesh.
    """
    if name in sites:
        return "; it is a site of the mesh, which direct routes reach, without 'from' and 'to'"
    for each in sorted(known, key=len, reverse=True):
        if name.startswith((f"{each}.", f"{each}:")) and len(name) > len(each) + 1:
            return f"; an address in '{each}' is written {each}/{name[len(each) + 1 :]}"
    if not known:
        return "; none is known here: write its name and url under the key 'containers'"
    return nearest(name, known)


def bind_hint(text: str) -> str:
    """Returns a hint about a text that is no address to listen on."""
    scheme = re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text)
    if scheme is not None:
        return f"; leave '{scheme.group()}' out"
    port = re.fullmatch(r"(?:\*?:)?([0-9]{1,5})", text)
    if port is not None:
        number = port.group(1)
        return f"; write 127.0.0.1:{number} for this machine alone, 0.0.0.0:{number} for all"
    if re.fullmatch(r"[A-Za-z0-9._-]+", text):
        return f"; add the port: {text}:5672"
    if text.count(":") > 1 and "[" not in text:
        return "; an IPv6 address stands in brackets, as in [::1]:5672"
    return ""


def scheme_hint(text: str) -> str:
    """Returns a hint about a URL that does not begin as those of AMQP do."""
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*)://", text)
    scheme = "" if found is None else found.group(1).lower()
    if scheme in ("http", "https"):
        return "; HTTP is a broker's management: write amqp:// and the port of AMQP, usually 5672"
    if scheme:
        return "; write amqp://, or amqps:// for TLS, instead of what it begins with"
    return "; write amqp:// before the host, or amqps:// for TLS"
