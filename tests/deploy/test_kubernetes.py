"""The Kubernetes manifests: valid for several releases, and at one with the router in them."""

import re
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
    if "JOURNAL_URL" in text:
        peers.need_python("psycopg")
    variables = {each["name"]: "x" for each in router_in(path)["env"]}
    variables["JOURNAL_URL"] = "postgresql://router@db/router"
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


def test_the_configuration_passes_and_is_named_after_the_pod_or_alike_in_both(
    path: Path, tmp_path: Path
) -> None:
    config = config_of(path, tmp_path)
    assert config.routes
    is_shared = config.router.journal.standby
    text = of_kind(path, "ConfigMap")["data"]["router.yaml"]
    assert ("id: ${POD_NAME}" in text) is not is_shared
    assert ("host: ${POD_IP}" in text) is is_shared


def test_a_standby_that_is_never_ready_holds_up_no_rollout(path: Path, tmp_path: Path) -> None:
    spec = of_kind(path, "Deployment")["spec"]
    if config_of(path, tmp_path).router.journal.standby:
        assert spec["replicas"] == 2
        assert spec["strategy"]["type"] == "Recreate"
    else:
        assert spec.get("strategy", {}).get("type") != "Recreate"


def test_probes_ask_what_is_open_to_them(path: Path, tmp_path: Path) -> None:
    container, config = router_in(path), config_of(path, tmp_path)
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    open_paths = {each.path for each in OPERATIONS if each.is_open}
    for probe in PROBES:
        asked = container[probe]["httpGet"]
        assert asked["path"] in open_paths
        assert str(config.router.probes) == f"0.0.0.0:{ports[asked['port']]}"


def test_the_admin_token_crosses_no_network_in_clear(path: Path, tmp_path: Path) -> None:
    admin, ports = config_of(path, tmp_path).router.admin, router_in(path)["ports"]
    assert admin is not None
    assert admin.token is not None
    named = {port["name"]: port["containerPort"] for port in ports}
    host, _, port = str(admin.bind).rpartition(":")
    if host == "127.0.0.1":
        assert int(port) not in named.values()
    else:
        assert admin.tls_cert is not None
        assert admin.tls_key is not None
        assert named["admin"] == int(port)


def test_secrets_come_from_secrets(path: Path) -> None:
    text = of_kind(path, "ConfigMap")["data"]["router.yaml"]
    asked = set(re.findall(r"\$\{(\w+)\}", text)) - {"STATE_DIRECTORY"}
    sources = {each["name"]: each.get("valueFrom", {}) for each in router_in(path)["env"]}
    assert asked == sources.keys()
    assert "secretKeyRef" in sources["ADMIN_TOKEN"]
    assert {name for name, source in sources.items() if "secretKeyRef" not in source} <= {
        "POD_NAME",
        "POD_IP",
    }
    assert "token: ${ADMIN_TOKEN}" in text.replace('"', "")


def test_services_lead_to_doors_with_tls(path: Path, tmp_path: Path) -> None:
    config = config_of(path, tmp_path)
    protected = {
        str(each.bind).rpartition(":")[2] for each in config.listeners if each.tls is not None
    }
    named = {port["name"]: str(port["containerPort"]) for port in router_in(path)["ports"]}
    for service in [each for each in documents(path) if each["kind"] == "Service"]:
        for port in service["spec"]["ports"]:
            assert named[port["targetPort"]] in protected


def test_only_amqp_and_the_probes_are_let_in(path: Path, tmp_path: Path) -> None:
    config, policy = config_of(path, tmp_path), of_kind(path, "NetworkPolicy")["spec"]
    labels = of_kind(path, "Deployment")["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"]
    assert policy["podSelector"]["matchLabels"].items() <= labels.items()
    assert "Ingress" in policy["policyTypes"]
    named = {port["name"]: port["containerPort"] for port in router_in(path)["ports"]}
    assert all(rule["ports"] for rule in policy["ingress"])  # none would be all of them
    admitted = {named[port["port"]] for rule in policy["ingress"] for port in rule["ports"]}
    outside = [
        str(bind)
        for bind in (config.router.probes, *(each.bind for each in config.listeners))
        if not str(bind).startswith("127.")
    ]
    assert admitted == {int(bind.rpartition(":")[2]) for bind in outside}


def test_what_the_router_dials_and_the_name_servers_are_let_through(
    path: Path, tmp_path: Path
) -> None:
    policy = of_kind(path, "NetworkPolicy")["spec"]
    if "Egress" in policy["policyTypes"]:
        admitted = {port["port"] for rule in policy["egress"] for port in rule["ports"]}
        config = config_of(path, tmp_path)
        dialed = {url.port for each in config.containers.values() for url in each.url}
        database = {5432} if config.router.journal.store is not None else set()
        assert admitted == {53, *dialed, *database}


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
