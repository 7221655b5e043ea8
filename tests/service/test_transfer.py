"""A configuration travels to the workers as objects, in pieces."""

import re
from pathlib import Path

import pytest

from router.service.config.load import RouterConfig, load, read
from router.service.transfer import PIECE_ROUTES, pack, unpack

DEPLOYED = Path("deploy/router.yaml")


def many(count: int) -> RouterConfig:
    lines = [f"  - {{address: 'q.{n}.#', link_credit: {n + 1}}}" for n in range(count)]
    return read("routes:\n" + "\n".join(lines), "many.yaml", Path(), {})


async def test_the_deployed_file_arrives_as_it_was(tmp_path: Path) -> None:
    text = DEPLOYED.read_text()
    for path in re.findall(r"(?:tls|secrets)/[\w.]+", text):
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text("x")
    (tmp_path / "router.yaml").write_text(text)
    config = load(
        tmp_path / "router.yaml", dict.fromkeys(re.findall(r"\$\{([A-Z_]+)\}", text), "x")
    )
    assert await unpack(pack(config)) == config


@pytest.mark.parametrize("count", [0, 1, PIECE_ROUTES, 2 * PIECE_ROUTES + 1])
async def test_routes_come_in_pieces_and_find_their_addresses(count: int) -> None:
    config = many(count)
    draft = pack(config)
    assert len(draft.pieces) == -(-count // PIECE_ROUTES)
    arrived = await unpack(draft)
    assert arrived == config
    for number in (0, count - 1):
        match = arrived.table.lookup(f"q.{number}.x")
        assert (match is not None) is (0 <= number < count)
        if match is not None:
            assert match.route is arrived.routes[number]


async def test_a_route_that_the_router_adds_by_itself_arrives_too() -> None:
    config = read(
        "router: {management: true}\nroutes: [{address: orders}]", "managed.yaml", Path(), {}
    )
    arrived = await unpack(pack(config))
    assert arrived == config
    assert arrived.table.lookup("$management") is not None
