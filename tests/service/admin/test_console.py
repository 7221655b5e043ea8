"""The console in a real browser: what it shows, what it does, and that it needs nobody else."""

import base64
import json
import math
import os
import subprocess
import time
from collections.abc import Callable, Iterator
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
from router.service.control import (
    MeshLinkRecord,
    MeshRecord,
    MeshSiteRecord,
    StoredRecord,
    StoreRecord,
    WorkerSnapshot,
)
from tests.support import peers, served
from tests.support.browser import chromium, photograph, wait_until
from tests.support.fleets import (
    FakeControl,
    container,
    core,
    delivery,
    fleet,
    mesh_site,
    rejecting,
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
    """A worker whose totals grow, and that does as it is told.

    Attributes:
        speed: the mean of deliveries per second after some seconds.
    """

    began: float = attrs.field(factory=time.monotonic)
    speed: Callable[[float], float] = lambda seconds: 12_000

    async def snapshot(self, most_seconds: float = 0.0) -> WorkerSnapshot:
        now = time.monotonic() - self.began
        known = self.fares.core
        count = int(self.speed(now) * now)
        totals = Totals(deliveries=count, octets=100 * count)
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
def serving(
    token: str | None = None, *, store: StoreRecord | None = None, mesh: MeshRecord | None = None
) -> Iterator[Served]:
    shown = worker()
    shown.fares = attrs.evolve(shown.fares, store=store, mesh=mesh)
    with served.serving(fleet(shown), history(), token) as up:
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
        assert page.find("#verdict").text == "Ready, 4 problems (2 errors, 1 warning, 1 note)"
        page.find("#problems-all").click()
        page.wait_for(lambda: len(page.texts("#problems li")) == 4, "all problems")
        problems = page.texts("#problems li")
        page.find("#problems-all").click()
        assert [each.split("\n")[0] for each in problems] == ["ERROR", "ERROR", "WARNING", "NOTE"]
        assert "container west is not connected" in problems[0]
        assert "nothing listens at amqp://west.example:5672" in problems[0]
        assert "invoices.eu is stalled" in problems[1]
        assert "replies is paused" in problems[3]
        names = [each.split("\n")[0] for each in page.texts("#routes tbody th")]
        assert names[:3] == ["invoices.eu", "to the west", "replies"]
        assert set(names[3:]) == {"orders", "prices.*"}
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


RING = {("dc1", "dc2"): 10, ("dc2", "dc3"): 10, ("dc3", "dc4"): 10, ("dc1", "dc5"): 30}
WAYS = {
    "dc1": (0, ""),
    "dc2": (10, "dc2"),
    "dc3": (20, "dc2"),
    "dc4": (30, "dc2"),
    "dc5": (30, "dc5"),
}


def five_sites() -> MeshRecord:
    """A chain of four sites, a site beside it, one that is not reached, and a line that is down."""
    lines = [*RING.items(), *(((to, from_), cost) for (from_, to), cost in RING.items())]
    sites = [
        MeshSiteRecord(
            router=name,
            cost=cost,
            hop=hop,
            links=tuple((to, each) for (from_, to), each in lines if from_ == name),
            prefixes=(f"{name}.#",),
            addresses=1 if name == "dc4" else 0,
        )
        for name, (cost, hop) in WAYS.items()
    ]
    sites.append(mesh_site("dc6", cost=None))
    links = [
        MeshLinkRecord(router="dc2", cost=10, is_up=True, is_active=True),
        MeshLinkRecord(router="dc5", cost=30, is_up=True, is_active=True),
        MeshLinkRecord(router="dc6", cost=40, is_up=False),
    ]
    return MeshRecord(router="dc1", links=tuple(links), sites=tuple(sites))


def test_without_a_mesh_no_sites_are_shown(browser: Any) -> None:
    with serving() as up, looking(browser, up) as page:
        page.wait_for(lambda: page.row("routes", "orders"), "the routes")
        assert not page.find("#sites-section").is_displayed()


HUBS = {"dc2": "reached", "dc3": "not reached"}


def test_an_edge_shows_its_hubs(browser: Any) -> None:
    hubs = (
        MeshLinkRecord(router="dc2", cost=1, is_up=True, is_active=True),
        MeshLinkRecord(router="dc3", cost=1, is_up=False),
    )
    mesh = MeshRecord(router="app", links=hubs, sites=(), is_edge=True)
    with serving(mesh=mesh) as up, looking(browser, up) as page:
        page.wait_for(lambda: page.row("sites", "dc3"), "the hubs")
        states = {name: page.find(f"#sites tr[data-key={name}] .pill").text for name in HUBS}
        assert states == HUBS


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


WIDTHS = (1400, 420)


@contextmanager
def screen(browser: Any, width: int, theme: str = "light") -> Iterator[None]:
    """A screen of that width, 900 pixels high, for the length of the block."""
    feature = {"name": "prefers-color-scheme", "value": theme}
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        yield
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", WIDTHS)
def test_it_fits_screens_large_and_small_in_both_themes(
    browser: Any, width: int, theme: str
) -> None:
    with screen(browser, width, theme), serving() as up, looking(browser, up) as page:
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


BOXES = """
const box = (each) => { const { left, top, right, bottom } = each.getBoundingClientRect();
                        return { left, top, right, bottom }; };
const some = {};
for (const [name, selector] of Object.entries(arguments[0]))
  some[name] = [...document.querySelectorAll(selector)].map(box);
return some;
"""


@pytest.mark.parametrize("wrong", [0, 300])
@pytest.mark.parametrize("width", WIDTHS)
def test_the_first_screen_holds_verdict_problems_numbers_and_plots(
    browser: Any, width: int, wrong: int
) -> None:
    reason = "connection refused by a host whose name takes a lot of room on a small screen" * 3
    away = tuple(container(f"site-{number}.example", error=reason) for number in range(wrong))
    fares = worker_snapshot(core=records() if wrong else core(route()), containers=away)
    up = served.serving(fleet(FakeControl(fares=fares)), history())
    with screen(browser, width), up as made, looking(browser, made) as page:
        page.wait_for(lambda: page.texts(".plot .curve"), "the plots")
        shown_first = {
            "verdict": "#verdict",
            "problems": "#problems li",
            "numbers": "#tiles > div",
            "plots": ".plot svg",
        }
        boxes = browser.execute_script(BOXES, shown_first)
        assert [len(boxes[name]) for name in ("verdict", "numbers", "plots")] == [1, 10, 4]
        assert len(boxes["problems"]) == (0 if not wrong else 3 if width > 1000 else 2)
        for name, some in boxes.items():
            for box in some:
                assert box["left"] >= 0, name
                assert box["right"] <= width, name
                assert 0 < box["top"] < box["bottom"] <= 900, name
        tops = [max(box["top"] for box in boxes[name]) for name in shown_first if boxes[name]]
        assert tops == sorted(tops), "the order of the page"
        cut = browser.execute_script(
            "return [...document.querySelectorAll('#tiles dt, #tiles dd, .plot h2, .plot .legend')]"
            ".filter(each => each.scrollWidth > each.clientWidth).map(each => each.textContent)"
        )
        assert cut == []


@pytest.mark.parametrize("width", WIDTHS)
def test_senders_routes_and_receivers_are_on_the_screen_together(browser: Any, width: int) -> None:
    with screen(browser, width), serving() as up, looking(browser, up) as page:
        page.wait_for(lambda: page.texts("#topology g"), "the picture")
        boxes = browser.execute_script(BOXES, {"all": "#topology rect", "card": "#topology-card"})
        (card,) = boxes["card"]
        lefts = sorted({round(box["left"]) for box in boxes["all"]})
        assert len(lefts) == 3
        for box in boxes["all"]:
            assert card["left"] <= box["left"] < box["right"] <= card["right"] <= width
        right_of = {round(box["left"]): box["right"] for box in boxes["all"]}
        assert right_of[lefts[0]] + 15 < lefts[1]
        assert right_of[lefts[1]] + 15 < lefts[2]


SITES = """
const texts = (selector) =>
  [...document.querySelectorAll(`#sites-picture ${selector}`)].map((each) => each.textContent);
return {
  names: texts("text.name"), lost: texts(".off .name"), columns: texts("text.column"),
  costs: texts("text.cost"), ways: texts("path.way").length, down: texts("path.bad").length,
};
"""


@pytest.mark.parametrize("width", WIDTHS)
def test_all_sites_of_the_mesh_are_shown_with_their_lines(browser: Any, width: int) -> None:
    up = serving(mesh=five_sites())
    with screen(browser, width), up as made, looking(browser, made) as page:
        page.wait_for(lambda: page.row("sites", "dc4"), "the sites")
        assert page.find("#sites-state").text == "1 not reached"
        rows = {name: page.texts(f"#sites tr[data-key={name}] > *") for name in ("dc1", "dc6")}
        assert rows["dc1"] == [
            *("dc1", "this router", "0", ""),
            *("dc1.#", "dc2 10, dc5 30, dc6 40 (down)"),
        ]
        assert rows["dc6"] == ["dc6", "not reached", "–", "", "", "dc1 40 (down)"]
        told = browser.execute_script(SITES)
        assert sorted(told["names"]) == [*WAYS, "dc6"]
        assert told["lost"] == ["dc6"]
        assert told["columns"][0] == "Here"
        assert told["columns"][-1] == "Not reached"
        assert sorted(told["costs"]) == ["10", "10", "10", "30", "40"]
        assert (told["ways"], told["down"]) == (4, 1)
        wanted = {"all": "#sites-picture rect", "card": "#sites-section"}
        boxes = browser.execute_script(BOXES, wanted)
        (card,) = boxes["card"]
        for box in boxes["all"]:
            assert card["left"] <= box["left"] < box["right"] <= card["right"]
        page.keep_picture(f"sites-{width}")


def test_incoming_and_outgoing_are_drawn_on_two_sides_of_one_axis(browser: Any) -> None:
    with serving() as up, looking(browser, up) as page:
        page.wait_for(lambda: len(page.texts(".plot .curve")) == 6, "six curves")
        first = ".plot:first-child "
        boxes = browser.execute_script(
            BOXES, {"in": f"{first}.curve:not(.second)", "out": f"{first}.curve.second"}
        )
        assert boxes["in"][0]["bottom"] <= boxes["out"][0]["top"]


NUMBERS = """
const texts = (selector) =>
  [...document.querySelectorAll(selector)].map((each) => each.textContent);
const cells = (row) => [...row.cells].map((cell) => cell.textContent);
return {
  tiles: Object.fromEntries([...document.querySelectorAll("#tiles > div")]
    .map((tile) => [...tile.children].map((each) => each.textContent))),
  legends: texts(".plot .legend span"),
  routes: Object.fromEntries([...document.querySelectorAll("#routes tbody tr")]
    .map((row) => [row.dataset.key, cells(row)])),
  boxes: Object.fromEntries([...document.querySelectorAll("#topology g")]
    .map((each) => [...each.querySelectorAll("text")].map((text) => text.textContent))),
};
"""


def number_of(text: str) -> float:
    """Reads a number as the page writes it."""
    bare = text.partition("/")[0].replace(",", "")
    unit = {"k": 1e3, "M": 1e6}.get(bare[-1], 1.0)
    return float(bare.rstrip("kM")) * unit


def test_the_numbers_of_one_screen_agree(browser: Any) -> None:
    swelling = attrs.evolve(worker(), speed=lambda seconds: 4000 * seconds)
    with served.serving(fleet(swelling), history()) as up, looking(browser, up) as page:
        page.wait_for(lambda: page.texts("#topology path.live"), "traffic")
        for _ in range(3):  # polls
            told = browser.execute_script(NUMBERS)
            routes = told["routes"]
            incoming = sum(number_of(cells[2]) for cells in routes.values())
            outgoing = sum(number_of(cells[3]) for cells in routes.values())
            tiles = told["tiles"]
            assert number_of(tiles["Incoming"]) == pytest.approx(incoming, rel=0.01)
            assert number_of(tiles["Outgoing"]) == pytest.approx(outgoing, rel=0.01)
            legend = dict(each.rsplit(" ", 1) for each in told["legends"][:2])
            assert f"{legend['in']}/s" == tiles["Incoming"]
            assert f"{legend['out']}/s" == tiles["Outgoing"]
            unsettled = sum(number_of(cells[4]) for cells in routes.values())
            assert number_of(tiles["Unsettled"]) == unsettled
            assert number_of(tiles["In doubt"]) == sum(
                number_of(cells[7]) for cells in routes.values()
            )
            orders = f"{routes['orders'][2]}/s in, {routes['orders'][3]}/s out"
            assert told["boxes"]["orders"] == orders
            assert told["boxes"]["shop-frontend"] == f"{routes['orders'][2]}/s"
            before = page.find("#tiles").text
            page.wait_for(lambda seen=before: page.find("#tiles").text != seen, "the next poll")


def many(count: int, wrong: int) -> FakeControl:
    """A router with many routes; some lead to a container that is away."""
    broken = (
        route(f"orders.{number}", to=(WEST,), senders=1, uplinks=(uplink("away", name=WEST),))
        for number in range(wrong)
    )
    linked = (route(f"linked.{number}", senders=1, receivers=1) for number in range(20))
    idle = (route(f"site.{number}") for number in range(count - wrong - 20))
    peer = PeerRecord(
        container="/2", is_configured=True, routes=(("linked.1", Role.SENDER),), congested=1
    )
    client = PeerRecord(
        container="Python Client#e986fc66.9",
        is_configured=False,
        routes=(("orders.1", Role.RECEIVER),),
    )
    made = core(*idle, *linked, *broken, peers=(peer, client))
    return FakeControl(fares=worker_snapshot(core=made, containers=(container(WEST),)))


def test_of_5000_routes_the_broken_ones_come_first_and_idle_ones_are_folded(browser: Any) -> None:
    with served.serving(fleet(many(5000, 100))) as up, looking(browser, up) as page:
        page.wait_for(lambda: page.row("routes", "orders.0"), "the routes")
        assert page.find("#routes-states").text == "5,000: 100 broken, 4,900 idle"
        assert len(page.texts("#routes tbody tr")) == 30
        octets = browser.execute_script(
            "return performance.getEntriesByType('resource')"
            ".filter(each => each.name.includes('/overview')).map(each => each.transferSize)"
        )
        assert 0 < max(octets) < 8000
        assert browser.execute_script("return document.querySelectorAll('*').length") < 1000
        more = page.find("#routes-all")
        assert more.text == "Show 70 more"
        more.send_keys("\n")
        page.wait_for(lambda: len(page.texts("#routes tbody th")) == 100, "all broken ones")
        assert page.find("#routes-more").text == ""
        more.send_keys("\n")
        page.wait_for(lambda: len(page.texts("#routes tbody th")) == 30, "the worst ones")
        fold = page.find("#routes-idle")
        assert fold.text == "Show 4,900 idle routes"
        assert fold.get_attribute("aria-expanded") == "false"
        fold.send_keys("\n")
        page.wait_for(lambda: len(page.texts("#routes tbody th")) == 500, "the idle ones")
        names = browser.execute_script(
            "return [...document.querySelectorAll('#routes tbody tr')].map(row => row.dataset.key)"
        )
        assert [name.startswith("orders") for name in names] == [True] * 100 + [False] * 400
        assert [name.startswith("linked") for name in names[100:120]] == [True] * 20
        assert "and 4,500 more" in page.find("#routes-more").text
        assert page.find("#routes-idle").get_attribute("aria-expanded") == "true"
        page.find("#routes-idle").click()
        page.wait_for(lambda: len(page.texts("#routes tbody th")) == 30, "the fold")
        page.find("#routes-match").send_keys("SITE.4321")
        page.wait_for(lambda: page.texts("#routes tbody th") == ["site.4321"], "the one found")
        page.find("#routes-match").clear()


def test_a_rejection_is_shown_with_count_peer_and_reason(browser: Any) -> None:
    rejected = rejecting("invoices.eu")
    away = route("orders", to=(WEST,))
    made = worker_snapshot(core=core(rejected, away), containers=(container(WEST),))
    up = served.serving(fleet(FakeControl(fares=made)))
    with up as endpoint, looking(browser, endpoint) as page:
        page.wait_for(lambda: page.row("routes", "invoices.eu"), "the route")
        text = page.row("routes", "invoices.eu").text
        assert "12 rejected; the last one 4.0 s ago by west: amqp:not-found: no such queue" in text
        assert [each.split()[0] for each in page.texts("#routes .pill")] == ["rejecting", "away"]
        assert page.find("#routes-states").text == "2: 1 rejecting, 1 away"
        assert "invoices.eu" in page.find("#problems").text


def test_the_picture_has_names_of_the_file_and_none_of_workers(browser: Any) -> None:
    with served.serving(fleet(many(100, 12))) as up, looking(browser, up) as page:
        page.wait_for(lambda: page.texts("#topology g"), "the picture")
        names = browser.execute_script(
            "return [...document.querySelectorAll('#topology .name')].map(each => each.textContent)"
        )
        assert WEST in names
        assert {name.split(".")[0] for name in names} == {"orders", WEST, "Python Client #9"}
        assert page.find("#topology-more").text.startswith("10 of 12 routes that are not idle")
        assert "worker 2 reads slower" in page.find("#problems").text


CONTRASTS = """
const channels = (color) => color.match(/[\\d.]+/g).map(Number);
const back = (each) => {
  for (let at = each; at; at = at.parentElement) {
    const [red, green, blue, alpha = 1] = channels(getComputedStyle(at).backgroundColor);
    if (alpha === 1) return [red, green, blue];
  }
  return [255, 255, 255];
};
const light = (color) => {
  const [red, green, blue] = color.slice(0, 3).map((each) => each / 255)
    .map((each) => each <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
};
const poor = [];
for (const each of document.querySelectorAll("body *:not(svg *)")) {
  const isText = [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
  if (!isText || !each.checkVisibility()) continue;
  const style = getComputedStyle(each);
  const [one, other] = [light(channels(style.color)), light(back(each))].sort((a, b) => b - a);
  const contrast = (one + 0.05) / (other + 0.05);
  if (contrast < 4.5) poor.push([each.textContent, each.className, contrast]);
}
return poor;
"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_texts_stand_out_from_what_is_behind_them(browser: Any, theme: str) -> None:
    with screen(browser, 1400, theme), serving() as up, looking(browser, up) as page:
        page.wait_for(lambda: page.row("routes", "orders"), "the routes")
        assert browser.execute_script(CONTRASTS) == []


def test_it_is_used_with_the_keyboard_and_tells_readers_what_matters(browser: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    with serving() as up, looking(browser, up) as page:
        page.wait_for(lambda: page.row("routes", "orders"), "the routes")
        assert page.find("[role=status]").get_attribute("id") == "verdict"
        assert not page.find("#problems").get_attribute("aria-live")  # it counts seconds
        reached = []
        for _ in range(20):
            browser.switch_to.active_element.send_keys(Keys.TAB)
            focused = browser.switch_to.active_element
            reached.append(focused.get_attribute("id") or focused.get_attribute("role"))
        for name in ("reload", "drain", "problems-all", "routes-match", "region"):
            assert name in reached, reached
        names = browser.execute_script(
            "return [...document.querySelectorAll('button, input, [role=region], [role=img]')]"
            ".filter(each => each.checkVisibility())"
            ".map(each => each.textContent.trim() || each.ariaLabel || each.title"
            " || each.labels?.length || each.getAttribute('aria-labelledby'))"
        )
        assert all(names), names


def test_stored_routes_are_shown_with_what_they_hold_and_wait_for(browser: Any) -> None:
    deep = StoredRecord(
        route="to the west",
        messages=120_000,
        octets=3 << 30,
        oldest_seconds=7300.0,
        is_full=True,
        stored_rate=12.0,
        forwarded_rate=62.0,
        dead=4,
    )
    small = StoredRecord(route="orders", messages=0, octets=0, oldest_seconds=0.0, is_full=False)
    store = StoreRecord(is_connected=True, routes=(small, deep))
    with serving(store=store) as up, looking(browser, up) as page:
        page.wait_for(lambda: page.row("stores", "orders"), "the stores")
        assert page.find("#stores-state").text == "answers"
        head, *cells = page.texts("#stores tbody tr:first-child > *")
        assert head == "to the west", "the deepest comes first"
        assert cells[:9] == ["full", "120k", "3.0 GiB", "2.0 h", "12", "62", "40 min", "–", "4"]
        assert "empty" in page.row("stores", "orders").text
        region = page.find("#stores-section [role=region]")
        browser.execute_script("arguments[0].focus()", region)
        assert browser.switch_to.active_element == region, "the keyboard reaches it"
        page.keep_picture("stores")


def test_a_router_without_stored_routes_shows_no_stores(browser: Any) -> None:
    with serving() as up, looking(browser, up) as page:
        page.wait_for(lambda: page.row("routes", "orders"), "the routes")
        assert not page.find("#stores-section").is_displayed()


def test_a_store_that_is_away_is_said_to_be(browser: Any) -> None:
    store = StoreRecord(is_connected=False)
    with serving(store=store) as up, looking(browser, up) as page:
        page.wait_for(lambda: page.find("#stores-section").is_displayed(), "the stores")
        assert page.find("#stores-state").text == "does not answer"
        assert "Nothing is stored." in page.find("#stores").text


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
