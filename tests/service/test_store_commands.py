"""`router store` of a router that runs, and of a state directory that none uses."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio

from router.model.delivery import ReceivedDelivery
from router.model.outcome import MODIFIED_FAILED, DeliveryState
from tests.service.test_stored_routes import NEAR, PATIENCE_SECONDS, Places
from tests.support.chaos import Books, receiving
from tests.support.commands import run

NEAR_WITH_ADMIN = NEAR.replace("admin: off", 'admin: "unix:{folder}/near/admin.sock"')


async def store(places: Places, *arguments: str) -> tuple[int, str]:
    """Runs ``router store`` with the file of the router that stores."""
    options = ("--config", str(places.folder / "near" / "router.yaml"))
    done = await trio.to_thread.run_sync(lambda: run("store", *arguments, *options))
    return done.returncode, done.stdout + done.stderr


async def asked(places: Places, *arguments: str) -> Any:
    """Returns the JSON that ``router store`` prints."""
    code, text = await store(places, *arguments, "--json")
    assert code == 0, text
    return json.loads(text)


@pytest.mark.long
async def test_store_says_what_routes_hold_while_the_router_runs_and_when_it_has_ended(
    tmp_path: Path,
) -> None:
    places, books = Places(tmp_path, store=", messages: 1000"), Books()
    with trio.fail_after(PATIENCE_SECONDS):
        async with places.running("near", NEAR_WITH_ADMIN) as near:
            await places.send("telemetry.a", 0, 300, books)
            await places.send("telemetry.b", 300, 100, books)
            while (found := await asked(places))["routes"][0]["messages"] < 400:
                await trio.sleep(0.1)
            (held,) = found["routes"]
            assert (held["route"], held["share"], held["is_full"]) == ("telemetry.#", 0.4, False)
            assert 0 < held["oldest_seconds"] < PATIENCE_SECONDS
            assert held["waits_for"][0].startswith("cloud, away for ")
            deepest = await asked(places, "telemetry.#", "--limit", "1")
            (first,) = deepest["addresses"]
            assert (first["address"], first["messages"], deepest["hidden"]) == (
                "telemetry.a",
                300,
                1,
            )
            code, text = await store(places)
            assert (code, "telemetry.#" in text, "400" in text) == (0, True, True)
            code, text = await store(places, "no-such-route")
            assert (code, "no route named" in text) == (1, True)
            await trio.to_thread.run_sync(near.stop)
        before = {path: path.stat().st_mtime_ns for path in (tmp_path / "near-state").rglob("*")}
        state = ("--state", str(tmp_path / "near-state"))
        (kept,) = (await asked(places, *state))["routes"]
        assert (kept["route"], kept["messages"], kept["share"]) == ("telemetry.#", 400, 0.4)
        addresses = (await asked(places, "telemetry.#", *state))["addresses"]
        assert {each["address"]: each["messages"] for each in addresses} == {
            "telemetry.a": 300,
            "telemetry.b": 100,
        }
        assert before == {
            path: path.stat().st_mtime_ns for path in (tmp_path / "near-state").rglob("*")
        }
        code, text = await store(places, "--state", str(tmp_path))
        assert (code, "there is no message store" in text) == (1, True)


async def test_what_is_forwarded_leaves_the_list(tmp_path: Path) -> None:
    places, books, taken = Places(tmp_path), Books(), Books()
    with trio.fail_after(PATIENCE_SECONDS):
        async with (
            places.running("near", NEAR_WITH_ADMIN),
            places.target_runs(),
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(receiving("r", "telemetry.a", places.far, taken.take).run)
            await places.send("telemetry.a", 0, 300, books)
            while (found := await asked(places))["routes"][0]["messages"]:
                await trio.sleep(0.1)
            (held,) = found["routes"]
            assert (held["drain_seconds"], held["oldest_seconds"]) == (0.0, None)
            assert held["waits_for"] == []
            nursery.cancel_scope.cancel()


@pytest.mark.long
async def test_what_somebody_drops_waits_for_the_dead_letters_through_a_restart(
    tmp_path: Path,
) -> None:
    places, books, dead, late = Places(tmp_path), Books(), Books(), Books()
    with trio.fail_after(PATIENCE_SECONDS):
        async with places.running("near", NEAR_WITH_ADMIN) as near:
            await places.send("telemetry.a", 0, 100, books)
            await places.send("telemetry.b", 100, 50, books)
            while (await asked(places))["routes"][0]["messages"] < 150:
                await trio.sleep(0.1)
            code, text = await store(places, "drop", "telemetry.#", "--count", "10")
            assert (code, "Aborted" in text, "150" in text) == (1, True, True)
            code, text = await store(places, "drop", "telemetry.#", "--count", "30", "--yes")
            assert (code, text) == (0, "30 messages dropped to the dead letters\n")
            logged = json.loads(near.wait_for("store.dropped"))
            assert (logged["messages"], logged["forgotten"], bool(logged["by"])) == (
                30,
                False,
                True,
            )
            chosen = ("--address", "telemetry.b", "--forget", "--yes")
            code, text = await store(places, "drop", *chosen, "--count", "20")
            assert (code, text) == (0, "20 messages deleted\n")
            code, text = await store(places, "drop", *chosen, "--older-than", "1d")
            assert (code, text) == (0, "0 messages deleted\n")
            code, text = await store(places, "drop", "--yes")
            assert (code, "name a ROUTE" in text) == (2, True)
            code, text = await store(places, "drop", "nothing-of-the-kind", "--yes")
            assert (code, "no route named" in text) == (1, True)
            near.kill()
        async with (
            places.running("near", NEAR_WITH_ADMIN),
            places.target_runs(),
            trio.open_nursery() as nursery,
        ):
            for name in ("telemetry.a", "telemetry.b"):
                nursery.start_soon(receiving(name, name, places.far, late.take).run)
            nursery.start_soon(receiving("dead", "dead", places.far, dead.take).run)
            while len(dead.taken) < 30 or len(late.taken) < 100:
                await trio.sleep(0.05)
            nursery.cancel_scope.cancel()
    assert set(dead.taken) == set(range(30))
    assert set(late.taken) == {*range(30, 100), *range(120, 150)}
    assert not dead.duplicated


@pytest.mark.long
async def test_messages_whose_target_returns_them_are_tried_at_once(tmp_path: Path) -> None:
    places, books = Places(tmp_path), Books()
    tries: list[float] = []

    def refuse(delivery: ReceivedDelivery) -> DeliveryState:
        books.take(delivery)
        tries.append(trio.current_time())
        return MODIFIED_FAILED

    with trio.fail_after(PATIENCE_SECONDS):
        async with (
            places.running("near", NEAR_WITH_ADMIN) as near,
            places.target_runs(),
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(receiving("r", "telemetry.a", places.far, refuse).run)
            await places.send("telemetry.a", 0, 1, books)
            while len(tries) < 4:  # it rests for some 8 s then
                await trio.sleep(0.05)
            while not (await asked(places))["routes"][0]["resting"]:
                await trio.sleep(0.05)
            code, text = await store(places, "replay", "telemetry.#")
            assert (code, text) == (
                0,
                "1 address is tried now; 0 dead letters are sent to the target again\n",
            )
            assert json.loads(near.wait_for("store.replayed"))["resting"] == 1
            nursery.cancel_scope.cancel()
