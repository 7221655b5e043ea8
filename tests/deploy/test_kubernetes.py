"""The Kubernetes manifests: valid for several releases, and at one with the router in them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from router.service.admin.operations import OPERATIONS
from router.service.config import RouterConfig, read
from router.service.worker import CLOSE_SECONDS
from tests.support import peers

FOLDER = Path("deploy/kubernetes")
FILES = sorted(FOLDER.glob("*.yaml"))
RELEASES = ("1.29", "1.32", "1.34")
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")

Manifest = dict[str, Any]


def documents(path: Path) -> list[Manifest]:
    return list(yaml.safe_load_all(path.read_text()))


def of_kind(path: Path, kind: str) -> Manifest:
    (found,) = [each for each in documents(path) if each["kind"] == kind]
    return found


def pod_of(path: Path) -> Manifest:
    spec: Manifest = of_kind(path, "Deployment")["spec"]["template"]["spec"]
    return spec


def router_in(path: Path) -> Manifest:
    pod = pod_of(path)
    every = [*pod.get("initContainers", []), *pod["containers"]]
    found: Manifest
    (found,) = [each for each in every if each["name"] == "router"]
    return found


def config_of(path: Path, folder: Path) -> RouterConfig:
    """Loads the configuration that the manifest carries, with what the pod gives it."""
    text = of_kind(path, "ConfigMap")["data"]["router.yaml"]
    variables = {each["name"]: "x" for each in router_in(path)["env"]}
    variables["STATE_DIRECTORY"] = "/var/lib/router"  # from the image
    for mounted in ("/etc/router-tls/tls.crt", "/etc/router-tls/tls.key"):
        text = text.replace(mounted, str(folder / Path(mounted).name))
        (folder / Path(mounted).name).write_text("x")
    (folder / "users").write_text("")
    text = text.replace("/etc/router-users/users", str(folder / "users"))
    return read(text, "router.yaml", Path(), variables)


pytestmark = pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])


@pytest.mark.parametrize("release", RELEASES)
def test_every_document_is_valid(path: Path, release: str) -> None:
    peers.need_python("kubernetes_validate")
    import kubernetes_validate

    for document in documents(path):
        kubernetes_validate.validate(document, release, strict=True)


def test_the_configuration_passes_and_is_named_after_the_pod(path: Path, tmp_path: Path) -> None:
    config = config_of(path, tmp_path)
    assert config.routes
    assert "id: ${POD_NAME}" in of_kind(path, "ConfigMap")["data"]["router.yaml"]


def test_probes_ask_what_is_open_to_them(path: Path, tmp_path: Path) -> None:
    container, config = router_in(path), config_of(path, tmp_path)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    open_paths = {each.path for each in OPERATIONS if each.is_open}
    assert config.router.admin is not None
    for probe in PROBES:
        asked = container[probe]["httpGet"]
        assert asked["path"] in open_paths
        assert str(config.router.probes) == f"0.0.0.0:{ports[asked['port']]}"
    assert str(config.router.admin.bind) == f"0.0.0.0:{ports['admin']}"
    assert config.router.admin.token is not None


def test_the_drain_ends_before_the_pod_is_killed(path: Path, tmp_path: Path) -> None:
    config, pod = config_of(path, tmp_path), pod_of(path)
    hook = router_in(path).get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command")
    before = 0.0 if hook is None else float(hook[1])
    needed = before + config.router.drain_seconds + CLOSE_SECONDS
    assert pod["terminationGracePeriodSeconds"] >= needed + 5


def test_the_router_runs_without_privileges(path: Path) -> None:
    pod, container = pod_of(path), router_in(path)
    assert pod["securityContext"]["runAsNonRoot"]
    own = container["securityContext"]
    assert own["readOnlyRootFilesystem"]
    assert not own["allowPrivilegeEscalation"]
    assert own["capabilities"] == {"drop": ["ALL"]}
    assert not pod["automountServiceAccountToken"]


def test_what_is_mounted_and_selected_is_there(path: Path) -> None:
    pod, container = pod_of(path), router_in(path)
    volumes = {volume["name"] for volume in pod["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == volumes
    deployment = of_kind(path, "Deployment")["spec"]
    labels = deployment["template"]["metadata"]["labels"]
    assert deployment["selector"]["matchLabels"].items() <= labels.items()
    for each in documents(path):
        if each["kind"] == "Service":
            assert each["spec"]["selector"].items() <= labels.items()
            names = {port["name"] for port in container["ports"]}
            assert {port["targetPort"] for port in each["spec"]["ports"]} <= names
        if each["kind"] == "PodDisruptionBudget":
            assert each["spec"]["selector"]["matchLabels"].items() <= labels.items()
