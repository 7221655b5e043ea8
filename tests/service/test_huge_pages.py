"""Which memory a worker asks the system to keep in huge pages."""

import ctypes
import errno
import mmap
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from router.service.huge_pages import (
    FULL_SHARE,
    HUGE_OCTETS,
    LOOK_SECONDS,
    PAGES,
    STEP_OCTETS,
    VARIABLE,
    System,
    collapse_used,
    is_wanted,
    keep_in_huge_pages,
    ranges,
)

FULL = PAGES
MEBI = 1 << 20


class Pretended(System):
    """A system whose ranges are given: their used pages, and what it says to collapsing them."""

    def __init__(self, used: dict[int, int], errors: dict[int, int] | None = None) -> None:
        self.used = used
        self.errors = errors or {}
        self.collapsed: list[int] = []
        self.resident: Callable[[], int] = lambda: 0

    def mappings(self) -> list[str]:
        """One mapping of a huge page for each range."""
        return [
            f"{at * HUGE_OCTETS:x}-{(at + 1) * HUGE_OCTETS:x} rw-p 00000000 00:00 0 \n"
            for at in self.used
        ]

    def resident_octets(self) -> int:
        return self.resident()

    def used_pages(self, address: int) -> int:
        return self.used[address // HUGE_OCTETS]

    def collapse(self, address: int) -> int:
        at = address // HUGE_OCTETS
        if not self.errors.get(at):
            self.collapsed.append(at)
        return self.errors.get(at, 0)


def test_ranges_are_whole_huge_pages_of_memory_without_a_file() -> None:
    mappings = [
        "00400000-00800000 r-xp 00000000 08:01 7                  /usr/bin/python\n",
        "00800000-00c00000 rw-p 00000000 08:01 7                  /usr/bin/python\n",
        "00e01000-01601000 rw-p 00000000 00:00 0                  [heap]\n",
        "7f0000100000-7f00002fffff rw-p 00000000 00:00 0 \n",
        "7f0000400000-7f0000800000 rw-p 00000000 00:00 0 \n",
        "7f0000a00000-7f0000e00000 ---p 00000000 00:00 0 \n",
        "7f0001000000-7f0001400000 rw-s 00000000 00:01 9          /dev/zero (deleted)\n",
        "7ffd00000000-7ffd00400000 rw-p 00000000 00:00 0          [stack]\n",
    ]
    assert [hex(each) for each in ranges(mappings)] == [
        "0x1000000",
        "0x1200000",
        "0x1400000",
        "0x7f0000400000",
        "0x7f0000600000",
    ]


def test_only_what_is_in_use_is_collapsed() -> None:
    system = Pretended({1: FULL, 2: int(FULL_SHARE * FULL) - 1, 3: 0, 4: FULL - 1})
    assert collapse_used(system, set())
    assert system.collapsed == [1, 4]


@pytest.mark.parametrize("error", [errno.EAGAIN, errno.ENOMEM, errno.EBUSY])
def test_where_no_huge_page_is_left_the_rest_is_asked_for_another_time(error: int) -> None:
    system = Pretended({1: FULL, 2: FULL, 3: FULL}, {2: error})
    assert collapse_used(system, set())
    assert system.collapsed == [1]


def test_a_range_that_cannot_be_one_keeps_no_other_from_it() -> None:
    system = Pretended({1: FULL, 2: FULL}, {1: errno.EINVAL})
    assert collapse_used(system, set())
    assert system.collapsed == [2]
    assert collapse_used(Pretended({}), set())
    refusing = Pretended({1: FULL, 2: FULL}, dict.fromkeys((1, 2), errno.EINVAL))
    assert not collapse_used(refusing, set())


def test_what_was_asked_for_is_not_again_while_it_is_there() -> None:
    system, known = Pretended({1: FULL, 2: 0}), set[int]()
    for used, collapsed in (({}, [1]), ({2: FULL}, [1, 2]), ({}, [1, 2])):
        system.used |= used
        assert collapse_used(system, known)
        assert system.collapsed == collapsed
    del system.used[1]
    assert collapse_used(system, known)
    system.used[1] = FULL
    assert collapse_used(system, known)
    assert system.collapsed == [1, 2, 1]


async def test_it_looks_when_memory_has_changed_until_the_system_refuses(
    autojump_clock: MockClock,
) -> None:
    octets = [50, 51, 53, 53, 53, 40, 40, 60, 90]
    system, looked, began = Pretended({1: FULL}), [], trio.current_time()
    measured = iter(octets)
    system.resident = lambda: next(measured) * MEBI
    assert STEP_OCTETS == 2 * MEBI

    async def run(look: Callable[[System, set[int]], bool], whom: System, known: set[int]) -> bool:
        looked.append(round((trio.current_time() - began) / LOOK_SECONDS))
        system.used, system.errors = {len(looked): FULL}, {4: errno.EINVAL}
        return look(whom, known)

    await keep_in_huge_pages(system, run)
    assert looked == [1, 3, 6, 8]


def test_the_system_of_this_machine_keeps_what_is_there() -> None:
    octets = 4 * HUGE_OCTETS
    with mmap.mmap(-1, octets, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        content = bytes(range(256)) * (octets // 256)
        memory[:] = content
        begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))

        class Own(System):
            """Of this process only that."""

            def mappings(self) -> list[str]:
                return [f"{begin:x}-{begin + octets:x} rw-p 00000000 00:00 0 \n"]

        system = Own()
        inside = list(ranges(system.mappings()))
        assert len(inside) >= 3
        assert {*map(system.used_pages, inside)} == {PAGES}
        collapse_used(system, set())
        assert memory[:] == content
        assert {*map(system.used_pages, inside)} == {PAGES}
        assert system.used_pages(1 << 46) == 0
    assert system.resident_octets()


@pytest.mark.parametrize("said", [None, "on", "off"])
@pytest.mark.parametrize("setting", ["always [madvise] never", "always madvise [never]", None])
def test_they_are_asked_for_where_neither_the_environment_nor_the_system_forbids_it(
    setting: str | None, said: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    if said is not None:
        monkeypatch.setenv(VARIABLE, said)
    enabled = tmp_path / "enabled"
    if setting is not None:
        enabled.write_text(f"{setting}\n")
    assert is_wanted(enabled) is (said != "off" and setting == "always [madvise] never")
