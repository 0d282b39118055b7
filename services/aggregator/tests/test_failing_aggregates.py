"""Code of an aggregate that is not the library's may fail: at a partial or at a result, and at nothing else."""

from collections.abc import Iterable, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar

import orjson
import pytest
from keygrouping.aggregate import Aggregate, NumberField, Shape
from keygrouping.job import JobSpec
from keygrouping.partial import Partial, RecordError, Result
from keygrouping_aggregator import metrics
from keygrouping_aggregator.settings import AggregatorSettings
from keygrouping_aggregator.windows import OpenWindows
from keygrouping_aggregator.work import Closer
from keygrouping_service.kafka.progress import END, MIN_TIME, Committed, Progress
from keygrouping_service.records.columns import Columns
from one_by_one import add


class Moody(Aggregate):
    """A sum that fails at some numbers: 13 on its way in, 100 and more when it is merged, 7 when it is published."""

    shape: ClassVar[Shape | None] = "integer"
    field: NumberField

    def initial(self) -> Any:
        return 0

    def add_many(self, state: Any, values: Iterable[Any]) -> Any:
        return state + sum(value or 0 for value in values)

    def merge(self, left: Any, right: Any) -> Any:
        if left + right >= 100:
            raise ValueError("too much")
        return left + right

    def decode(self, data: Any) -> Any:
        return {13: {}}.get(data, data) + 0

    def finish(self, state: Any) -> Any:
        if state == 8:
            return {state}
        return 1 // (state - 7) if state == 7 else state


JOB = JobSpec(window_ms=100, aggregates=(Moody(name="a", field="x"), Moody(name="b", field="x")))


def partial(first: int, a: Any, b: Any = 1) -> bytes:
    return Partial(0, 0, 100, 1, 1, first, first, 0, {"a": a, "b": b}).encode()


def test_an_error_at_a_partial_is_said_of_the_partial_and_changes_no_result() -> None:
    windows = OpenWindows(JOB, MIN_TIME)
    assert add(windows, 0, b"k", partial(0, 60))
    for first, a, b, what in ((1, 13, 1, "TypeError"), (2, 60, 1, "ValueError: too much"), (3, 1, 99, "too much")):
        with pytest.raises(RecordError, match=rf"aggregate '[ab]' \(.*:Moody\) raises .*{what}"):
            add(windows, first, b"k", partial(first, a, b))
    assert not add(windows, 4, b"k", partial(2, 60))  # the same again is told once
    assert add(windows, 5, b"k", partial(5, 2, 3))
    (result,) = windows.close(END)
    assert (result.events, result.aggregates) == (2, {"a": 62, "b": 4})
    assert windows.take_failures() == []


def test_an_error_at_a_result_is_said_of_the_result_whose_value_is_null() -> None:
    windows = OpenWindows(JOB, MIN_TIME)
    for offset, (key, a, b) in enumerate([(b"bad", 7, 5), (b"good", 6, 1), (b"worse", 7, 8)], 40):
        assert add(windows, offset, key, partial(offset, a, b))
    results = {result.key: dict(result.aggregates) for result in windows.close(END)}
    assert results == {b"bad": {"a": None, "b": 5}, b"good": {"a": 6, "b": 1}, b"worse": {"a": None, "b": None}}
    bad, worse = windows.take_failures()
    assert (bad.result.key, bad.offset) == (b"bad", 40)
    assert bad.detail.startswith(f"aggregate 'a' ({__name__}:Moody) raises ZeroDivisionError: ")
    assert "; aggregate 'b'" in worse.detail and "is not JSON serializable" in worse.detail
    assert windows.take_failures() == []


class Owned:
    """A partition whose transactions succeed at once."""

    partition = 3
    topic_id = "t" * 22
    progress = Progress()

    def __init__(self) -> None:
        self.committed = Committed(0, self.progress, self.topic_id)
        self.position = 1
        self.written: list[Any] = []

    def outbox(self) -> "Owned":
        return self

    def append(self, topic: str, *record: Any) -> None:
        self.written.append((topic, *record))

    def add(self, topic: str, partitions: Any, timestamp: int, keys: Sequence[bytes], values: Sequence[bytes]) -> None:
        rows = zip(partitions.tolist(), keys, values, strict=True)
        self.written += [(topic, partition, timestamp, key, value) for partition, key, value in rows]

    async def submit(self, _: object, offset: int, progress: Progress, committed: Any) -> None:
        self.committed = Committed(offset, progress, self.topic_id)
        committed()


async def test_such_a_result_is_a_dead_letter_too_in_the_same_transaction() -> None:
    settings = AggregatorSettings(bootstrap_servers="127.0.0.1:1", job=JOB)
    owned: Any = Owned()
    finals: Any = SimpleNamespace(written=lambda _: None)
    closer = Closer(settings, owned, 1, finals)
    dead = metrics.DEAD.labels("aggregate-failed")
    before = dead._value.get()
    await closer.take(Columns.of("partials", 3, [(0, 1, b"bad", partial(0, 7), ())]))
    closer._watermark = SimpleNamespace(advance=lambda *_: Progress(1000))  # type: ignore[assignment]
    await closer.write(None)
    result, letter = owned.written
    assert (result[0], result[3]) == (settings.results_topic, b"bad|0")
    assert (letter[0], letter[3], letter[4]) == (settings.dead_letters_topic, b"bad|0", result[4])
    assert Result.decode(letter[4]).aggregates == {"a": None, "b": 1}
    headers = dict(letter[5])
    assert headers["keygrouping-reason"] == b"aggregate-failed"
    assert b"raises ZeroDivisionError" in headers["keygrouping-detail"]
    assert (headers["keygrouping-topic"], headers["keygrouping-partition"]) == (settings.partials_topic.encode(), b"3")
    assert dead._value.get() == before + 1
    assert orjson.loads(result[4])["events"] == 1
