"""What a crash left waiting is restored at a cost in proportion to it."""

import pytest

from router.core import orphans
from router.links.pairing import Pairing
from tests.support.journaled import EXACT, Journaled


def test_each_delivery_that_comes_back_is_looked_at_a_few_times_however_many_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    play = Journaled(EXACT)
    play.connect("r").attach_receiver(credit=1)
    sender = play.connect("s").attach_sender()
    play.flush()
    sender.send(*map(str, range(2000)), settled=True)
    play.flush()
    looks = 0
    is_sent = orphans._is_sent

    def counted(pairing: Pairing) -> bool:
        nonlocal looks
        looks += 1
        return is_sent(pairing)

    monkeypatch.setattr(orphans, "_is_sent", counted)
    after = play.crash()
    assert looks < 4000
    receiver = after.connect("other").attach_receiver(credit=5000)
    after.flush()
    assert len(receiver.payloads) == 1999
