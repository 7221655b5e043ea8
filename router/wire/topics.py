"""Keys of topic bindings, for the protocols that have them (0-9-1 §3.1.3.3, 0-10 exchange.bind).

The core watches patterns of addresses, whose tokens are separated by ``.`` and ``/`` alike. A
binding is narrower: the name of its exchange is literal, and the words of its key are separated by
``.`` alone. So the watched pattern may match more addresses than the binding, and each reported
address is matched against the binding.
"""


def key_matches(pattern: str, key: str) -> bool:
    """Returns whether a topic binding's key matches a routing key."""
    words = key.split(".") if key else []
    # Prefixes of the key, by number of words, that the pattern so far matches.
    matched = {0}
    for part in pattern.split(".") if pattern else ():
        if part == "#":
            matched = set(range(min(matched, default=len(words) + 1), len(words) + 1))
        else:
            matched = {at + 1 for at in matched if at < len(words) and part in ("*", words[at])}
    return len(words) in matched


def key_at(exchange: str, address: str) -> str | None:
    """Returns an address's routing key within an exchange; None: it is another exchange's."""
    if address == exchange:
        return ""
    begin = f"{exchange}/"
    return address.removeprefix(begin) if address.startswith(begin) else None


def watchable(address: str) -> str:
    """Returns the pattern of a binding's address; a token that contains a wildcard matches any.

    A pattern has no form for a word such as ``**``, which is literal in a key or a name.
    """
    tokens = []
    for part in address.split("/"):
        words = part.split(".")
        tokens.append(".".join("*" if _is_odd(word) else word for word in words))
    return "/".join(tokens)


def _is_odd(word: str) -> bool:
    return len(word) > 1 and ("*" in word or "#" in word)


def has_wildcards(key: str) -> bool:
    """Returns whether a topic binding's key has wildcards."""
    return any(word in ("*", "#") for word in key.split("."))
