"""Partials, each once: what everything that is said of a pipeline's balance is counted from. No I/O."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from keygrouping.job import JobSpec
from keygrouping.partial import Partial
from keygrouping_service.kafka.partials import check
from keygrouping_service.records.record import Record

from keygrouping_observer.identities import Identities, Source
from keygrouping_observer.offsets import Look


class Counted(NamedTuple):
    """A partial that counts, and its key."""

    key: bytes
    partial: Partial


class Counting:
    """Makes partials of a job's records, and tells those that have been counted before.

    `floors` are those of an earlier process, see `Identities`.
    """

    def __init__(self, job: JobSpec, floors: Mapping[Source, int] | None = None) -> None:
        self._job = job
        self._identities = Identities(floors)
        self._ahead: Look | None = None

    def count(self, record: Record) -> Counted | None:
        """The partial of a record of `partials`; None if it has been counted before. RecordError if there is none."""
        partial = Partial.decode(record.value)
        check(record.key, partial, self._job, int(time.time() * 1000))
        key = record.key
        assert key is not None
        return Counted(key, partial) if self._identities.is_new(key, partial, record.partition, record.offset) else None

    def look(self, look: Look) -> None:
        """Takes in a look at offsets. One is followed at a time: a reader that lags would never reach the newest."""
        self._ahead = self._ahead or look

    def forget(self, has_counted: Callable[[Mapping[int, int]], bool]) -> None:
        """Forgets identities that can't come again; `has_counted` says whether all before these offsets have been."""
        if self._ahead is not None and has_counted(self._ahead.ends):
            self._identities.raise_floors(self._ahead.committed, self._ahead.topics)
            self._ahead = None

    @property
    def floors(self) -> dict[Source, int]:
        """What another process goes on from."""
        return dict(self._identities.floors)

    def oldest(self) -> dict[int, int]:
        """By partition of `partials`: the first offset from which another process has to read for that."""
        return self._identities.oldest()
