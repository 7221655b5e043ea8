"""The order of cipher suites: AES-GCM where processors have instructions for it, else ChaCha20.

OpenSSL prefers AES, which is several times slower than ChaCha20-Poly1305 without such instructions
(RFC 8439 §1). Each side of a connection knows its own processor only. A client tells by its order
which it would have; so a server accepts ChaCha20 first if the client prefers it, or if its own
processor wants it.
"""

import functools
import ssl
from pathlib import Path
from types import ModuleType
from typing import Final

_PROCESSORS: Final = Path("/proc/cpuinfo")
_PRIORITIZE_CHACHA: Final = 1 << 21
"""SSL_OP_PRIORITIZE_CHACHA, which Python's ``ssl`` module has no name for."""

_CHACHA: Final = "CHACHA20"
_VERSION_1_3: Final = "TLSv1.3"


@functools.cache
def has_aes() -> bool:
    """Returns whether the processors have instructions for AES; True if they do not tell."""
    try:
        lines = _PROCESSORS.read_text().splitlines()
    except OSError:
        return True
    return names_aes(lines)


def names_aes(lines: list[str]) -> bool:
    """Returns whether processors as Linux describes them have AES; True if they do not tell."""
    features = [line.partition(":")[2].split() for line in lines if _names_features(line)]
    return not features or all("aes" in each for each in features)


def _names_features(line: str) -> bool:
    return line.partition(":")[0].strip() in {"flags", "Features"}  # of x86, of ARM


def choose_order(context: ssl.SSLContext, *, aes: bool, compiled: ModuleType | None) -> None:
    """Orders a context's suites.

    Args:
        context: of a client or a server.
        aes: whether this processor has instructions for AES.
        compiled: the module of compiled streams, without which those of TLS 1.3 stay in OpenSSL's
            order; None: there is none.
    """
    context.options |= _PRIORITIZE_CHACHA
    if aes:
        return
    suites = sorted(context.get_ciphers(), key=lambda suite: _CHACHA not in suite["name"])
    older = [suite["name"] for suite in suites if suite["protocol"] != _VERSION_1_3]
    newer = [suite["name"] for suite in suites if suite["protocol"] == _VERSION_1_3]
    if older:
        context.set_ciphers(":".join(older))
    if newer and compiled is not None:
        compiled.set_ciphersuites(context, ":".join(newer))
