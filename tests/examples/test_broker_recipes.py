"""Recipes for brokers that are not here: scripted peers refuse what these brokers refuse."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import trio
import yaml

from router.model.condition import NOT_ALLOWED, NOT_FOUND, Condition
from router.model.events import LinkAttached
from router.model.terminus import Role, Source, Target
from router.wire.v1_0.performatives import Attach
from router.wire.v1_0.types import Described, Symbol
from tests.examples.test_recipes import CONFIGURATIONS
from tests.support.container import Container, body, filter_named
from tests.support.framed import Framed
from tests.support.ports import free_port
from tests.support.running import router_beside

SESSION, SELECTOR = "com.microsoft:session-filter", "apache.org:selector-filter:string"
SESSION_CODE = 0x13_7000_000C
Answer = LinkAttached | Condition


def address_of(attach: LinkAttached) -> str:
    there = attach.source if attach.role is Role.SENDER else attach.target
    assert isinstance(there, Source | Target)
    return there.address or ""


def wants(attach: LinkAttached) -> tuple[str, ...]:
    """The capabilities that an attach asks of our terminus."""
    there = attach.source if attach.role is Role.SENDER else attach.target
    assert isinstance(there, Source | Target)
    return tuple(map(str, there.capabilities))


def sessions(attach: LinkAttached) -> Answer:
    """Service Bus: an entity with sessions is read with one, or any."""
    found = filter_named(attach, SESSION)
    if attach.role is Role.SENDER and not (
        isinstance(found, Described)
        and found.descriptor == SESSION_CODE
        and isinstance(found.value, str | None)
    ):
        return Condition(NOT_ALLOWED, "the entity requires sessions")
    return attach


def partitions(attach: LinkAttached) -> Answer:
    """Event Hubs: a partition's reader names its offset, and its epoch as a long."""
    found = filter_named(attach, SELECTOR)
    is_offset = isinstance(found, Described) and "x-opt-offset > '" in str(found.value)
    epoch = attach.properties.get(Symbol("com.microsoft:epoch"))
    if attach.role is Role.SENDER and not (is_offset and epoch == 1 and epoch is not True):
        return Condition(NOT_ALLOWED, "no offset, or another epoch")
    return attach


def queues_and_topics(kinds: Mapping[str, str]) -> Callable[[LinkAttached], Answer]:
    """A broker whose addresses are of a kind, which the link has to name."""

    def judge(attach: LinkAttached) -> Answer:
        kind = kinds.get(address_of(attach))
        if kind is None or kind not in (*wants(attach), address_of(attach).partition(":")[0]):
            return Condition(NOT_FOUND, f"no such {kind}")
        return attach

    return judge


JUDGES = {
    "azure-service-bus": sessions,
    "event-hubs": partitions,
    "artemis": queues_and_topics({"prices": "topic", "orders": "queue"}),
    "ibm-mq": queues_and_topics(
        {"ORDERS.IN": "queue", "ORDERS.OUT": "queue", "PRICES/EU": "topic"}
    ),
    "amazon-mq": queues_and_topics({"queue://invoices": "queue", "topic://prices": "topic"}),
    "solace": queues_and_topics({"prices/eu": "topic", "orders": "queue"}),
}
"""By recipe: what its broker says to an attach."""


def recipe(name: str) -> dict[str, Any]:
    """The last configuration of a recipe."""
    texts = [text for place, text in CONFIGURATIONS.items() if f"/{name}.md:" in place]
    return dict(yaml.safe_load(texts[-1]))


def here(config: dict[str, Any], port: int, broker: int) -> tuple[str, list[dict[str, Any]]]:
    """A recipe with the scripted peer for its AMQP 1.0 broker; and its routes that are left."""
    url = {"url": f"amqp://127.0.0.1:{broker}", "retry_seconds": "100ms"}
    names = [name for name, each in config["containers"].items() if "protocol" not in each]
    others = set(config["containers"]) - set(names)
    routes = [each for each in config["routes"] if str(each.get("from")) not in others]
    made = {
        "router": {"admin": "off", "workers": 1},
        "listeners": [{"bind": f"127.0.0.1:{port}"}],
        "containers": dict.fromkeys(names, url),
        "routes": routes,
    }
    return yaml.safe_dump(made), routes


async def attach(port: int, role: Role, address: str) -> Framed:
    """Attaches to the router."""
    client = await Framed.dial(port, f"{role.value} {address}")
    await client.send(
        Attach(
            name="l",
            handle=0,
            role=role,
            source=Source(address=address),
            target=Target(address=address),
            initial_delivery_count=0 if role is Role.SENDER else None,
        )
    )
    await client.expect_attach()
    return client


@pytest.mark.parametrize("name", JUDGES)
async def test_a_recipe_asks_its_broker_for_what_it_insists_on(name: str, tmp_path: Path) -> None:
    broker, port = Container(judge=JUDGES[name]), free_port()
    text, routes = here(recipe(name), port, broker.port)
    async with broker.listening(), router_beside(text, tmp_path) as router:
        for route in routes:
            address = route["address"].replace("#", "eu")
            if "from" in route:
                there = route["from"]["address"]
                broker.messages[there] += [f"for {address}"]
                client = await attach(port, Role.RECEIVER, address)
                await client.flow(link_credit=1, delivery_count=0)
                assert b"for " in (await client.expect_transfer())[1]
            else:
                there = route["to"].get("address", address)
                client = await attach(port, Role.SENDER, address)
                await client.expect_credit()
                await client.transfer(b"t", body(f"to {there}"))
                with trio.fail_after(20):
                    while not broker.received[there]:
                        await trio.sleep(0.01)
            await client.lose()
        assert not any("link.failed" in line for line in router.log)
    if name == "ibm-mq":
        assert "private:PRICES/EU" in [each.name for each in broker.attached]


@pytest.mark.parametrize("name", JUDGES)
async def test_without_it_the_broker_refuses_the_link(name: str, tmp_path: Path) -> None:
    broker, port = Container(judge=JUDGES[name]), free_port()
    config = recipe(name)
    for route in config["routes"]:
        if isinstance(route.get("from"), dict):
            plain = route["from"]["address"].partition("://")
            route["from"] = f"{route['from']['container']}/{plain[2] or plain[0]}"
    text, _ = here(config, port, broker.port)
    async with broker.listening(), router_beside(text, tmp_path) as router:
        await trio.to_thread.run_sync(router.wait_for, "link.failed")
