"""Partials one by one: as batches of one, and by rules that know of no batches and columns."""

from __future__ import annotations

from typing import Any

from keygrouping.aggregate.publishing import published
from keygrouping.job import JobSpec
from keygrouping.partial import Partial, RecordError, Result
from keygrouping_aggregator.windows import OpenWindows
from keygrouping_service.kafka.partials import check, states_of
from keygrouping_service.records.columns import Columns


def add(windows: OpenWindows, offset: int, key: bytes | None, value: bytes | None) -> bool:
    """Merges one partial; False if it is passed over. Raises `RecordError` if it is refused."""
    added = windows.add_all(Columns.of("partials", 0, [(offset, 0, key, value, ())]))
    for _, why in added.refused:
        raise RecordError(why)
    return added.merged == 1


class OneByOne:
    """What `OpenWindows` has to be: the partials of each group in a list, all of which are merged at the end."""

    def __init__(self, job: JobSpec, closed: int, clock_ms: int) -> None:
        self._job = job
        self._closed = closed
        self._clock_ms = clock_ms
        self._windows: dict[int, dict[bytes, list[tuple[Partial, list[Any]]]]] = {}
        self._seen: set[tuple[bytes, object]] = set()
        self._offsets: dict[int, int] = {}

    def add(self, offset: int, key: bytes | None, value: bytes | None) -> bool:
        """As the function of this name."""
        partial = Partial.decode(value)
        check(key, partial, self._job, self._clock_ms)
        assert key is not None
        if partial.end <= self._closed:
            return False
        states = states_of(partial, self._job.aggregates)
        self._offsets.setdefault(partial.start, offset)
        group = self._windows.setdefault(partial.start, {}).setdefault(key, [])
        if (key, partial.identity) in self._seen:
            return False
        self._seen.add((key, partial.identity))
        group.append((partial, states))
        try:
            self._result(key, group)
        except RecordError:
            group.pop()
            raise
        return True

    def held(self, position: int) -> tuple[int, int, int]:
        """Windows, groups, and from which offset a restart must read."""
        groups = sum(map(len, self._windows.values()))
        return len(self._windows), groups, min(self._offsets.values(), default=position)

    def close(self, time: int) -> list[Result]:
        """The results of windows that end by then."""
        self._closed = time
        due = sorted(start for start in self._windows if start + self._job.window_ms <= time)
        for start in due:
            del self._offsets[start]
        return [self._result(key, group) for start in due for key, group in self._windows.pop(start).items()]

    def _result(self, key: bytes, group: list[tuple[Partial, list[Any]]]) -> Result:
        first, states = group[0]
        events, weight, hashes = first.events, first.weight, first.hashes
        for partial, given in group[1:]:
            states = [self._joined(*each) for each in zip(self._job.aggregates, states, given, strict=True)]
            events, weight, hashes = events + partial.events, weight + partial.weight, hashes + partial.hashes
        values = {
            aggregate.name: published(aggregate, aggregate.finish, state)[0]
            for aggregate, state in zip(self._job.aggregates, states, strict=True)
        }
        return Result(
            key, first.start, first.end, events, weight, final=True, aggregates=values, receipt=hashes % 2**128
        )

    @staticmethod
    def _joined(aggregate: Any, left: Any, right: Any) -> Any:
        try:
            return aggregate.merge(left, right)
        except Exception as error:
            raise RecordError(aggregate.failed(error)) from error
