"""A container that sends single links elsewhere, through a running router."""

import signal
from pathlib import Path
from typing import Any

import trio

from router.model.condition import LINK_REDIRECT, Condition
from router.model.events import LinkAttached
from router.model.place import Alternative
from router.wire.alternatives import as_map
from tests.support.container import SECONDS, Container
from tests.support.ports import free_port
from tests.support.running import RunningRouter, router_beside

CONFIG = """\
router: {{admin: off, workers: 1, drain_seconds: 0}}
listeners: [{{bind: "127.0.0.1:{port}"}}]
containers:
  east: {{url: "amqp://127.0.0.1:{east}", retry_seconds: 50ms{more}}}
  west: {{url: "amqp://127.0.0.1:{west}", retry_seconds: 50ms}}
routes:
  - {{address: orders, from: east/orders, to: west/orders}}
  - {{address: prices, from: east/prices, to: west/prices}}
"""


def redirect(container: Container, address: str | None = None, **fields: Any) -> Condition:
    info = as_map(Alternative(host="127.0.0.1", port=container.port, **fields))
    if address is not None:
        info["address"] = address
    return Condition(LINK_REDIRECT, "there", info)


def sends_orders_away(condition: Condition) -> Any:
    def judge(attach: LinkAttached) -> LinkAttached | Condition:
        is_orders = attach.source is not None and attach.source.address == "orders"
        return condition if is_orders else attach

    return judge


async def until_logged(router: RunningRouter, *texts: str) -> None:
    with trio.fail_after(SECONDS):
        while not any(all(text in line for text in texts) for line in tuple(router.log)):
            await trio.sleep(0.01)


async def test_a_link_is_followed_to_where_its_container_sends_it_and_comes_back(
    tmp_path: Path,
) -> None:
    east, other, west = Container(), Container(name="other"), Container(name="west")
    port = free_port()
    east.judge = sends_orders_away(redirect(other, "there", hostname="virtual.example"))
    east.messages["prices"] += ["price 1"]
    other.messages["there"] += ["order 1"]
    config = CONFIG.format(port=port, east=east.port, west=west.port, more="")
    async with east.listening(), west.listening(), router_beside(config, tmp_path) as router:
        async with other.listening():
            await west.until(lambda it: it.received["orders"] and it.received["prices"])
            assert other.opened[0].hostname == "virtual.example"  # §2.8.18
            assert len(east.opened) == 1
            await until_logged(router, "link.redirected", f"east@127.0.0.1:{other.port}")
        east.messages["prices"] += ["price 2"]
        east.messages["orders"] += ["order 2"]
        await until_logged(router, "link.failed", f"east@127.0.0.1:{other.port}")
        east.judge = lambda attach: attach
        await west.until(lambda it: len(it.received["orders"]) == 2)
        assert len(east.opened) == 1, "the container's own connection stayed"


async def test_a_container_that_lies_is_not_followed_and_a_reload_leaves_other_places(
    tmp_path: Path,
) -> None:
    east, other, west = Container(), Container(name="other"), Container(name="west")
    port = free_port()
    evil = Condition(LINK_REDIRECT, "there", {"network-host": "evil.example", "port": 5672})
    east.judge = sends_orders_away(evil)
    east.messages["prices"] += ["price"]
    config = CONFIG.format(port=port, east=east.port, west=west.port, more="")
    async with (
        east.listening(),
        other.listening(),
        west.listening(),
        router_beside(config, tmp_path) as router,
    ):
        await west.until(lambda it: it.received["prices"])
        await until_logged(router, "link.redirect_refused", "failover_hosts does not name the host")
        east.judge = sends_orders_away(redirect(other, scheme="amqps"))
        await until_logged(router, "link.redirect_refused", "amqps would")
        other.judge = sends_orders_away(redirect(east))
        east.judge = sends_orders_away(redirect(other))
        await until_logged(router, "link.redirect_refused", "redirects go round in a circle")
        other.judge = lambda attach: attach
        other.messages["orders"] += ["order"]
        await west.until(lambda it: it.received["orders"])
        ignoring = CONFIG.format(
            port=port, east=east.port, west=west.port, more=", failover: ignore"
        )
        (tmp_path / "router.yaml").write_text(ignoring)
        router.process.send_signal(signal.SIGHUP)
        await until_logged(router, "link.redirect_refused", "the file says failover: ignore")
        with trio.fail_after(SECONDS):
            while other.lines:
                await trio.sleep(0.01)
