"""Runs tests with a compiled twin from a file of one's own.

    python -m tests.support.quick_tests FILE TEST...

The file holds ``router.wire.v0_9_1._quick``, perhaps built with a sanitizer.
"""

import importlib.util
import sys

import pytest

NAME = "router.wire.v0_9_1._quick"


def main(path: str, *tests: str) -> int:
    """Takes the compiled twin from ``path``, and hands the rest to pytest."""
    spec = importlib.util.spec_from_file_location(NAME, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)

    from router.wire.v0_9_1 import translate

    assert translate.quick_to_sections is module.quick_to_sections
    return pytest.main(list(tests))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
