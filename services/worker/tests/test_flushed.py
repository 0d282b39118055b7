from collections.abc import Callable, Sequence
from typing import Any

import orjson
from keygrouping_service.kafka.progress import Committed, Progress
from keygrouping_service.records.columns import Columns, Row
from keygrouping_worker import metrics
from keygrouping_worker.settings import WorkerSettings
from keygrouping_worker.work import Flusher

JOB = '{"aggregates": [{"name": "total", "op": "sum", "field": "x"}]}'


class Owned:
    """A partition whose transactions wait until the test commits them."""

    partition = 0
    topic_id = "t" * 22
    progress = Progress()
    committed = Committed(0, progress, topic_id)
    position = 3

    def __init__(self) -> None:
        self.written: list[str] = []
        self.under_way: list[Callable[[], None]] = []

    def outbox(self) -> "Owned":
        return self

    def append(self, topic: str, *_: object) -> None:
        self.written.append(topic)

    def add(self, topic: str, partitions: object, timestamp: int, keys: Sequence[bytes], values: object) -> None:
        del partitions, timestamp, values
        self.written += [topic] * len(keys)

    async def submit(self, *what: Any) -> None:
        self.under_way.append(what[-1])


def event(offset: int, value: bytes) -> Row:
    return offset, 1, b"k", value, ()


def counts() -> list[float]:
    shown = [metrics.EVENTS, metrics.PARTIALS, metrics.FLUSHES]
    dead = metrics.DEAD.labels("invalid-json")
    return [counter._value.get() for counter in (*shown, dead)]


async def test_what_is_done_counts_when_it_is_committed_as_another_worker_does_the_rest_again(monkeypatch: Any) -> None:
    monkeypatch.setenv("KEYGROUPING_BOOTSTRAP_SERVERS", "127.0.0.1:1")
    monkeypatch.setenv("KEYGROUPING_JOB", JOB)
    owned: Any = Owned()
    before = counts()
    flusher = Flusher(WorkerSettings(), owned, 1)
    rows = [event(0, orjson.dumps({"x": 1})), event(1, b"{"), event(2, orjson.dumps({"x": 2}))]
    await flusher.take(Columns.of("routed", 0, rows))
    await flusher.write(None)
    assert sorted(owned.written) == ["dead-letters", "partials"]
    assert counts() == before
    (committed,) = owned.under_way
    committed()
    assert [now - then for now, then in zip(counts(), before, strict=True)] == [3, 1, 1, 1]
