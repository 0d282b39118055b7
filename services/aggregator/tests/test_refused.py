from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from keygrouping.partial import Partial
from keygrouping_aggregator import work
from keygrouping_aggregator.settings import AggregatorSettings
from keygrouping_aggregator.work import Closer
from keygrouping_service.kafka.progress import MIN_TIME, Committed, Progress
from keygrouping_service.records.columns import Columns
from keygrouping_service.records.record import Record

JOB = '{"window": 100, "lateness": 0, "aggregates": [{"name": "n", "op": "count"}]}'


class Owned:
    """A partition whose transactions succeed at once."""

    partition = 0
    topic_id = "t" * 22
    progress = Progress()

    def __init__(self, offset: int = 0) -> None:
        self.committed = Committed(offset, self.progress, self.topic_id)
        self.position = offset
        self.written: list[tuple[str, bytes | None]] = []

    def outbox(self) -> "Owned":
        return self

    def append(self, topic: str, partition: int, timestamp: int, key: bytes | None, *_: object) -> None:
        del partition, timestamp
        self.written.append((topic, key))

    def add(self, topic: str, partitions: object, timestamp: int, keys: Sequence[bytes], values: object) -> None:
        del partitions, timestamp, values
        self.written += [(topic, key) for key in keys]

    async def submit(self, _: object, offset: int, progress: Progress, committed: Any) -> None:
        self.committed = Committed(offset, progress, self.topic_id)
        committed()


def record(offset: int, key: bytes, start: int | None) -> Record:
    value = b"{" if start is None else Partial(0, start, start + 100, 1, 1, offset, offset, 0, {"n": 1}).encode()
    return Record("partials", 0, offset, 1, key, value)


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> AggregatorSettings:
    monkeypatch.setenv("KEYGROUPING_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("KEYGROUPING_JOB", JOB)
    return AggregatorSettings()


def closer(settings: AggregatorSettings, owned: Any) -> Closer:
    finals: Any = SimpleNamespace(written=lambda _: None)
    return Closer(settings, owned, 1, finals)


async def read(closer: Closer, owned: Owned, records: list[Record]) -> None:
    await closer.take(Columns.of("partials", 0, [record[2:] for record in records]))
    owned.position = records[-1].offset + 1
    await closer.write(None)


RECORDS = [record(0, b"refused-0", None), record(1, b"a", 0), record(2, b"refused-2", None), record(3, b"b", 100)]


async def test_a_refused_partial_is_told_once_however_often_its_window_is_read_again(
    settings: AggregatorSettings,
) -> None:
    owned: Any = Owned()
    await read(closer(settings, owned), owned, RECORDS)
    assert owned.written == [("dead-letters", b"refused-0")]
    assert owned.committed.offset == 1
    again: Any = Owned(owned.committed.offset)
    restarted = closer(settings, again)
    await read(restarted, again, RECORDS[1:])
    assert again.written == []
    restarted._watermark = SimpleNamespace(advance=lambda *_: Progress(1000))  # type: ignore[assignment]
    await restarted.write(None)
    assert again.written == [("results", b"a|0"), ("results", b"b|100"), ("dead-letters", b"refused-2")]
    assert again.committed.offset == 4


async def test_more_refused_partials_than_memory_is_given_are_told_at_once(
    settings: AggregatorSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(work, "_MOST_UNUSABLE", 3)
    owned: Any = Owned()
    open_window = record(0, b"a", 0)
    await read(closer(settings, owned), owned, [open_window, *(record(n, b"%d" % n, None) for n in range(1, 5))])
    assert owned.written == [("dead-letters", b"%d" % n) for n in range(1, 5)]
    assert owned.committed.offset == 0
    assert owned.committed.progress.time == MIN_TIME
