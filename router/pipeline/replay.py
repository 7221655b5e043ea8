"""Replay: sends messages of an archive again, each once.

A selection (``router.pipeline.selection``) is spooled and sent like a batch of the Spark sink
(``amqp.spool``): a replay that was killed continues where it stopped, and a finished one is not
sent again.
"""

import hashlib
from typing import Final

import attrs

from router.pipeline.amqp.options import Options
from router.pipeline.amqp.spool import Publisher, write_spool
from router.pipeline.selection import Selected

_SPOOLED: Final = "selection"


def send(selected: Selected, options: Options, address: str | None) -> int:
    """Sends the selected messages; returns how many the peer now has.

    Args:
        selected: the messages; a resumed replay sends those selected when it began.
        options: the peer, and the directory (``wal``) that identifies the replay.
        address: address for all messages; None: each message goes to its original address.

    Raises:
        PeerError: the peer cannot be reached, or refuses.
        SpoolError: messages were rejected, or are in doubt.
    """
    groups = selected.payloads
    if address is not None:
        groups = {address: [payload for each in groups.values() for payload in each]}
    sent = 0
    for target, payloads in sorted(groups.items()):
        name = hashlib.blake2b(target.encode(), digest_size=8).hexdigest()
        place = f"{options.place_of_log.rstrip('/')}/{name}"
        publisher = Publisher.at(attrs.evolve(options, address=target), place)
        publisher.publish(_SPOOLED, 0, [write_spool(publisher.store, iter(payloads))])
        sent += len(payloads)
    return sent
