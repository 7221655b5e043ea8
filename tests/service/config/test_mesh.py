"""What a file may say about the mesh, and what ``router check`` says of it."""

from pathlib import Path

import pytest

from router.model.place import TcpAddress
from router.service.config import ConfigError, RouterConfig, read
from router.service.credentials import load_usable
from router.service.difference import Change, compare

FILE = """
router: {id: dc1, workers: 1}
mesh:
  listen: 127.0.0.1:5673
  links: {dc2: {host: "127.0.0.2:5673", cost: 20}, dc3: {host: "localhost:5674"}}
  advertise: [dc1.#]
"""


def config(text: str = FILE) -> RouterConfig:
    return read(text, "router.yaml", Path(), {})


def refusal(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        config(text)
    return str(caught.value)


def test_a_mesh_names_its_neighbors_and_what_it_advertises() -> None:
    mesh = config().mesh
    assert mesh is not None
    assert mesh.listen == TcpAddress("127.0.0.1", 5673)
    assert {name: (str(each.host), each.cost) for name, each in mesh.links.items()} == {
        "dc2": ("127.0.0.2:5673", 20),
        "dc3": ("localhost:5674", 10),
    }
    assert mesh.advertise == ("dc1.#",)
    assert mesh.tls is None


def test_a_file_without_mesh_has_none() -> None:
    assert config("{}").mesh is None


@pytest.mark.parametrize(
    ("mesh", "problem"),
    [
        ("{listen: 10.0.0.1:5673}", "other machines can be reached, so it needs tls"),
        ('{links: {dc2: {host: "10.0.0.2:5673"}}}', "other machines can be reached"),
        ("{advertise: [a]}", "needs listen, or links, or both"),
        ('{links: {dc1: {host: "127.0.0.1:1"}}}', "dc1 is this router itself"),
        ('{links: {dc2: {host: "unix:/x"}}}', "is not host:port or [v6]:port"),
        ('{links: {dc2: {host: "127.0.0.1:0"}}}', "is not host:port or [v6]:port"),
        ('{links: {dc2: {host: "127.0.0.1:1", cost: 0}}}', "cost"),
        ("{listen: 127.0.0.1:1, advertise: [a.#, a/#]}", "match the same addresses"),
        ('{listen: 127.0.0.1:1, advertise: ["#.#x"]}', "advertise"),
        ("{listen: 127.0.0.1:1, tls: {cert: x}}", "tls"),
        ("{listen: 127.0.0.1:1, lnks: {}}", "links"),
    ],
)
def test_a_wrong_mesh_is_refused_with_the_reason(mesh: str, problem: str) -> None:
    text = f"router: {{id: dc1}}\nmesh: {mesh}\n"
    assert problem in refusal(text)


def test_a_mesh_that_others_can_reach_may_spell_out_that_it_has_no_tls() -> None:
    mesh = config("router: {id: dc1}\nmesh: {listen: 10.0.0.1:5673, tls: off}").mesh
    assert mesh is not None
    assert mesh.tls is None


def test_what_others_may_advertise_is_policy_and_needs_a_mesh() -> None:
    rules = "policy: {rules: [{name: r, users: [dc2], advertise: [dc2.#]}]}\n"
    assert config(FILE + rules).policy.rules[0].advertise == ("dc2.#",)
    assert "the file has no mesh" in refusal(rules)


def test_a_changed_mesh_is_a_difference() -> None:
    (found,) = compare(config(), config(FILE.replace("20", "30")))
    assert (found.section, found.name, found.change) == ("mesh", "dc1", Change.CHANGED)
    assert found.options == ("links",)


def test_a_mesh_is_checked_but_not_served_yet(tmp_path: Path) -> None:
    path = tmp_path / "router.yaml"
    path.write_text(FILE)
    with pytest.raises(ConfigError) as caught:
        load_usable(path)
    assert f"{path}:4:3: mesh: this version does not serve it yet" in str(caught.value)
