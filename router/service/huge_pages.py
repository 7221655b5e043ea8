"""Has the system keep what a worker uses most in huge pages.

A worker touches some megabytes for each batch of deliveries, in pages of 4 KiB each, and whenever
another process has had its core the processor has to look up again where they are: in a virtual
machine each look-up is a walk through two tables. In pages of 2 MiB the same takes a few look-ups.
The system makes such pages by itself only where its administrator says so (``transparent_hugepage``
is ``always``), so a worker asks for them (``MADV_COLLAPSE``, Linux 6.1): for ranges of which nine
tenths are in use anyway, so that it becomes hardly larger. It looks for them when its memory has
changed, in a thread, because making one takes the system some milliseconds at worst. What has been
freed goes back to the system as before.

Where the system knows nothing of that, nothing is asked for any more. Where its setting is
``never``, or the environment has ``ROUTER_HUGE_PAGES=off``, nothing is asked for at all.
"""

import ctypes
import errno
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Final

import trio

VARIABLE: Final = "ROUTER_HUGE_PAGES"

SETTING: Final = Path("/sys/kernel/mm/transparent_hugepage/enabled")
"""``MADV_COLLAPSE`` does not ask it."""

HUGE_OCTETS: Final = 2 << 20

LOOK_SECONDS: Final = 2.0

STEP_OCTETS: Final = 2 << 20
"""So much more or less must be resident than at the last look."""

FULL_SHARE: Final = 0.9
"""Part of a range that must be in use."""

_COLLAPSE: Final = 25  # MADV_COLLAPSE of <linux/mman.h>
_PAGE_OCTETS: Final = os.sysconf("SC_PAGESIZE")
PAGES: Final = HUGE_OCTETS // _PAGE_OCTETS
"""Small pages of a huge one."""

_NOT_NOW: Final = (errno.EAGAIN, errno.ENOMEM, errno.EBUSY)
"""There is no huge page left at present."""

_MAPPING: Final = re.compile(r"([0-9a-f]+)-([0-9a-f]+) rw-p [0-9a-f]+ 00:00 0 *(\[heap\])?\n")


def ranges(mappings: Iterable[str]) -> Iterator[int]:
    """Yields the addresses of ranges that may be one huge page, of memory without a file.

    Args:
        mappings: lines of ``/proc/self/maps``.
    """
    for line in mappings:
        found = _MAPPING.fullmatch(line)
        if found is not None:
            begin, end = int(found[1], 16), int(found[2], 16)
            first = -(-begin // HUGE_OCTETS) * HUGE_OCTETS
            yield from range(first, end - HUGE_OCTETS + 1, HUGE_OCTETS)


class System:
    """What is asked of the system."""

    def __init__(self) -> None:
        """Finds the calls in the C library, which lets other threads go on meanwhile."""
        self._library = ctypes.CDLL(None, use_errno=True)
        self._room = (ctypes.c_ubyte * PAGES)()

    def mappings(self) -> list[str]:
        """Returns what ``ranges`` takes."""
        with Path("/proc/self/maps").open() as lines:
            return list(lines)

    def resident_octets(self) -> int:
        """Returns how much memory the process has."""
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_OCTETS

    def used_pages(self, address: int) -> int:
        """Returns how many small pages of a range are in use; 0: it is not there any more."""
        where, octets = ctypes.c_void_p(address), ctypes.c_size_t(HUGE_OCTETS)
        if self._library.mincore(where, octets, self._room):
            return 0
        return bytes(self._room).count(1)

    def collapse(self, address: int) -> int:
        """Has a range be one huge page; returns the error's number, 0: it is one."""
        where, octets = ctypes.c_void_p(address), ctypes.c_size_t(HUGE_OCTETS)
        return ctypes.get_errno() if self._library.madvise(where, octets, _COLLAPSE) else 0


def collapse_used(system: System, known: set[int]) -> bool:
    """Makes huge pages of all ranges that are in use.

    Args:
        system: is asked.
        known: ranges that were asked for before, and are not again while they are there.

    Returns:
        whether the system can make any.
    """
    found = list(ranges(system.mappings()))
    known.intersection_update(found)
    made = refused = 0
    for address in found:
        if address in known or system.used_pages(address) < FULL_SHARE * PAGES:
            continue
        error = system.collapse(address)
        if error in _NOT_NOW:
            return True
        known.add(address)
        made += not error
        refused += bool(error)  # this range alone, perhaps
    return bool(made or not refused)


Run = Callable[[Callable[[System, set[int]], bool], System, set[int]], Awaitable[bool]]


_in_thread: Final = partial(trio.to_thread.run_sync, abandon_on_cancel=True)


async def keep_in_huge_pages(system: System, run: Run = _in_thread) -> None:
    """Looks for ranges whenever memory has changed, until cancelled or refused.

    Args:
        system: is asked.
        run: runs a function in a thread.
    """
    seen, known = 0, set[int]()
    while True:
        await trio.sleep(LOOK_SECONDS)
        octets = system.resident_octets()
        if abs(octets - seen) < STEP_OCTETS:
            continue
        seen = octets
        if not await run(collapse_used, system, known):
            return


def is_wanted(setting: Path = SETTING) -> bool:
    """Returns whether this system may have them, and neither it nor the environment forbids it.

    Args:
        setting: says by its word in brackets what the administrator wants.
    """
    if not setting.exists() or os.environ.get(VARIABLE) == "off":
        return False
    return "[never]" not in setting.read_text()
