"""Builds the compiled parts where it can; without them the same is done in Python, slower.

Everything else about the package stands in pyproject.toml. The generated C goes into the source
distribution, so that a compiler is enough to build them, and neither is needed to install.
"""

import os
from pathlib import Path

from setuptools import Extension, setup

SOURCES = {  # which include kernel/*.pxi
    "router.wire.v1_0._express": Path("router/wire/v1_0/_express.pyx"),
    "router.wire.v1_0._bulk": Path("router/wire/v1_0/_bulk.pyx"),  # includes model/slots.pxi
    "router.wire.v0_9_1._quick": Path("router/wire/v0_9_1/_quick.pyx"),
    "router.net._tls": Path("router/net/_tls.pyx"),  # includes wire/pipe.pxi
    "router.core._bulk": Path("router/core/_bulk.pyx"),  # includes model/slots.pxi
    "router.journal._bulk": Path("router/journal/_bulk.pyx"),
}


def extensions() -> list[Extension]:
    """Gives the extensions, from Cython's source or from the C made of it before."""
    # Without symbols for debuggers it is a seventh of the size.
    options = {"extra_compile_args": ["-g0"]} if os.name == "posix" else {}
    try:
        from Cython.Build import cythonize  # noqa: PLC0415  may be missing
    except ImportError:
        generated = {name: source.with_suffix(".c") for name, source in SOURCES.items()}
        made = [
            Extension(name, [str(source)], **options)
            for name, source in generated.items()
            if source.exists()
        ]
    else:
        made = cythonize(  # type: ignore[no-untyped-call]
            [Extension(name, [str(source)], **options) for name, source in SOURCES.items()]
        )
    for each in made:
        each.optional = True  # cythonize forgets it
    return made


setup(ext_modules=extensions())
