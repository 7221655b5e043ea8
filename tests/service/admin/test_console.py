"""The console in a real browser: what it shows, what it does, and that it needs nobody else."""

import base64
import json
import math
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest

from router.core.listing import DeliveryPage, DeliveryPosition, Filter
from router.core.snapshot import PeerRecord, Snapshot, Totals
from router.model.terminus import Role
from router.model.text import shown
from router.service import admin
from router.service.admin.history import SAMPLE_SECONDS, History, Rates, Sample
from router.service.control import WorkerSnapshot
from tests.support import peers, served
from tests.support.browser import chromium, photograph, wait_until
from tests.support.fleets import (
    FakeControl,
    container,
    core,
    delivery,
    fleet,
    route,
    stalled,
    uplink,
    worker_snapshot,
)
from tests.support.served import Served

pytestmark = pytest.mark.interop

TOKEN = "open sesame"
EAST, WEST = "east", "west"
IN_DOUBT = bytes.fromhex("00c0ffee")


def records() -> Snapshot:
    """A router with something of everything."""
    busy = {"senders": 2, "receivers": 1, "incoming_unsettled": 240, "oldest_seconds": 0.02}
    return core(
        route("orders", to=(EAST,), distribution="balanced", guarantee="exactly-once", **busy),
        route("prices.*", senders=1, receivers=3, distribution="multicast"),
        stalled("invoices.eu", senders=1, queued=3, blocked_senders=1, oldest_seconds=75.0),
        route(
            "to the west", to=(WEST,), in_doubt=1, senders=1, uplinks=(uplink("away", name=WEST),)
        ),
        route("replies", is_paused=True),
        connections=5,
        peers=(
            PeerRecord(
                container="shop-frontend",
                is_configured=False,
                routes=(("orders", Role.RECEIVER), ("to the west", Role.RECEIVER)),
            ),
            PeerRecord(
                container="pricing",
                is_configured=False,
                routes=(("prices.*", Role.RECEIVER), ("orders", Role.RECEIVER)),
            ),
            PeerRecord(
                container="dashboard-with-a-very-long-container-id-0123456789",
                is_configured=False,
                routes=(("prices.*", Role.SENDER),),
            ),
            PeerRecord(
                container="billing", is_configured=False, routes=(("invoices.eu", Role.RECEIVER),)
            ),
            PeerRecord(container=EAST, is_configured=True, routes=(("orders", Role.SENDER),)),
        ),
    )


@attrs.define(eq=False)
class LivingControl(FakeControl):
    """A worker whose totals grow, and that does as it is told."""

    began: float = attrs.field(factory=time.monotonic)

    async def snapshot(self, most_seconds: float = 0.0) -> WorkerSnapshot:
        now = time.monotonic() - self.began
        known = self.fares.core
        totals = Totals(deliveries=int(12_000 * now), octets=int(1.2e6 * now))
        moving = {"orders": totals, "prices.*": totals}
        routes = tuple(
            attrs.evolve(each, received=moving[each.name], sent=moving[each.name])
            if each.name in moving
            else each
            for each in known.routes
        )
        peers = tuple(attrs.evolve(each, received=totals, sent=totals) for each in known.peers)
        self.fares = attrs.evolve(
            self.fares,
            at=time.time(),
            core=attrs.evolve(known, at=now, routes=routes, peers=peers),
        )
        return await super().snapshot()

    async def deliveries(
        self, wanted: Filter, most: int, after: DeliveryPosition | None
    ) -> DeliveryPage:
        page = await super().deliveries(wanted, most, after)
        kept = [each for each in page.deliveries if not wanted.in_doubt or each.state == "in doubt"]
        return attrs.evolve(page, deliveries=tuple(kept))

    async def pause(self, route: str) -> None:
        await super().pause(route)
        self._set_paused(route, True)

    async def resume(self, route: str) -> None:
        await super().resume(route)
        self._set_paused(route, False)

    def _set_paused(self, name: str, paused: bool) -> None:
        known = self.fares.core
        routes = tuple(
            attrs.evolve(each, is_paused=paused) if each.name == name else each
            for each in known.routes
        )
        self.fares = attrs.evolve(self.fares, core=attrs.evolve(known, routes=routes))


def worker() -> LivingControl:
    in_doubt = delivery(
        IN_DOUBT, 3725.0, state="in doubt", route="to the west", address="west.orders"
    )
    containers = (container(EAST, is_connected=True, seconds=5400.0), container(WEST))
    return LivingControl(
        fares=worker_snapshot(core=records(), containers=containers),
        unsettled=(in_doubt, delivery(b"\x01", 12.0), delivery(b"\x02", 0.5, state="queued")),
        in_doubt={IN_DOUBT: 1},
        routes={each.name for each in records().routes},
    )


def history() -> History:
    """An hour's curves."""
    made = History()
    now = time.time()
    for step in range(180):
        wave = math.sin(step / 14)
        rates = Rates(
            received=9000 + 3000 * wave,
            sent=14000 + 4000 * wave,
            received_octets=1e6,
            sent_octets=1.5e6,
            outcomes=9000,
            outcome_seconds=0.004 + 0.002 * wave,
        )
        made.samples.append(
            Sample(
                at=now - (180 - step) * SAMPLE_SECONDS,
                rates=rates,
                unsettled=int(240 + 60 * wave),
                queued=3,
                in_doubt=1,
                oldest_seconds=20.0 + step / 3,
                lag_seconds=0.001,
            )
        )
    return made


@contextmanager
def serving(token: str | None = None) -> Iterator[Served]:
    with served.serving(fleet(worker()), history(), token) as up:
        yield up


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with chromium(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@attrs.frozen(eq=False)
class Page:
    """The console as somebody sees it."""

    browser: Any

    def find(self, selector: str) -> Any:
        return self.browser.find_element("css selector", selector)

    def texts(self, selector: str) -> list[str]:
        found = self.browser.find_elements("css selector", selector)
        return [each.text for each in found]

    def row(self, table: str, name: str) -> Any:
        rows = self.browser.find_elements("css selector", f"#{table} tbody tr")
        return next((row for row in rows if name in row.text), None)

    def wait_for(self, is_true: Any, what: str) -> None:
        wait_until(self.browser, is_true, what)

    def answer(self, button: str) -> None:
        """Answers the dialog that has come up."""
        self.wait_for(lambda: self.find("#ask").get_attribute("open"), "a dialog")
        self.find(button).click()

    def complaints(self) -> list[Any]:
        """What the browser had to say against the page since it was asked last."""
        return [each for each in self.browser.get_log("browser") if each["level"] == "SEVERE"]

    def keep_picture(self, name: str) -> None:
        """Keeps a picture where the environment says so."""
        folder = os.environ.get("ROUTER_PICTURES")
        if folder:
            photograph(self.browser, Path(folder) / f"{name}.png")


@contextmanager
def looking(browser: Any, up: Served) -> Iterator[Page]:
    browser.get(up.url)
    page = Page(browser)
    yield page
    assert page.complaints() == []
    browser.get("about:blank")


def test_everything_is_shown_and_the_worst_comes_first(browser: Any) -> None:
    with serving() as up, looking(browser, up) as page:
        page.wait_for(lambda: page.find("#state").text == "ready", "the state")
        problems = page.texts("#problems li")
        assert [each.split("\n")[0] for each in problems] == ["ERROR", "ERROR", "WARNING", "NOTE"]
        assert "container west is not connected" in problems[0]
        assert "nothing listens at amqp://west.example:5672" in problems[0]
        assert "invoices.eu is stalled" in problems[1]
        assert "replies is paused" in problems[3]
        assert "invoices.eu" in page.texts("#routes tbody tr")[0]
        assert "Connection refused" in page.row("containers", WEST).text
        tiles = dict(each.split("\n") for each in page.texts("#tiles > div"))
        assert tiles["In doubt"] == "1"
        page.keep_picture("console")


def test_topology_shows_live_rates_and_who_is_away(browser: Any) -> None:
    with serving() as up, looking(browser, up) as page:
        page.wait_for(lambda: page.texts("#topology path.live"), "traffic in the picture")
        page.wait_for(lambda: "12.0k/s" in page.find("#topology").text, "a rate")
        picture = page.find("#topology").text
        for name in ("shop-frontend", "orders", EAST, WEST, "prices.*"):
            assert name in picture
        assert "not connected" in picture
        assert page.texts("#topology .bad.off text")[0] == WEST
        assert len(page.texts("#topology path.bad")) == 1
        boxes = page.browser.execute_script(
            "return [...document.querySelectorAll('#topology g')].map(g => ["
            "g.querySelector('rect').getBoundingClientRect().right,"
            "...[...g.querySelectorAll('text')].map(t => t.getBoundingClientRect().right)])"
        )
        for box, *texts in boxes:
            assert all(text <= box for text in texts), "a text leaves its box"
        page.keep_picture("topology")


def test_plots_have_curves_and_tell_the_value_under_the_pointer(browser: Any) -> None:
    from selenium.webdriver.common.action_chains import ActionChains

    with serving() as up, looking(browser, up) as page:
        page.wait_for(lambda: len(page.texts(".plot .curve")) == 6, "six curves")
        plot = page.find(".plot svg")
        before = page.find(".plot .legend").text
        ActionChains(browser).move_to_element(plot).perform()
        page.wait_for(lambda: page.texts(".plot .cross") != [], "the crosshair")
        assert page.find(".plot .legend").text != before
        assert "Deliveries per second" in plot.get_attribute("aria-label")


def test_a_route_is_paused_and_resumed(browser: Any) -> None:
    with serving() as up, looking(browser, up) as page:
        page.wait_for(lambda: page.row("routes", "prices.*"), "the route")
        page.row("routes", "prices.*").find_element("css selector", "button").click()
        page.answer("#ask-no")
        page.row("routes", "prices.*").find_element("css selector", "button").click()
        page.answer("#ask-yes")
        page.wait_for(lambda: "paused" in page.row("routes", "prices.*").text, "the pause")
        page.row("routes", "prices.*").find_element("css selector", "button").click()
        page.wait_for(lambda: "paused" not in page.row("routes", "prices.*").text, "the resumption")
        orders = [each for each in up.control.asked if each[0] != "deliveries"]
        assert orders == [("pause", "prices.*"), ("resume", "prices.*")]


def test_a_delivery_in_doubt_is_decided_about(browser: Any) -> None:
    with serving() as up, looking(browser, up) as page:
        page.wait_for(lambda: page.row("deliveries", IN_DOUBT.hex()), "the delivery")
        row = page.row("deliveries", IN_DOUBT.hex())
        assert "62 min" in row.text
        assert "to the west" in row.text
        next(
            each for each in row.find_elements("css selector", "button") if each.text == "resend"
        ).click()
        page.answer("#ask-yes")
        page.wait_for(
            lambda: [each for each in up.control.asked if each[0] == "resolve"], "the decision"
        )


def test_a_token_is_asked_for_once_and_kept_for_the_tab(browser: Any) -> None:
    with serving(TOKEN) as up:
        browser.get(up.url)
        page = Page(browser)
        page.wait_for(lambda: page.find("#ask").get_attribute("open"), "the question")
        page.find("#ask-token").send_keys(TOKEN)
        page.find("#ask-yes").click()
        page.wait_for(lambda: page.find("#state").text == "ready", "the state")
        browser.refresh()
        page.wait_for(lambda: page.find("#state").text == "ready", "the state again")
        page.complaints()  # of the first 401
        browser.get("about:blank")


def test_nothing_is_loaded_from_elsewhere(browser: Any) -> None:
    with serving() as up, looking(browser, up) as page:
        page.wait_for(lambda: page.find("#state").text == "ready", "the state")
        loaded = browser.execute_script(
            "return performance.getEntriesByType('resource').map(each => each.name)"
        )
        assert loaded
        assert [name for name in loaded if not name.startswith(up.url)] == []


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 420])
def test_it_fits_screens_large_and_small_in_both_themes(
    browser: Any, width: int, theme: str
) -> None:
    feature = {"name": "prefers-color-scheme", "value": theme}
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        with serving() as up, looking(browser, up) as page:
            page.wait_for(lambda: page.find("#state").text == "ready", "the state")
            over = browser.execute_script(
                "return document.documentElement.scrollWidth - document.documentElement.clientWidth"
            )
            assert over <= 0
            folder = os.environ.get("ROUTER_PICTURES")
            if folder:
                whole = {"captureBeyondViewport": True, "format": "png"}
                shot = browser.execute_cdp_cmd("Page.captureScreenshot", whole)
                picture = base64.b64decode(shot["data"])
                (Path(folder) / f"{theme}-{width}.png").write_bytes(picture)
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_router_that_is_gone_is_said_to_be(browser: Any) -> None:
    with serving() as up:
        browser.get(up.url)
        page = Page(browser)
        page.wait_for(lambda: page.find("#state").text == "ready", "the state")
    page.wait_for(lambda: page.find("#state").text != "ready", "the news")
    assert page.find("#state").text == "no answer"
    page.complaints()
    browser.get("about:blank")


HOSTILE = (
    "\x1b[31mred\x1b[0m",
    "one\r\ntwo",
    "\u202egnol\u2066",
    "\0\x7f\x9b\u2028\ufeff\xa0",
    "\ud800",
    "<img src=x onerror=document.title=1>&amp;",
    "plain: é · → 日本",
    "\U000e0041",
    "x" * 60_000,
)


def test_names_are_shown_by_the_console_as_by_the_commands() -> None:
    peers.need_program("node")
    script = (
        "import {shown} from './dom.js';"
        "const texts = JSON.parse(await new Response(process.stdin).text());"
        "console.log(JSON.stringify(texts.map(text => shown(text))));"
    )
    told = subprocess.run(
        ["node", "--input-type=module", "-e", script],
        input=json.dumps(HOSTILE),
        cwd=Path(admin.__file__).parent / "console",
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(told.stdout) == [shown(text, 1000) for text in HOSTILE]


@pytest.mark.parametrize("name", HOSTILE[:6] + HOSTILE[-1:], ids=lambda name: ascii(name)[:20])
def test_whatever_peers_are_called_the_console_shows_text(browser: Any, name: str) -> None:
    told = container(WEST, error=name, urls=(name,))
    made = worker_snapshot(
        core=core(
            route(name, to=(WEST,), senders=1, uplinks=(uplink("paused", name, WEST),)),
            peers=(
                PeerRecord(container=name, is_configured=False, routes=((name, Role.RECEIVER),)),
            ),
        ),
        containers=(told,),
    )
    listed = delivery(
        b"\x01", 1.0, route=name, address=name, container=name, link=name, to_link=name
    )
    fake = FakeControl(fares=made, unsettled=(listed,), routes={name})
    with served.serving(fleet(fake)) as up, looking(browser, up) as page:
        page.wait_for(lambda: page.texts("#routes tbody tr"), "the routes")
        page.wait_for(lambda: page.texts("#deliveries tbody tr th.code"), "the delivery")
        texts = page.browser.execute_script(
            "return [...document.querySelectorAll('main *')]"
            ".flatMap(each => [...each.childNodes])"
            ".filter(node => node.nodeType === 3).map(node => node.data)"
        )
        drawn = [text for text in texts if text.strip()]
        assert any(shown(name, 30)[:20] in text for text in drawn)
        assert all(text.replace("\n", " ").isprintable() for text in drawn)
        assert max(map(len, drawn)) < 3000
        assert page.browser.title.isprintable()
        assert page.browser.find_elements("css selector", "main img") == []
