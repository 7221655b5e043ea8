"""What a message store has lost, in words for people."""

from collections import Counter

from router.journal.segment import segment_name

_ADDRESSES = 5  # that are named


def lost_in(segment: int, messages: int) -> str:
    """Says how many messages of a segment are lost."""
    are = "message of {} is lost" if messages == 1 else "messages of {} are lost"
    return f"{messages:,} {are.format(segment_name(segment))}"


def of_addresses(lost: Counter[bytes]) -> str:
    """Says whose messages are lost, to be put behind how many; nothing if that is not known.

    Args:
        lost: how many of each address, UTF-8.
    """
    named = lost.most_common(_ADDRESSES)
    words = [f"{address.decode(errors='replace')} ({count:,})" for address, count in named]
    others = len(lost) - len(named)
    if others:
        words.append(f"{others:,} others ({lost.total() - sum(count for _, count in named):,})")
    return f", of {', '.join(words)}" if words else ""
