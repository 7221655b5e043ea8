"""Messages between neighbors as AMQP 1.0 values: one map each, the body of an ``amqp-value``.

A message is a map with string keys. ``message`` names it; lists inside are positional. Fields::

    hello      router epoch least most heard cost role digest active
    entries    number entries: [[origin kind part epoch sequence idle-seconds body signature] ...]
    summary    digests: binary, 8 octets for each bucket
    holdings   buckets: [number ...]   held: [[origin kind part epoch sequence stamp] ...]
    ask        keys: [[origin kind part] ...]
    addresses  number whole added: [address ...] removed: [address ...]
    whole      (nothing)
    refusal    rule

Versions: a reader ignores fields and messages that it does not know, and items at the end of a
positional list. A missing field, or one of a wrong type or size, is refused and named. The first
message of a connection is a hello with the range of versions that its sender understands; without
a common one the neighbor is refused by name (``common_version``). Its layout is for all versions.
"""

from collections.abc import Callable
from typing import Any, Final

from router.routes.mesh import fields
from router.routes.mesh.fields import FieldError
from router.routes.mesh.nouns import (
    COST_MOST,
    LEAST_MAJOR,
    MAJOR,
    Ask,
    Carried,
    EdgeAddresses,
    EdgeAsk,
    Entries,
    Entry,
    Held,
    Hello,
    Holdings,
    Key,
    Message,
    Refusal,
    Role,
    RouterId,
    Summary,
    Unknown,
    Version,
)

BUCKETS: Final = 128
"""Buckets of a database by the origins of its entries; 1,000 routers: 8 origins each."""

BODY_OCTETS_MOST: Final = 65_536
"""Octets of an entry's body."""

SIGNATURE_OCTETS_MOST: Final = 1_024
"""An Ed25519 signature has 64; room for others."""

PARTS_MOST: Final = 256
ENTRIES_MOST: Final = 64
"""Entries of one message."""

HELD_MOST: Final = 256
"""Entries listed in one ``Holdings``, or asked for in one ``Ask``; a bucket with more is split."""

EDGE_ADDRESSES_MOST: Final = 1_024
"""Addresses of one ``EdgeAddresses`` message, and of an edge."""

RULE_OCTETS_MOST: Final = 1_000
KIND_OCTETS_MOST: Final = 32

Fields = dict[str, Any]


def common_version(hello: Hello) -> int | str:
    """Returns the newest version that both understand, or the rule that refuses the neighbor."""
    newest = min(hello.most, MAJOR)
    if newest >= max(hello.least, LEAST_MAJOR):
        return newest
    theirs, ours = _range(hello.least, hello.most), _range(LEAST_MAJOR, MAJOR)
    return f"{hello.router} understands {theirs} of the mesh's control plane, this router {ours}"


def _range(least: int, most: int) -> str:
    return f"version {least}" if least == most else f"versions {least} to {most}"


def to_value(message: Message) -> Fields:
    """Returns the map that stands for a message.

    Raises:
        TypeError: it is an ``Unknown``.
    """
    match message:
        case Hello():
            return _from_hello(message)
        case Entries(number, carried):
            return {
                "message": "entries",
                "number": number,
                "entries": [_from_carried(one) for one in carried],
            }
        case Summary(digests):
            return {"message": "summary", "digests": b"".join(map(_from_digest, digests))}
        case Holdings(buckets, held):
            return {
                "message": "holdings",
                "buckets": list(buckets),
                "held": [[*key, *version, _from_digest(stamp)] for key, version, stamp in held],
            }
        case Ask(keys):
            return {"message": "ask", "keys": [list(key) for key in keys]}
        case EdgeAddresses(number, is_whole, added, removed):
            return {
                "message": "addresses",
                "number": number,
                "whole": is_whole,
                "added": list(added),
                "removed": list(removed),
            }
        case EdgeAsk():
            return {"message": "whole"}
        case Refusal(rule):
            octets = rule.encode()[:RULE_OCTETS_MOST]
            return {"message": "refusal", "rule": octets.decode(errors="ignore")}
    raise TypeError(f"{message} is not sent")


def read_message(value: object) -> Message:
    """Returns the message that a decoded value stands for.

    Raises:
        FieldError: a field is missing or wrong.
    """
    found = fields.as_map(value, "message")
    name = fields.as_text(fields.take(found, "message", "message"), "message.message", 64)
    reader = _READERS.get(name)
    return Unknown(name) if reader is None else reader(found)


def _from_digest(number: int) -> bytes:
    return number.to_bytes(8, "big")


def _from_hello(hello: Hello) -> Fields:
    return {
        "message": "hello",
        "router": hello.router,
        "epoch": hello.epoch,
        "least": hello.least,
        "most": hello.most,
        "heard": hello.heard,
        "cost": hello.cost,
        "role": hello.role.value,
        "digest": _from_digest(hello.digest),
        "active": hello.is_active,
    }


def _read_hello(found: Fields) -> Hello:
    def number(key: str, least: int = 0, most: int = fields.I63) -> int:
        return fields.as_number(fields.take(found, key, "hello"), f"hello.{key}", least, most)

    role = fields.as_text(fields.take(found, "role", "hello"), "hello.role")
    if role not in set(Role):
        raise FieldError("hello.role", f"is router or edge, not {role}")
    least = number("least", 1, 65535)
    digest = fields.as_digest(fields.take(found, "digest", "hello"), "hello.digest")
    active = fields.as_boolean(fields.take(found, "active", "hello"), "hello.active")
    return Hello(
        router=RouterId(fields.as_text(fields.take(found, "router", "hello"), "hello.router")),
        epoch=number("epoch", 1),
        least=least,
        most=number("most", least, 65535),
        heard=number("heard"),
        cost=number("cost", 1, COST_MOST),
        role=Role(role),
        digest=digest,
        is_active=active,
    )


def _from_carried(one: Carried) -> list[object]:
    entry = one.entry
    return [*entry.key, *entry.version, one.idle_seconds, entry.body, entry.signature]


def _read_entries(found: Fields) -> Entries:
    rows = fields.as_list(fields.take(found, "entries", "entries"), "entries.entries", ENTRIES_MOST)
    return Entries(
        _number(found, "entries"),
        tuple(_read_carried(row, f"entries.entries[{at}]") for at, row in enumerate(rows)),
    )


def _read_carried(value: object, field: str) -> Carried:
    row = fields.as_row(value, field, 8)
    entry = Entry(
        key=_read_key(row, field),
        version=_read_version(row, field),
        body=fields.as_octets(row[6], f"{field}.body", 1, BODY_OCTETS_MOST),
        signature=fields.as_octets(row[7], f"{field}.signature", 0, SIGNATURE_OCTETS_MOST),
    )
    return Carried(entry, fields.as_number(row[5], f"{field}.idle-seconds"))


def _read_key(row: Any, field: str) -> Key:
    return Key(
        RouterId(fields.as_text(row[0], f"{field}.origin")),
        fields.as_text(row[1], f"{field}.kind", KIND_OCTETS_MOST),
        fields.as_number(row[2], f"{field}.part", 0, PARTS_MOST - 1),
    )


def _read_version(row: Any, field: str) -> Version:
    return Version(
        fields.as_number(row[3], f"{field}.epoch", 1),
        fields.as_number(row[4], f"{field}.sequence", 1),
    )


def _read_summary(found: Fields) -> Summary:
    octets = fields.as_octets(
        fields.take(found, "digests", "summary"), "summary.digests", 8 * BUCKETS, 8 * BUCKETS
    )
    numbers = (octets[at : at + 8] for at in range(0, len(octets), 8))
    return Summary(tuple(int.from_bytes(one, "big") for one in numbers))


def _read_holdings(found: Fields) -> Holdings:
    buckets = fields.as_list(fields.take(found, "buckets", "holdings"), "holdings.buckets", BUCKETS)
    rows = fields.as_list(fields.take(found, "held", "holdings"), "holdings.held", HELD_MOST)
    return Holdings(
        tuple(fields.as_number(one, "holdings.buckets", 0, BUCKETS - 1) for one in buckets),
        tuple(_read_held(row, f"holdings.held[{at}]") for at, row in enumerate(rows)),
    )


def _read_held(value: object, field: str) -> Held:
    row = fields.as_row(value, field, 6)
    stamp = fields.as_digest(row[5], f"{field}.stamp")
    return Held(_read_key(row, field), _read_version(row, field), stamp)


def _read_ask(found: Fields) -> Ask:
    rows = fields.as_list(fields.take(found, "keys", "ask"), "ask.keys", HELD_MOST)
    named = ((fields.as_row(row, f"ask.keys[{at}]", 3), at) for at, row in enumerate(rows))
    return Ask(tuple(_read_key(row, f"ask.keys[{at}]") for row, at in named))


def _read_addresses(found: Fields) -> EdgeAddresses:
    def texts(key: str) -> tuple[str, ...]:
        field = f"addresses.{key}"
        listed = fields.as_list(fields.take(found, key, "addresses"), field, EDGE_ADDRESSES_MOST)
        return tuple(fields.as_text(one, field) for one in listed)

    whole = fields.as_boolean(fields.take(found, "whole", "addresses"), "addresses.whole")
    removed = texts("removed")
    if whole and removed:
        raise FieldError("addresses.removed", "is empty where these are all addresses")
    return EdgeAddresses(_number(found, "addresses"), whole, texts("added"), removed)


def _read_whole(found: Fields) -> EdgeAsk:
    return EdgeAsk()


def _read_refusal(found: Fields) -> Refusal:
    rule = fields.take(found, "rule", "refusal")
    return Refusal(fields.as_text(rule, "refusal.rule", RULE_OCTETS_MOST))


def _number(found: Fields, message: str) -> int:
    return fields.as_number(fields.take(found, "number", message), f"{message}.number", 1)


_READERS: Final[dict[str, Callable[[Fields], Message]]] = {
    "hello": _read_hello,
    "entries": _read_entries,
    "summary": _read_summary,
    "holdings": _read_holdings,
    "ask": _read_ask,
    "addresses": _read_addresses,
    "whole": _read_whole,
    "refusal": _read_refusal,
}
