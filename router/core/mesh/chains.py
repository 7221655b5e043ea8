"""Exactly-once between sites: one link from the ingress to the egress, whatever the path.

Theory of operation. The promise is kept by the two ends, the *ingress* I and the *egress* E, which
both have a journal. Between them is one link as between two routers that are neighbors, although
other routers may carry it::

    I ── transit ── transit ── E          attach, unsettled maps, transfers, dispositions,
      ────────────────────────▶           credit, detach: relayed unchanged (``core.passage``)

    bind      I chooses E and writes SENT before the first octet of a delivery leaves it
    attach    I draws the link's next number (``links.attaches``), durable before use, and attaches
              by the next hop of its tree, with its unsettled map. E refuses a number that is not
              higher than all before, records it durably, detaches the older chain, and answers
              with its map. I sends deliveries only after that answer
    break     when a hop is lost, a transit detaches both sides of the chain and drops what it had.
              It never attaches by itself. I attaches again, by any path, and ``links.recovery``
              decides about each unsettled delivery
    outcome   travels back; when I has settled, E forgets
    rebind    a delivery may go to another egress if it was never sent; if E has released it; or if
              the answer to a newer attach lacks it. Otherwise it waits for E, and is in doubt there

Both ends know the link by the ingress, the egress and the address (``names.link_name``), never by a
neighbor. So I finds it in its journal while there is no path at all, and E whichever neighbor it
comes over: for E the ingress is a guest (``core.guests``), as the peers of other workers are.
Neither end's state expires: what E has unsettled it forgets only when I has settled it.

Trust. A neighbor is who its certificate says, and may carry chains of others. That the ingress is
who the attach says, E knows by a signature of the ingress over the ends, the address and the
number; without it a chain is refused, and the neighbor is named. So a router can neither speak as
another ingress nor attach once more what it has seen. Routers that carry a chain see its messages
and could change them, or lose them: they are trusted with what passes through them, as with any
other delivery. With ``tls: off`` nothing is signed.
"""

import struct
from typing import Final

from router.core.mesh.names import VOUCHED
from router.links.attaches import AttachNumber, read_number
from router.model.condition import INVALID_FIELD, UNAUTHORIZED_ACCESS, Condition
from router.model.events import LinkAttached
from router.model.terminus import SenderSettleMode
from router.model.ways import Chain
from router.routes.mesh.bodies import Notary
from router.routes.mesh.nouns import RouterId

_DOMAIN: Final = b"AMQP router mesh chain 1\0"

_NUMBERS: Final = struct.Struct(">HHIQQ")


def vouch(
    notary: Notary | None, chain: Chain, address: str, number: AttachNumber
) -> dict[object, object]:
    """Returns the property by which an ingress vouches for its attach."""
    if notary is None:
        return {}
    return {VOUCHED: notary.signer.sign(_signed_octets(chain, address, number))}


def find_fault(
    notary: Notary | None, chain: Chain, address: str, event: LinkAttached
) -> Condition | None:
    """Returns why an attach at the egress of an exactly-once chain is refused; None: it is not."""
    try:
        number = read_number(event.properties)
    except ValueError as error:
        return Condition(INVALID_FIELD, str(error))
    assert number is not None, "exactly-once chains are known by their numbers"
    if event.sender_settle_mode is SenderSettleMode.SETTLED:
        return Condition(INVALID_FIELD, "deliveries of a numbered chain are not settled when sent")
    signature = event.properties.get(VOUCHED)
    octets = _signed_octets(chain, address, number)
    if (
        notary is None
        or not isinstance(signature, bytes)
        or not notary.verifier.verify(RouterId(chain.ingress), octets, signature)
    ):
        reason = f"{chain.ingress} has not signed this attach of its chain"
        return Condition(UNAUTHORIZED_ACCESS, reason)
    return None


def _signed_octets(chain: Chain, address: str, number: AttachNumber) -> bytes:
    """Returns what an ingress signs.

    ::

        "AMQP router mesh chain 1" 0   ingress(2 octets of length)   egress(2)   address(4)
        epoch(8)   n(8)   octets of ingress, egress and address
    """
    parts = [text.encode("utf-8", "surrogateescape") for text in (*chain, address)]
    return b"".join((_DOMAIN, _NUMBERS.pack(*map(len, parts), *number), *parts))
