"""Builds the express lane's Cython twin where it can; without it the pure twin serves, slower.

Everything else about the package stands in pyproject.toml. The generated C goes into the source
distribution, so that a compiler is enough to build the twin, and neither is needed to install.
"""

import os
from pathlib import Path

from setuptools import Extension, setup

PYX = "router/wire/v1_0/_express.pyx"  # which includes kernel/*.pxi
GENERATED = Path(PYX).with_suffix(".c")


def extensions() -> list[Extension]:
    """Gives the extension, from Cython's source or from the C made of it before."""
    name = "router.wire.v1_0._express"
    # Without symbols for debuggers it is a seventh of the size.
    options = {"extra_compile_args": ["-g0"]} if os.name == "posix" else {}
    try:
        from Cython.Build import cythonize  # noqa: PLC0415  may be missing
    except ImportError:
        if not GENERATED.exists():
            return []
        made = [Extension(name, [str(GENERATED)], **options)]
    else:
        made = cythonize(  # type: ignore[no-untyped-call]
            [Extension(name, [PYX], **options)]
        )
    for each in made:
        each.optional = True  # cythonize forgets it
    return made


setup(ext_modules=extensions())
