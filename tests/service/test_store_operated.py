"""`router store drop` and `replay` while messages come, leave, and come back from their target.

OnePlace: each message is accepted by the target, or is with the dead letters, or somebody deleted
it, or its sender has heard that the target rejected it, as it passed the store by; never two of
these, and never none.
"""

import itertools
import random
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import trio

from router.model.delivery import ReceivedDelivery
from router.model.outcome import ACCEPTED, MODIFIED_FAILED, RELEASED, DeliveryState, Rejected
from router.routes.route import Guarantee
from router.wire.v1_0.sections import AnnotatedMessage, Header, encode_message
from tests.service.test_store_commands import NEAR_WITH_ADMIN, asked, store
from tests.service.test_stored_routes import FAR, PATIENCE_SECONDS, Places, until
from tests.support.chaos import Books, receiving, sending

pytestmark = pytest.mark.long

SEED = 1
COMMANDS = 6
EXACT = "    guarantee: exactly-once\n"
OUTCOMES: list[DeliveryState] = [
    *[ACCEPTED] * 30,
    RELEASED,
    RELEASED,
    MODIFIED_FAILED,
    Rejected(None),
]


def prioritized(numbers: Iterator[int], chance: random.Random) -> Iterator[bytes]:
    """Makes messages of various priorities that end with their numbers."""
    for number in numbers:
        header = Header(durable=True, priority=chance.choice([4, 4, 9, 1]))
        yield encode_message(AnnotatedMessage(header=header, data=[b"%0100d" % number]))


def command(chance: random.Random, *, forgets: bool) -> list[str]:
    """Makes up what somebody does."""
    if chance.random() < 0.4:
        return ["replay", "telemetry.#"]
    which = chance.choice([["telemetry.#"], ["--address", "telemetry.a"]])
    how_many = chance.choice([["--older-than", "1s"], ["--count", str(chance.choice([1, 30]))]])
    return ["drop", *which, *how_many, "--yes", *(["--forget"] if forgets else [])]


@pytest.mark.parametrize("forgets", [False, True])
@pytest.mark.parametrize("to", ["amqp-1.0", "amqp-0-9-1"])
async def test_what_people_do_while_messages_move_has_each_in_one_place(
    tmp_path: Path, to: str, forgets: bool
) -> None:
    """Exactly once towards 1.0; over 0-9-1 at least once, and nothing is lost that would double."""
    places, chance = Places(tmp_path, always="false"), random.Random(SEED)
    near, far = NEAR_WITH_ADMIN.replace("workers: 1", "workers: 2"), FAR
    guarantee, more = Guarantee.AT_LEAST_ONCE, f"protocol: {to}"
    if to == "amqp-1.0":
        guarantee, more = Guarantee.EXACTLY_ONCE, "is_router: true"
        near += EXACT
        far = far.replace("telemetry.#\n", f"telemetry.#\n{EXACT}")
    near = near.replace("limit_seconds: 1s", f"limit_seconds: 1s, {more}")
    sent, taken, dead, is_over = Books(), Books(), Books(), False
    deleted = 0

    def take(delivery: ReceivedDelivery) -> DeliveryState:
        outcome = ACCEPTED if is_over else chance.choice(OUTCOMES)
        return taken.take(delivery) if outcome is ACCEPTED else outcome

    def supply(first: int) -> Iterator[bytes]:
        numbers = itertools.takewhile(lambda _: not is_over, itertools.count(first))
        return prioritized(sent.count(numbers), chance)

    senders = [
        sending(
            f"s{first}", "telemetry.a", places.near, supply(first), window=1, guarantee=guarantee
        )
        for first in (0, 1_000_000)
    ]
    with trio.fail_after(PATIENCE_SECONDS):
        async with (
            places.running("near", near),
            places.running("far", far),
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(receiving("dead", "dead", places.far, dead.take).run)
            receiver = receiving("taken", "telemetry.a", places.far, take, window=20)
            nursery.start_soon(receiver.run)
            async with trio.open_nursery() as traffic:
                for sender in senders:
                    traffic.start_soon(sender.run)
                await until(lambda: len(taken.taken) > 20)
                for _ in range(COMMANDS):
                    code, text = await store(places, *command(chance, forgets=forgets))
                    assert code == 0, text
                    if (told := re.match(r"(\d+) messages? deleted", text)) is not None:
                        deleted += int(told[1])
                is_over = True
            while any(each["messages"] or each["dead"] for each in await held(places)):
                code, text = await store(places, "replay")
                assert code == 0, text
            refused = sum(sender.machine.report.outcomes["rejected"] for sender in senders)
            await until(lambda: len(sent.sent - known(taken, dead)) <= deleted + refused)
            assert forgets or len(sent.sent - known(taken, dead)) == refused
            nursery.cancel_scope.cancel()
    assert not taken.taken.keys() & dead.taken.keys()
    assert not taken.duplicated
    assert not dead.duplicated


async def held(places: Places) -> list[dict[str, int]]:
    """Returns what ``router store`` says of the routes."""
    found: list[dict[str, int]] = (await asked(places))["routes"]
    return found


def known(*books: Books) -> set[int]:
    """Returns the numbers of all messages that have arrived anywhere."""
    return {number for each in books for number in each.taken}
