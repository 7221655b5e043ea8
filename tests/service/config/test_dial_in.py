"""Containers that dial in: what their section may say, and which routes can have them."""

from pathlib import Path

import pytest

from router.service.config import ConfigError, read
from router.service.config.containers import Several

HEAD = "containers:\n  plant7: {dials_in: true, identity: plant7}\n"


def problems(text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read(text, "r.yaml", Path(), {})
    return [str(problem).removeprefix("r.yaml:") for problem in caught.value.problems]


def test_one_line_is_enough() -> None:
    found = read(f"{HEAD}routes: [{{address: a, to: plant7}}]\n", "r.yaml", Path(), {})
    plant = found.containers["plant7"]
    assert (plant.dials_in, plant.identity, plant.container_id) == (True, "plant7", None)
    assert plant.several is Several.REFUSE


@pytest.mark.parametrize(
    ("container", "expected"),
    [
        ("{}", "needs the key 'url': amqp[s]://host, where it is dialed; or write dials_in: true"),
        ("{url: 'amqp://x', identity: a}", "identity: means nothing without dials_in: true"),
        (
            "{dials_in: true, identity: a, url: 'amqp://x'}",
            "url: this is for containers that the router dials, and this one dials in",
        ),
        ("{dials_in: true}", "dials_in: needs the key 'identity', or 'container_id', by which"),
        (
            "{dials_in: true, identity: a, protocol: amqp-0-9-1}",
            "protocol: containers that dial in speak amqp-1.0",
        ),
    ],
)
def test_keys_that_contradict_each_other_are_refused(container: str, expected: str) -> None:
    (problem,) = problems(f"containers: {{p: {container}}}\n")
    assert f"containers.p: {expected}" in problem


def test_one_connection_cannot_be_two_containers() -> None:
    (problem,) = problems(f"{HEAD}  other: {{dials_in: true, identity: plant7}}\n")
    assert "containers.other: dials_in: connections like its are 'plant7' already" in problem


@pytest.mark.parametrize("workers", [1, 2])
def test_exactly_once_wants_its_container_at_one_worker(workers: int) -> None:
    text = (
        f"router: {{workers: {workers}}}\n{HEAD}"
        "routes: [{address: a, to: plant7, guarantee: exactly-once, in_doubt: hold}]\n"
    )
    if workers == 1:
        assert read(text, "r.yaml", Path(), {}).routes
        return
    (problem,) = problems(text)
    assert "exactly-once is kept at one worker, and 'plant7' may dial in to any" in problem


def test_exactly_once_knows_one_container_and_not_several() -> None:
    (problem,) = problems(
        "router: {workers: 1}\n"
        "containers: {p: {dials_in: true, identity: p, several: balance}}\n"
        "routes: [{address: a, to: p, guarantee: exactly-once, in_doubt: hold}]\n"
    )
    assert "several share 'p'; leave out several: balance, or promise less" in problem
