"""Records at which a native stage's own code fails: left out, once it has failed again, and told as dead letters."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from keygrouping.accumulator import Accumulator
from keygrouping_aggregator import cli as aggregator
from keygrouping_aggregator.settings import AggregatorSettings
from keygrouping_aggregator.windows import OpenWindows
from keygrouping_service.kafka.progress import END
from keygrouping_worker import cli as worker
from keygrouping_worker.settings import WorkerSettings

pytestmark = pytest.mark.kafka
Pipeline = Any  # the fixture's class, of which conftest.py is the only home

JOB = '{"window": 1000, "lateness": 0, "aggregates": [{"name": "n", "op": "count"}]}'


@asynccontextmanager
async def both_stages(pipeline: Pipeline) -> AsyncIterator[None]:
    """Worker and aggregator in this process, where their code can be made to fail."""
    given = pipeline.settings.model_dump(exclude_unset=True) | {"job": JOB, "session_timeout": 30, "http_port": 0}
    stop = asyncio.Event()
    tasks = [
        asyncio.create_task(worker.serve(WorkerSettings(**given, ordinal=0, flush_interval=0.2), stop)),
        asyncio.create_task(aggregator.serve(AggregatorSettings(**given, flush_interval=0.2), stop)),
    ]
    try:
        yield
    finally:
        stop.set()
        await asyncio.gather(*tasks)


async def dead_letters(pipeline: Pipeline) -> list[tuple[bytes, dict[str, bytes]]]:
    found = await pipeline.records(pipeline.settings.dead_letters_topic)
    return [(record.key, dict(record.headers)) for record in found]


@pytest.mark.timeout(600)
async def test_a_record_at_which_a_stage_fails_is_left_out_and_nothing_else(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch
) -> None:
    add, merge = Accumulator.add, OpenWindows.add_all

    def failing_add(self: Any, events: Any) -> Any:
        if b"worker-poison" in events.keys:
            raise ZeroDivisionError("in the worker")
        return add(self, events)

    def failing_merge(self: Any, records: Any) -> Any:
        if b"aggregator-poison" in records.keys:
            raise OverflowError("in the aggregator")
        return merge(self, records)

    monkeypatch.setattr(Accumulator, "add", failing_add)
    monkeypatch.setattr(OpenWindows, "add_all", failing_merge)
    rows = [(number % 3, b"key-%d" % (number % 7), number) for number in range(600)]
    bad = [(1, b"worker-poison", 300), (2, b"aggregator-poison", 400)]
    await pipeline.route([*rows[:300], *bad, *rows[300:]], watermark=END)
    async with both_stages(pipeline):
        results = await pipeline.results()
    assert results == {place: n for place, n in pipeline.expected.items() if b"poison" not in place[0]}
    letters = dict(await dead_letters(pipeline))
    assert set(letters) == {b"worker-poison", b"aggregator-poison"}
    assert {headers["keygrouping-reason"] for headers in letters.values()} == {b"unprocessable"}
    assert letters[b"worker-poison"]["keygrouping-detail"] == b"ZeroDivisionError: in the worker"
    assert letters[b"aggregator-poison"]["keygrouping-detail"] == b"OverflowError: in the aggregator"
    assert letters[b"worker-poison"]["keygrouping-topic"].decode() == pipeline.settings.routed_topic
    assert letters[b"aggregator-poison"]["keygrouping-topic"].decode() == pipeline.settings.partials_topic
