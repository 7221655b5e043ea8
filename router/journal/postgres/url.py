"""The URL of a store as people may see it."""

import re
from typing import Final

_PASSWORD: Final = re.compile(r"(://[^:/@\s]*:)\S*@")
"""Up to the last @: one that stands in a password and is not written %40 ends nothing."""


def shown(url: str) -> str:
    """Returns a URL without its password."""
    return re.sub(r"([?&]password=)[^&]*", r"\1…", _PASSWORD.sub(r"\1…@", url))
