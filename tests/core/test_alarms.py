"""Alarms go off in order, and not if they were cancelled."""

from router.core.alarms import Alarms


def test_alarms_go_off_in_order_of_time_then_of_setting() -> None:
    alarms, rung = Alarms(), list[str]()
    for at, name in ((2.0, "b"), (1.0, "a"), (2.0, "c"), (9.0, "z")):
        alarms.set(at, lambda name=name: rung.append(name))  # type: ignore[misc]
    assert alarms.deadline == 1.0
    while (action := alarms.pop_due(5.0)) is not None:
        action()
    assert rung == ["a", "b", "c"]
    assert alarms.deadline == 9.0


def test_cancelled_alarm_does_not_go_off() -> None:
    alarms = Alarms()
    alarm = alarms.set(1.0, lambda: None)
    alarms.set(2.0, lambda: None)
    alarms.cancel(alarm)
    alarms.cancel(alarm)
    alarms.cancel(None)
    assert alarms.deadline == 2.0
    assert alarms.pop_due(1.5) is None


def test_alarm_may_cancel_one_that_is_due_with_it() -> None:
    alarms = Alarms()
    alarms.set(1.0, lambda: alarms.cancel(other))
    other = alarms.set(1.0, lambda: None)
    first = alarms.pop_due(2.0)
    assert first is not None
    first()
    assert alarms.pop_due(2.0) is None
    assert alarms.deadline is None


def test_cancelled_alarms_take_no_room() -> None:
    alarms = Alarms()
    kept = alarms.set(0.5, lambda: None)
    for number in range(10_000):
        alarms.cancel(alarms.set(1.0 + number, lambda: None))
    assert len(alarms) == 1
    assert len(alarms._heap) < 10
    assert kept.action is not None
