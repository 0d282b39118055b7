"""Poison-record bisection: finds the one record at which work fails at each attempt, so that none stops a partition.

Whatever the error is: a record that the broker refuses because `routed` has stricter limits than the topic it comes
from, one that our own code can't cope with, one that takes more memory than there is.
"""

from __future__ import annotations

from dataclasses import dataclass

from aiokafka.errors import (
    CorruptRecordException,
    InvalidTimestampError,
    KafkaError,
    MessageSizeTooLargeError,
    PolicyViolationError,
    RecordListTooLargeError,
    UnknownError,
    UnsupportedForMessageFormatError,
)

REFUSED, UNPROCESSABLE = "refused-by-broker", "unprocessable"
"""Reasons of dead letters."""

_REFUSALS = (
    *(InvalidTimestampError, MessageSizeTooLargeError, RecordListTooLargeError),
    *(CorruptRecordException, PolicyViolationError, UnsupportedForMessageFormatError),
)
_NARROWING = 10
_REPEATS = 2
_REPEATS_OF_UNKNOWN = 5
_MOST_IN_A_ROW = 100


class DefectError(Exception):
    """Every record fails, one after the other: that is no bad record. The message is one line that says what to do."""


@dataclass(frozen=True, slots=True)
class Suspects:
    """Records that were taken and are not known to be through: first offset, offset after the last, number."""

    first: int
    after: int
    records: int


@dataclass(frozen=True, slots=True)
class _Level:
    first: int
    after: int
    size: int


class Bisection:
    """What is known of one partition's poison records, over all sessions of this process.

    Suspects are tried again in parts of a tenth, those of a part that fails likewise, until it is one record: that one
    is `banned`, and goes to `dead-letters`. Behind the end of a part that failed its neighbours go at their size again.
    """

    def __init__(self) -> None:
        self._levels: list[_Level] = []
        self._banned: dict[int, tuple[str, str]] = {}
        self._doubted: set[int] = set()
        self._last: tuple[int, type[Exception]] | None = None
        self._repeats = 0
        self._in_a_row = 0

    def careful(self, position: int) -> bool:
        """Whether what is taken from `position` on must be through before more is taken."""
        self._forget_before(position)
        return bool(self._levels) and self._levels[-1].first <= position

    def most(self, position: int, wanted: int) -> int:
        """Most records to take from `position` on."""
        if self.careful(position):
            return min(wanted, self._levels[-1].size)
        return min(wanted, self._levels[-1].first - position) if self._levels else wanted

    def _forget_before(self, position: int) -> None:
        while self._levels and position >= self._levels[-1].after:
            self._levels.pop()

    @property
    def bans(self) -> bool:
        """Whether any record is banned."""
        return bool(self._banned)

    def banned(self, offset: int) -> tuple[str, str] | None:
        """Reason and detail of the dead letter, if the record failed all by itself."""
        return self._banned.get(offset)

    def doubted(self, offset: int) -> bool:
        """Whether the batch here could not be read before; from now on it is."""
        known = offset in self._doubted
        self._doubted.add(offset)
        return known

    def committed(self, offset: int) -> None:
        """Nothing before this offset is read again, so what was known of it may be forgotten."""
        if self._banned or self._doubted:
            self._banned = {banned: why for banned, why in self._banned.items() if banned >= offset}
            self._doubted = {doubted for doubted in self._doubted if doubted >= offset}

    def passed(self) -> None:
        """Records that were taken carefully are through."""
        self._in_a_row = 0

    def failed(self, suspects: Suspects | None, error: Exception) -> bool:
        """Takes note of a failure; whether a record may be to blame, and it is worth while to begin again.

        Errors that may pass by themselves are not counted. Raises `DefectError` if there is nothing left to leave out.
        """
        needed = _repeats_needed(error)
        if suspects is None or needed is None:
            return False
        last = (suspects.first, type(error))
        self._repeats = self._repeats + 1 if last == self._last else 1
        self._last = last
        if self._repeats >= needed or (suspects.records > 1 and self.careful(suspects.first)):
            self._narrow(suspects, error)
        return True

    def _narrow(self, suspects: Suspects, error: Exception) -> None:
        what = f"{type(error).__name__}: {error}"
        if suspects.records > 1:
            size = max(1, suspects.records // _NARROWING)
            self._levels.append(_Level(suspects.first, suspects.after, size))
        elif suspects.first in self._banned:
            raise DefectError(f"even the dead letter for the record at offset {suspects.first} fails: {what}")
        elif self._in_a_row >= _MOST_IN_A_ROW:
            raise DefectError(
                f"{self._in_a_row} records one after the other went to dead-letters, and that at offset "
                f"{suspects.first} fails too: {what}; this is no bad record: look for a defect or a wrong setting"
            )
        else:
            self._in_a_row += 1
            self._banned[suspects.first] = (REFUSED if isinstance(error, _REFUSALS) else UNPROCESSABLE, what)


def _repeats_needed(error: Exception) -> int | None:
    """How often an error must come at one place to count; None if it says nothing of records."""
    if isinstance(error, _REFUSALS):
        return 1
    if isinstance(error, UnknownError):  # also what the client has no name for
        return _REPEATS_OF_UNKNOWN
    return None if isinstance(error, KafkaError | OSError | TimeoutError) else _REPEATS
