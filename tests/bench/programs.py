"""The programs of the benchmark that are written in C: built when they are needed."""

import functools
import os
import subprocess
from pathlib import Path

SOURCES = Path(__file__).with_name("load")
RESULTS = Path(__file__).with_name("results")


@functools.cache
def has_openssl() -> bool:
    """Tells whether C programs can be built with OpenSSL."""
    source = "#include <openssl/ssl.h>\nint main(void) { return !TLS_method(); }\n"
    compiler = os.environ.get("CC", "cc")
    done = subprocess.run(
        [compiler, "-x", "c", "-", "-o", os.devnull, *_OPENSSL],
        input=source,
        text=True,
        capture_output=True,
        check=False,
    )
    return not done.returncode


_PARTS = {
    "load": ("secure.c", "wire.c", "basic.c"),
    "lean": ("wire.c",),
    "relay": ("secure.c",),
}

_OPENSSL = ("-DWITH_OPENSSL", "-lssl", "-lcrypto")


@functools.cache
def program(name: str) -> str:
    """Builds ``load``, ``lean`` or ``relay`` unless it is newer than its sources; returns its path.

    TLS is in it where OpenSSL's headers are.
    """
    built = RESULTS / "bin" / name
    sources = [SOURCES / f"{name}.c", *(SOURCES / part for part in _PARTS[name])]
    newest = max(each.stat().st_mtime for each in SOURCES.iterdir())
    if not built.exists() or built.stat().st_mtime < newest:
        built.parent.mkdir(parents=True, exist_ok=True)
        compiler = os.environ.get("CC", "cc")
        subprocess.run(
            [
                *(compiler, "-std=gnu11", "-O2", "-o", str(built), *map(str, sources)),
                *(_OPENSSL if has_openssl() else ()),
            ],
            check=True,
        )
    return str(built)


@functools.cache
def congestion() -> str:
    """The congestion control of all sockets: reno where there is a choice.

    Some systems default to bbr, which paces even the loopback and halves what it carries.
    """
    allowed = Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    return "reno" if "reno" in allowed else allowed[0]
