"""Leads random conversations through both twins: ``python -m tests.support.lane_fuzz FIRST LAST``.

With a third argument the Cython twin is loaded from that file, which may have been built with a
sanitizer.
"""

import importlib.util
import random
import sys

from router.wire.v1_0.express import make_express
from tests.support.lane_world import World, converse

NAME = "router.wire.v1_0._express"


def load(path: str) -> None:
    """Takes the Cython twin from a file of one's own."""
    spec = importlib.util.spec_from_file_location(NAME, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[NAME] = module
    spec.loader.exec_module(module)
    assert make_express("cython").states is module  # type: ignore[union-attr]


def main(first: int, last: int) -> None:
    from tests.support.twins import TWINS, make_twin

    assert len(TWINS) == 2, "there is nothing to compare"
    for seed in range(first, last):
        high_octets = random.Random(seed).choice((3000, 20_000, 1 << 20))
        converse([World(make_twin(twin), high_octets) for twin in TWINS], seed, 120)


if __name__ == "__main__":
    if len(sys.argv) > 3:
        load(sys.argv[3])
    main(int(sys.argv[1]), int(sys.argv[2]))
