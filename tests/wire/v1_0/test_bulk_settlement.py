"""Shortcuts of settlement against the functions whose shortcuts they are, on the same records."""

from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import attrs
import pytest

from router.model.identity import DeliveryNumber
from router.model.outcome import ACCEPTED
from router.model.serial import MASK
from router.model.terminus import Role
from router.wire.v1_0 import bulk, outgoing, settlement
from router.wire.v1_0.faults import Fault
from router.wire.v1_0.records import Disposition

pytestmark = pytest.mark.skipif(bulk.shortcuts is None, reason="nothing was compiled")


@attrs.define(eq=False)
class End:
    """A link, as far as settlement looks at it."""

    name: str
    session: Any
    ids: dict[int, int] = attrs.field(factory=dict)


class Records:
    """A session with some links and what is unsettled on them; the same for the same seed."""

    def __init__(self, seed: int) -> None:
        dice = Random(seed)
        self.session = SimpleNamespace(incoming={}, outgoing={}, numbers={})
        count = dice.choice((1, 1, 1, 2, 3))
        self.links = [End(f"link {number}", self.session) for number in range(count)]
        self.first = dice.choice((0, 5, MASK - 10))
        for step in range(dice.choice((0, 3, 40))):
            if dice.random() < 0.7:
                an_id, link = (self.first + step) & MASK, dice.choice(self.links)
                self.session.incoming[an_id] = link
                self.session.outgoing[an_id] = link
                self.session.numbers[an_id] = 1000 + step
                link.ids[1000 + step] = an_id

    def left(self) -> object:
        """What is unsettled."""
        session = self.session
        return (
            [(an_id, link.name) for an_id, link in session.incoming.items()],
            [(an_id, link.name) for an_id, link in session.outgoing.items()],
            list(session.numbers.items()),
            [list(link.ids.items()) for link in self.links],
        )


Act = Callable[[Records, Random], object]


def _hear(role: Role) -> Act:
    def act(records: Records, dice: Random) -> object:
        told: list[object] = []
        back, ahead = dice.choice((-3, 0, 5)), dice.choice((0, 1, 10, 60))
        first = (records.first + back) & MASK
        last = dice.choice(((first + ahead) & MASK, (first - 1) & MASK))
        said = Disposition(
            role=role,
            first=first,
            last=dice.choice((last, last, None)),
            settled=dice.random() < 0.6,
            state=dice.choice((ACCEPTED, None)),
        )

        def tell(link: Any, numbers: list[DeliveryNumber], state: object, settled: bool) -> None:
            told.append((link.name, list(numbers), state, settled))

        try:
            settlement.take_disposition(cast("Any", records.session), said, tell)
        except Fault as fault:
            told.append(fault.rule)
        return told

    return act


def _update_incoming(records: Records, dice: Random) -> object:
    ids = [(records.first + dice.randrange(-2, 45)) & MASK for _ in range(dice.randrange(30))]
    numbers = [DeliveryNumber(each) for each in dict.fromkeys(ids)]
    link = cast("Any", dice.choice(records.links))
    return settlement.update_incoming(link, numbers, dice.random() < 0.6)


def _forget(records: Records, dice: Random) -> object:
    numbers = [DeliveryNumber(1000 + dice.randrange(-2, 45)) for _ in range(dice.randrange(30))]
    return outgoing.forget(cast("Any", dice.choice(records.links)), numbers)


ACTS: dict[str, Act] = {
    "take_from_receiver": _hear(Role.RECEIVER),
    "take_from_sender": _hear(Role.SENDER),
    "unsettled_of": _update_incoming,
    "forget": _forget,
}


@pytest.mark.parametrize("name", ACTS)
def test_a_shortcut_does_to_random_records_what_its_function_does(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = 0
    whole = bulk.shortcuts
    function = getattr(whole, name)

    def counted(*arguments: Any) -> object:
        nonlocal taken
        result: object = function(*arguments)
        taken += bool(result)
        return result

    shortcuts = SimpleNamespace(**{each: getattr(whole, each) for each in ACTS} | {name: counted})
    for seed in range(400):
        ends = []
        for chosen in (shortcuts, None):
            monkeypatch.setattr(bulk, "shortcuts", chosen)
            records = Records(seed)
            dice = Random(seed)
            said = [ACTS[name](records, dice) for _ in range(3)]
            ends.append((said, records.left()))
        assert ends[0] == ends[1], f"seed {seed}"
    assert taken > 20
