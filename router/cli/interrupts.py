"""Ctrl-C and SIGTERM for commands that run until they are told to end.

Python handles a signal between two steps of its own. One that comes behind the last of them before
a system call is not seen until that call returns, and an answer may be long in coming. Trio is
woken by each signal; commands that wait by themselves have a timer end each of their waits soon.
"""

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

INTERRUPTED: Final = 128 + signal.SIGINT
"""Exit code of a command that Ctrl-C ends before its time, as a shell has it."""

LOOK_SECONDS: Final = 0.2
"""How late Ctrl-C may be seen."""


@contextmanager
def until_interrupted() -> Iterator[None]:
    """Ends the block with Ctrl-C, whenever that comes; it comes to the main thread alone."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    former = signal.signal(signal.SIGALRM, lambda number, frame: None)
    signal.setitimer(signal.ITIMER_REAL, LOOK_SECONDS, LOOK_SECONDS)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, former)


def until_told() -> Callable[[], bool]:
    """Returns what is true until this process gets SIGTERM or SIGINT; asked often."""
    is_told = False

    def tell(number: int, frame: object) -> None:
        nonlocal is_told
        is_told = True

    signal.signal(signal.SIGTERM, tell)
    signal.signal(signal.SIGINT, tell)
    return lambda: not is_told
