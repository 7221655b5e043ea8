"""Flushes a file in a thread of its own, so that the log's process reads and answers meanwhile.

One flush at a time: whoever starts one waits for ``descriptor`` to become readable, and takes its
result, before the next. The thread does nothing else; while the system flushes it holds no lock of
the interpreter.
"""

import contextlib
import os
import select
import threading
from collections.abc import Callable
from queue import SimpleQueue


class Flusher:
    """A thread that flushes.

    Attributes:
        descriptor: readable as soon as a flush has ended.
    """

    def __init__(self) -> None:
        """Starts the thread, which ends with the process or by ``close``."""
        self.descriptor, self._writable = os.pipe()
        os.set_blocking(self.descriptor, False)
        self._orders: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="flush", daemon=True)
        self._thread.start()

    def start(self, flush: Callable[[], None]) -> None:
        """Has the thread flush."""
        self._orders.put(flush)

    def take(self) -> bool:
        """Returns whether the flush has ended.

        Raises:
            OSError: it has failed.
        """
        try:
            os.read(self.descriptor, 1)
        except BlockingIOError:
            return False
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure
        return True

    def wait(self) -> None:
        """Returns when the flush has ended."""
        select.select([self.descriptor], [], [])

    def close(self) -> None:
        """Ends the thread; no flush is under way."""
        self._orders.put(None)
        self._thread.join()
        for descriptor in (self.descriptor, self._writable):
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _run(self) -> None:
        while (flush := self._orders.get()) is not None:
            try:
                flush()
            except BaseException as error:  # noqa: BLE001  whoever takes the result raises it
                self._failure = error
            os.write(self._writable, b"\0")
