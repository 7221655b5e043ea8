"""What a file may say about the mesh, and what ``router check`` says of it."""

from pathlib import Path

import pytest

from router.model.place import TcpAddress
from router.routes.mesh.nouns import RouterId
from router.service.config import ConfigError, RouterConfig, read
from router.service.config.listeners import VerifyClient
from router.service.credentials import load_usable
from router.service.difference import Change, compare, refusals
from router.service.inquiry import inquire
from router.service.mesh import advertise_policy
from tests.support.mesh_certificates import Authority

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
    (found,) = (
        each
        for each in compare(config(), config(FILE.replace("20", "30")))
        if each.section == "mesh"
    )
    assert (found.section, found.name, found.change) == ("mesh", "dc1", Change.CHANGED)
    assert found.options == ("links",)


def problems_of(folder: Path, text: str) -> str:
    path = folder / "router.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_usable(path)
    return str(caught.value)


EDGE = """
router: {id: app, workers: 1}
mesh: {edge: ["localhost:5673", "127.0.0.2:5673"]}
"""


def test_an_edge_names_its_hubs_and_dials_all_of_them() -> None:
    found = config(EDGE)
    assert found.mesh is not None
    assert [str(place) for place in found.mesh.edge] == ["localhost:5673", "127.0.0.2:5673"]
    hubs = {name: each for name, each in found.containers.items() if each.is_hub}
    assert list(hubs) == ["edge:localhost:5673", "edge:127.0.0.2:5673"]
    assert all(each.is_mesh for each in hubs.values())
    assert found.listeners == config("router: {id: app, workers: 1}\n").listeners


def test_a_sidecar_of_a_mesh_has_eight_lines_at_most() -> None:
    text = Path("examples/sites/app.yaml").read_text()
    assert len(text.splitlines()) <= 8


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            EDGE.replace("]}", "], listen: '127.0.0.1:5673'}"),
            "mesh.listen: an edge has none; its hubs are in mesh.edge",
        ),
        (
            EDGE.replace("]}", "], advertise: [a.#]}"),
            "mesh.advertise: an edge has none; its hubs are in mesh.edge",
        ),
        (
            EDGE.replace("127.0.0.2", "localhost"),
            "mesh.edge: localhost:5673 is named twice",
        ),
        (EDGE.replace("127.0.0.2", "10.0.0.2"), "mesh: other machines can be reached"),
        ("router: {id: app}\nmesh: {edge: []}\n", "mesh: needs listen, or links, or both, or edge"),
    ],
)
def test_an_edge_has_hubs_alone(text: str, problem: str) -> None:
    assert problem in refusal(text)


def test_a_reload_makes_no_edge_of_a_site() -> None:
    found = list(refusals(config(EDGE), config(FILE)))
    assert [each.problem for each in found] == [
        "mesh: a reload makes no edge of a site, and no site of an edge: start router run again"
    ]


SECURE = """
router: {id: dc1, workers: 1}
mesh:
  listen: 10.0.0.1:5673
  links: {dc2: {host: "10.0.0.2:5673"}}
  tls: {cert: dc1.pem, key: dc1.key, ca: mesh-ca.pem}
"""


def test_tls_of_a_mesh_names_the_router(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    authority.issue("dc1")
    path = tmp_path / "router.yaml"
    path.write_text(SECURE)
    loaded = load_usable(path)
    (listener,) = (each for each in loaded.listeners if each.is_mesh)
    assert listener.tls is not None
    assert listener.tls.verify_client is VerifyClient.REQUIRED
    neighbor = loaded.containers["mesh:dc2"]
    assert neighbor.tls.server_name == "dc2"
    assert neighbor.url[0].is_tls
    authority.issue("dc1", "other")
    found = problems_of(tmp_path, SECURE)
    assert "router.yaml:6:15: mesh.tls.cert: does not have router.id, 'dc1'" in found


def test_the_policy_of_the_file_says_what_routers_may_advertise() -> None:
    def allowed(rules: str) -> dict[str, str | None]:
        groups = "{hubs: [dc2], nobody: []}"
        loaded = config(FILE + f"policy: {{groups: {groups}, rules: [{rules}]}}\n")
        policy = advertise_policy(loaded.policy)
        return {name: policy.judge_address(RouterId(name), "dc2.orders") for name in ("dc2", "dc3")}

    assert allowed("{name: r}") == {"dc2": None, "dc3": None}
    named = allowed("{name: r, users: [dc2], advertise: [dc2.#]}")
    assert named["dc2"] is None
    assert named["dc3"] is not None
    assert allowed("{name: r, groups: [hubs], advertise: [dc2.#]}") == named
    anybody = allowed('{name: r, users: ["*"], advertise: [dc2.#]}')
    assert anybody == {"dc2": None, "dc3": None}
    for nothing in ("groups: [nobody], advertise: [dc2.#]", "users: [dc2], advertise: []"):
        assert None not in allowed(f"{{name: r, {nothing}}}").values()


def test_what_exactly_once_means_between_sites_is_said() -> None:
    routes = "routes:\n  - {address: a.#, guarantee: exactly-once}\n  - {address: b.#}\n"
    (note,) = config(FILE + routes).notes
    assert str(note) == (
        "router.yaml:8:15: route a.# is exactly-once over the mesh, too: where the route is"
        " exactly-once at both sites; what a site has that is cut off waits for that site, in doubt"
    )


def test_a_route_with_a_container_that_the_site_advertises_is_named() -> None:
    routes = (
        "containers: {ext: {url: 'amqp://127.0.0.1:1'}}\n"
        "routes:\n  - {address: dc1.q.#, to: ext}\n  - {address: other.#, to: ext}\n"
    )
    (note,) = config(FILE + routes).notes
    assert "route dc1.q.# has a container, and mesh.advertise covers it" in str(note)


async def test_a_trial_does_not_dial_neighbors_and_says_so() -> None:
    (finding,) = await inquire(config(FILE.replace(', dc3: {host: "localhost:5674"}', "")), 1.0)
    assert finding.text.startswith("mesh:dc2: not dialed, because it admits routers alone")


def test_a_reload_may_change_a_mesh_and_does_not_leave_it() -> None:
    assert not list(refusals(config(), config(FILE.replace("20", "30"))))
    (problem,) = refusals(config(), config("routes: []"))
    assert "a reload does not leave a mesh" in str(problem)
