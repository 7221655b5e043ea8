"""What was agreed on for a link, as octets for the journal: enough to make the link anew.

JSON, because it is written once a link, and because who looks into a journal wants to read it. A
key that is missing has its default; a key that is unknown was written by a later version.
"""

import json

import attrs

from router.core.node import Direction, Feed, Node, NodeKey
from router.links.attaches import AttachNumber
from router.links.link import IncomingLink, Link
from router.model.terminus import ExpiryPolicy, Source, Target


@attrs.frozen(kw_only=True)
class Terms:
    """What a link needs beside its names.

    Attributes:
        node: that it sends to or receives from; None: it has the anonymous terminus.
        dead_letters_of: the address whose dead letters the node takes; None: it takes none.
        policy: when its terminus' time begins to run.
        expiry_seconds: how long that is.
        settles_second: as in ``IncomingLink`` and ``OutgoingLink``.
        may_lose_map: as in ``IncomingLink``.
        outcomes: that its source can be told.
        link_credit: the most that is granted on it.
        is_own: we attached it, to a configured container.
        number: the greatest of its peer's attaches; None: they had none.
    """

    node: NodeKey | None = None
    dead_letters_of: str | None = None
    policy: ExpiryPolicy = ExpiryPolicy.SESSION_END
    expiry_seconds: int = 0
    settles_second: bool = False
    may_lose_map: bool = False
    outcomes: tuple[str, ...] = ()
    link_credit: int = 0
    is_own: bool = False
    number: AttachNumber | None = None


def encode_terms(link: Link) -> bytes:
    """Writes what was agreed on for a link."""
    terminus: object
    if isinstance(link, IncomingLink):
        node = link.queue.node if isinstance(link.queue, Feed) else None
        terminus = link.target
        fields: dict[str, object] = {"outcomes": link.outcomes, "credit": link.link_credit}
        if link.may_lose_map:
            fields["forgets"] = True
    else:
        node = link.group if isinstance(link.group, Node) else None
        terminus = link.source
        fields = {}
    if link.settles_second:
        fields["second"] = True
    if link.number is not None:
        fields["number"] = list(link.number)
    if link.connection is not None and (link.connection.is_dialed or link.is_ours):
        fields["own"] = True
    if node is not None:
        key = node.key
        fields["node"] = [key.address, key.direction.value, key.container]
        if key.container is not None and node.match is not None:
            fields["letters"] = node.match.address
    if isinstance(terminus, Source | Target):
        fields["policy"] = terminus.expiry_policy.value
        fields["seconds"] = terminus.expiry_seconds
    return json.dumps(fields, separators=(",", ":")).encode()


def decode_terms(octets: bytes) -> Terms:
    """Reads what ``encode_terms`` wrote.

    Raises:
        ValueError, KeyError, TypeError: it did not.
    """
    fields = json.loads(octets)
    node, number = fields.get("node"), fields.get("number")
    return Terms(
        node=None if node is None else NodeKey(node[0], Direction(node[1]), node[2]),
        dead_letters_of=fields.get("letters"),
        policy=ExpiryPolicy(fields.get("policy", ExpiryPolicy.SESSION_END.value)),
        expiry_seconds=int(fields.get("seconds", 0)),
        settles_second=bool(fields.get("second", False)),
        may_lose_map=bool(fields.get("forgets", False)),
        outcomes=tuple(fields.get("outcomes", ())),
        link_credit=int(fields.get("credit", 0)),
        is_own=bool(fields.get("own", False)),
        number=None if number is None else AttachNumber(int(number[0]), int(number[1])),
    )


def read_terms(octets: bytes) -> Terms | None:
    """Reads what ``encode_terms`` wrote; None: it did not."""
    try:
        return decode_terms(octets)
    except (ValueError, KeyError, TypeError):
        return None
