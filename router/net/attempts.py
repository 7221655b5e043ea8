"""Failed logins: counted by source, and answered with growing delay.

Pure bookkeeping. A source's first failure is answered after ``FIRST_SECONDS``, each further one
after twice as long, up to ``LONGEST_SECONDS``; after ``FORGET_SECONDS`` without a failure the count
starts over. While ``WAITING_MOST`` answers wait, no more connections of the source are served, so
guessing on many connections at a time is no faster. A successful login never waits.
"""

from typing import Final

import attrs

FIRST_SECONDS: Final = 0.25

LONGEST_SECONDS: Final = 8.0
"""Below what a client waits for an answer."""

FORGET_SECONDS: Final = 300.0

WAITING_MOST: Final = 16
"""Answers to one source: with the longest pause, two guesses a second."""

SOURCES_MOST: Final = 4096
"""Remembered; the one that failed longest ago goes when one more comes."""


@attrs.define(eq=False)
class _Record:
    failures: int = 0
    failed_at: float = 0.0
    answers_at: list[float] = attrs.field(factory=list)


@attrs.define(eq=False)
class Attempts:
    """Failed logins by source.

    Attributes:
        total: of all sources, ever.
    """

    total: int = attrs.field(default=0, init=False)
    _records: dict[str, _Record] = attrs.field(factory=dict, init=False)

    def failed(self, source: str, now: float) -> float:
        """Records a failed login.

        Returns:
            When it is to be answered.
        """
        record = self._records.pop(source, None)
        if record is None or now - record.failed_at > FORGET_SECONDS:
            record = _Record()
        self._records[source] = record
        if len(self._records) > SOURCES_MOST:
            del self._records[next(iter(self._records))]
        doublings = min(record.failures, 16)
        record.failures += 1
        self.total += 1
        record.failed_at = now
        answer_at = now + min(LONGEST_SECONDS, FIRST_SECONDS * (1 << doublings))
        record.answers_at = [at for at in record.answers_at if at > now]
        record.answers_at.append(answer_at)
        return answer_at

    def count(self, source: str) -> int:
        """Returns how many logins of a source have failed since it last began anew."""
        record = self._records.get(source)
        return 0 if record is None else record.failures

    def recent(self, most: int, now: float) -> list[tuple[str, int]]:
        """Returns sources with failures that are not forgotten, those with most of them first.

        Args:
            most: how many sources.
            now: on the clock of ``failed``.
        """
        counts = [
            (source, record.failures)
            for source, record in self._records.items()
            if now - record.failed_at <= FORGET_SECONDS
        ]
        return sorted(counts, key=lambda each: -each[1])[:most]

    def refusal(self, source: str, now: float) -> str | None:
        """Returns why a source is not served for now; None: it is."""
        record = self._records.get(source)
        if record is None:
            return None
        waiting = sum(at > now for at in record.answers_at)
        if waiting < WAITING_MOST:
            return None
        return f"{waiting} failed logins from {source} wait for their answers"
