"""How far Spark's queries advance, and when: the progress loops without Spark and Kafka."""

from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.job import JobSpec
from keygrouping_service.kafka.progress import END, MIN_TIME, Committed, Progress, UpstreamWatermark
from keygrouping_spark.kafka import json_offsets, read_offsets
from keygrouping_spark.progress import AggregatorProgress, WorkerProgress, entries_to_commit, window_watermark
from keygrouping_spark.reports import Reading, Report, StoppingError, read_report

JOB = JobSpec.from_json({"window": 1000, "aggregates": []})

offsets = st.dictionaries(st.integers(0, 3), st.integers(0, 9), max_size=4)


class Stage:
    """Upstream, commits and watermarks of a stage, all in memory."""

    def __init__(self) -> None:
        self.upstream = UpstreamWatermark(MIN_TIME, 0, {0: 0, 1: 0})
        self.committed = {0: Committed(), 1: Committed()}
        self.watermarks: list[int] = []
        self.reading = Reading("t", {})
        self.refuses = False
        self.now = 0.0
        self.commits = 0

    def clock(self) -> float:
        return self.now

    async def read(self) -> UpstreamWatermark:
        return self.upstream

    async def commit(self, entries: Mapping[int, Committed]) -> None:
        self._answer()
        self.committed = dict(entries)
        self.commits += 1

    async def publish(self, watermark: int) -> None:
        self._answer()
        self.watermarks.append(watermark)

    def _answer(self) -> None:
        if self.refuses:
            raise TimeoutError

    def worker(self) -> WorkerProgress:
        return WorkerProgress(
            reading=self.reading,
            read_upstream_watermark=self.read,
            commit=self.commit,
            last=dict(self.committed),
            clock=self.clock,
        )

    def aggregator(self) -> AggregatorProgress:
        return AggregatorProgress(
            reading=self.reading,
            read_upstream_watermark=self.read,
            commit=self.commit,
            publish=self.publish,
            job=JOB,
            last=dict(self.committed),
            clock=self.clock,
        )

    def finish_batch(self, positions: Mapping[int, int], watermark: int = MIN_TIME) -> None:
        ends = {"t": {str(p): offset for p, offset in positions.items()}}
        self.reading.update(Report(0, (ends,), watermark))

    @property
    def times(self) -> dict[int, int]:
        return {partition: entry.progress.time for partition, entry in self.committed.items()}

    @property
    def offsets(self) -> dict[int, int | None]:
        return {partition: entry.offset for partition, entry in self.committed.items()}


@given(last=st.dictionaries(st.integers(0, 3), st.integers(0, 99)), positions=offsets, time=st.integers(0, 99))
def test_a_proven_time_is_committed_for_all_partitions_and_none_goes_back(
    last: dict[int, int], positions: dict[int, int], time: int
) -> None:
    before = {partition: Committed(0, Progress(t)) for partition, t in last.items()}
    entries = entries_to_commit(before, positions, UpstreamWatermark(time, 1, {0: 0, 9: 0}))
    assert entries.keys() == last.keys() | {0, 9}
    for partition, entry in entries.items():
        assert entry.offset == positions.get(partition, 0)
        assert entry.progress == Progress(max(last.get(partition, MIN_TIME), time), 1)


async def test_the_worker_advances_to_the_newest_upstream_watermark_that_all_partitions_have_reached() -> None:
    stage = Stage()
    worker = stage.worker()
    await worker.step()
    assert stage.times == {0: MIN_TIME, 1: MIN_TIME}
    for time, ends in ((500, {0: 5, 1: 3}), (600, {0: 6, 1: 3}), (900, {0: 50, 1: 30})):
        stage.upstream = UpstreamWatermark(time, 7, ends)
        await worker.step()
    stage.finish_batch({0: 6, 1: 2})
    await worker.step()
    assert (stage.times, stage.offsets) == ({0: MIN_TIME, 1: MIN_TIME}, {0: 6, 1: 2})
    stage.finish_batch({0: 6, 1: 3})
    await worker.step()
    assert (stage.times, stage.offsets) == ({0: 600, 1: 600}, {0: 6, 1: 3})


async def test_the_aggregator_commits_a_time_only_after_its_windows_are_closed() -> None:
    stage = Stage()
    aggregator = stage.aggregator()
    stage.upstream = UpstreamWatermark(2500, 0, {0: 5, 1: 0})
    await aggregator.step()
    assert stage.watermarks == []
    stage.finish_batch({0: 5})
    await aggregator.step()
    assert stage.watermarks == [2000]
    assert set(stage.times.values()) == {MIN_TIME}
    stage.finish_batch({0: 9}, watermark=1000)
    await aggregator.step()
    assert stage.watermarks == [2000]
    stage.finish_batch({0: 9}, watermark=2000)
    stage.upstream = UpstreamWatermark(END, 0, {0: 9, 1: 0})
    await aggregator.step()
    assert stage.times == {0: 2500, 1: 2500}
    assert stage.watermarks == [2000, END]
    stage.finish_batch({0: 9}, watermark=END)
    await aggregator.step()
    assert (stage.times, stage.offsets) == ({0: END, 1: END}, {0: 9, 1: 0})


async def test_a_watermark_is_published_while_the_batch_that_completes_its_windows_is_under_way() -> None:
    stage = Stage()
    aggregator = stage.aggregator()
    await aggregator.step()
    stage.upstream = UpstreamWatermark(2500, 0, {0: 5})
    await aggregator.close({0: 4})
    assert stage.watermarks == []
    await aggregator.close({0: 5})
    assert stage.watermarks == [2000]
    stage.reading.watermark = 2000
    await aggregator.step()
    assert set(stage.times.values()) == {MIN_TIME}, "the batch has not ended"
    stage.finish_batch({0: 5}, watermark=2000)
    await aggregator.step()
    assert set(stage.times.values()) == {2500}


async def test_nothing_is_lost_when_kafka_refuses_a_watermark_or_a_commit() -> None:
    stage = Stage()
    stage.upstream = UpstreamWatermark(2500, 0, {0: 5})
    stage.finish_batch({0: 5, 1: 0}, watermark=2000)
    for steps in (stage.worker(), stage.aggregator()):
        stage.refuses = True
        with pytest.raises(TimeoutError):
            await steps.step()
        stage.refuses = False
        await steps.step()
        assert set(stage.times.values()) == {2500}
    assert stage.watermarks == [2000]


async def test_what_was_committed_before_a_restart_is_never_taken_back() -> None:
    stage = Stage()
    stage.committed = {0: Committed(9, Progress(700, 3)), 1: Committed(4, Progress(700, 3))}
    stage.reading = Reading("t", {0: 9, 1: 4})
    stage.upstream = UpstreamWatermark(600, 2, {0: 9, 1: 4})
    await stage.worker().step()
    assert stage.committed == {0: Committed(9, Progress(700, 3)), 1: Committed(4, Progress(700, 3))}


@given(time=st.integers(MIN_TIME, 10_000))
def test_a_watermark_is_the_end_of_the_last_complete_window(time: int) -> None:
    watermark = window_watermark(JOB, time)
    complete = [end for end in range(1000, 11_000, 1000) if end <= time]
    assert watermark == max(complete, default=MIN_TIME)
    assert window_watermark(JOB, END) == END


def test_only_finished_batches_count() -> None:
    sources = [{"endOffset": {"t": {"0": 3, "1": 4}}}, {"endOffset": {"watermarks": {"0": 1}}}]
    time = {"watermark": "9999-12-31T00:00:00.000Z"}
    idle = {"batchId": 4, "sources": sources, "durationMs": {"triggerExecution": 1}, "eventTime": time}
    assert read_report(idle) is None
    finished = read_report({**idle, "durationMs": {"addBatch": 1}})
    assert finished is not None
    assert (finished.batch, finished.watermark) == (4, END)
    reading = Reading("t", {})
    reading.begin(4)
    assert reading.busy
    reading.update(finished)
    assert (reading.positions, reading.watermark, reading.busy) == ({0: 3, 1: 4}, END, False)
    assert read_report({**idle, "durationMs": {"addBatch": 1}, "eventTime": {}}) == Report(4, finished.ends, MIN_TIME)


def test_a_closed_reading_lets_the_batch_under_way_end_and_no_other_begin() -> None:
    reading = Reading("t", {})
    reading.begin(3)
    reading.close()
    assert reading.busy
    reading.update(Report(3, (), MIN_TIME))
    assert not reading.busy
    with pytest.raises(StoppingError):
        reading.begin(4)


@given(found=st.dictionaries(st.integers(0, 20), st.integers(0, 2**60)))
def test_offsets_survive_sparks_json(found: dict[int, int]) -> None:
    assert read_offsets(json_offsets("t", found), "t") == found
    assert read_offsets(json_offsets("t", found), "other") == {}


@pytest.mark.parametrize("nothing", [None, "null", {}, "{}"])
def test_a_source_without_offsets_has_no_positions(nothing: object) -> None:
    assert read_offsets(nothing, "t") == {}


@pytest.mark.parametrize("stage_name", ["worker", "aggregator"])
async def test_what_has_not_changed_is_committed_at_the_start_and_then_hourly(stage_name: str) -> None:
    """Brokers forget what groups without members have committed long ago."""
    stage = Stage()
    stage.committed = {0: Committed(0, Progress(700, 3)), 1: Committed(0, Progress(700, 3))}
    query = stage.worker() if stage_name == "worker" else stage.aggregator()
    for now, commits in ((0.0, 1), (1.0, 1), (3599.0, 1), (3600.0, 2), (3601.0, 2), (7200.0, 3)):
        stage.now = now
        await query.step()
        assert stage.commits == commits
    assert stage.times == {0: 700, 1: 700}
