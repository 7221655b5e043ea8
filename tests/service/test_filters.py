"""Filters through a running router: a broker that insists on a session, and streams of RabbitMQ."""

from pathlib import Path

import attrs
import pytest
import trio

from router.model.condition import NOT_ALLOWED, Condition
from router.model.events import LinkAttached
from router.model.terminus import Role, Source
from router.wire.v1_0.performatives import Attach, Detach
from router.wire.v1_0.types import Described, Symbol
from tests.support.container import Container, filter_named
from tests.support.framed import Framed
from tests.support.ports import free_port
from tests.support.running import router_beside

SESSION = "com.microsoft:session-filter"

CONFIG = """\
router: {{admin: off, workers: {workers}}}
listeners: [{{bind: "127.0.0.1:{port}"}}]
containers:
  azure: {{url: "amqp://127.0.0.1:{broker}", retry_seconds: 50ms}}
routes:
  - address: sessions.one
    from: {{container: azure, address: orders, filter: {{"{session}": {first}}}}}
  - {{address: orders, to: azure}}
"""


def insists(attach: LinkAttached) -> LinkAttached | Condition:
    """Gives an entity with sessions to nobody who asks for none, or for one that is taken."""
    wanted = filter_named(attach, SESSION)
    if attach.role is Role.RECEIVER:
        return attach
    if not isinstance(wanted, Described) or wanted.descriptor != Symbol(SESSION):
        return Condition(NOT_ALLOWED, "the entity requires sessions")
    if wanted.value == "taken":
        return Condition("com.microsoft:session-cannot-be-locked", "taken")
    assert attach.source is not None
    return attrs.evolve(
        attach,
        source=attrs.evolve(attach.source, address=f"{attach.source.address}/{wanted.value}"),
    )


def asking(name: str, session: object) -> Attach:
    filters: dict[object, object] = {Symbol(SESSION): Described(Symbol(SESSION), session)}
    return Attach(
        name=name,
        handle=0,
        role=Role.RECEIVER,
        source=Source(address="orders", filters=filters),
    )


@pytest.mark.long
@pytest.mark.parametrize("workers", [1, 2])
async def test_sessions_of_a_route_and_of_clients_reach_a_broker_that_insists_on_them(
    tmp_path: Path, workers: int
) -> None:
    broker, port = Container(judge=insists), free_port()
    broker.messages["orders/s1"] += ["one"]
    broker.messages["orders/s2"] += ["two"]
    broker.messages["orders/s3"] += ["three"]
    config = CONFIG.format(
        workers=workers, port=port, broker=broker.port, session=SESSION, first="s1"
    )
    async with broker.listening(), router_beside(config, tmp_path) as router:
        await broker.until(lambda it: it.attached)
        for number in range(2 * workers):  # so that each worker has one
            client = await Framed.dial(port, f"client{number}")
            await client.send(asking("sessions", "s2"))
            answer = await client.expect_attach()
            assert answer.source is not None
            assert filter_named_in(answer) == Described(Symbol(SESSION), "s2")
            refused = await Framed.dial(port, f"other{number}")
            await refused.send(asking("sessions", "taken"))
            detach = await refused.expect(Detach)
            assert detach.error is not None
            assert detach.error.name == "com.microsoft:session-cannot-be-locked"
            if number == 0:
                await client.flow(link_credit=5, delivery_count=0)
                assert b"two" in (await client.expect_transfer())[1]
            await client.lose()
            await refused.lose()
        await broker.until(lambda it: len(it.detached) == 2 * workers)
        plain = await Framed.dial(port, "plain")
        await plain.send(attrs.evolve(asking("p", ""), source=Source(address="sessions.one")))
        await plain.expect_attach()
        await plain.flow(link_credit=5, delivery_count=0)
        assert b"one" in (await plain.expect_transfer())[1]
        router.wait_for("link.attached")
        other = CONFIG.format(
            workers=workers, port=port, broker=broker.port, session=SESSION, first="s3"
        )
        (tmp_path / "router.yaml").write_text(other)
        router.process.send_signal(1)
        assert b"three" in (await plain.expect_transfer())[1]
        await plain.lose()


def filter_named_in(attach: Attach) -> object:
    assert attach.source is not None
    return (attach.source.filters or {}).get(Symbol(SESSION))


async def test_a_broker_that_applies_no_filters_is_not_read_without_them(tmp_path: Path) -> None:
    def ignores(attach: LinkAttached) -> LinkAttached:
        assert attach.source is not None
        return attrs.evolve(attach, source=attrs.evolve(attach.source, filters=None))

    broker, port = Container(judge=ignores), free_port()
    broker.messages["orders"] += ["never"]
    config = CONFIG.format(workers=1, port=port, broker=broker.port, session=SESSION, first="s1")
    async with broker.listening(), router_beside(config, tmp_path) as router:
        plain = await Framed.dial(port, "plain")
        await plain.send(attrs.evolve(asking("p", ""), source=Source(address="sessions.one")))
        await plain.expect_attach()
        await plain.flow(link_credit=5, delivery_count=0)
        await trio.to_thread.run_sync(router.wait_for, "is not applied")
        await broker.until(lambda it: len(it.attached) > 2)
        assert broker.messages["orders"] == ["never"]
        await plain.lose()
