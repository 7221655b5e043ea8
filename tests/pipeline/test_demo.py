"""The demo of the pipeline says what it waits for, when that takes long."""

from router.pipeline.demo import Wait


def test_a_wait_is_told_each_ten_seconds_with_what_has_come_meanwhile() -> None:
    now, count, lines = [100.0], [0], list[str]()
    wait = Wait(lines.append, lambda: now[0])
    wait.begin(lambda: f"{count[0]} messages")
    for second in range(25):
        now[0], count[0] = 100.0 + second, second
        wait.tell()
    assert lines == ["  waiting for 10 s: 10 messages", "  waiting for 20 s: 20 messages"]


def test_a_wait_that_ends_soon_is_not_told() -> None:
    now, lines = [0.0], list[str]()
    wait = Wait(lines.append, lambda: now[0])
    for second in range(0, 60, 6):
        now[0] = float(second)
        wait.tell()
        wait.begin("a router to start")
    assert not lines
