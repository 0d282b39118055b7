from typing import cast

from aiokafka.errors import KafkaConnectionError
from hypothesis import given
from hypothesis import strategies as st
from keygrouping_service.kafka.progress import MIN_TIME, Progress, Upstream, UpstreamWatermark
from keygrouping_service.kafka.upstream_watermarks import PartitionWatermark, PendingWatermarks, SharedUpstreamWatermark

NOBODY = cast(Upstream, None)


class Router:
    """A stage before that has written `end` records and reached event time `time`."""

    def __init__(self) -> None:
        self.time = 0
        self.end = 0
        self.reads = 0
        self.away = False

    async def read(self, upstream: Upstream) -> UpstreamWatermark:
        del upstream
        self.reads += 1
        if self.away:
            raise KafkaConnectionError("away")
        return UpstreamWatermark(self.time, self.time, {0: self.end})


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans()), max_size=40))
def test_no_watermark_advances_to_a_time_before_what_was_there_is_read(
    steps: list[tuple[int, int, bool]],
) -> None:
    end = position = time = 0
    promises = [UpstreamWatermark(0, 0, {0: 0})]
    watermark = PartitionWatermark(0, Progress())
    for written, read, new in steps:
        end += written
        position = min(end, position + read)
        if new:
            time += 1
            promises.append(UpstreamWatermark(time, 0, {0: end}))
        progress = watermark.advance(position, promises[-1])
        assert progress.time <= max(p.time for p in promises if p.ends[0] <= position)
    assert watermark.advance(end, promises[-1]).time == promises[-1].time


def test_a_reader_that_lags_for_ever_still_makes_progress() -> None:
    watermark = PartitionWatermark(0, Progress())
    times = [watermark.advance(n, UpstreamWatermark(n, 0, {0: n + 100})).time for n in range(1000)]
    assert times[-1] > 700
    assert times == sorted(times)


def test_progress_never_goes_back_and_keeps_the_newest_epoch() -> None:
    watermark = PartitionWatermark(0, Progress(50, 3, idle=True))
    assert watermark.advance(9, UpstreamWatermark(20, 5, {0: 9})) == Progress(50, 5)
    assert watermark.advance(9, UpstreamWatermark(60, 1, {0: 10})) == Progress(50, 5)


def test_a_partition_of_which_the_upstream_watermark_knows_no_records_is_covered() -> None:
    assert PartitionWatermark(7, Progress()).advance(0, UpstreamWatermark(20, 0, {0: 9})).time == 20


async def test_all_partitions_share_one_read_per_interval_and_an_idle_stage_is_read_less_often() -> None:
    router, now = Router(), [0.0]
    shared = SharedUpstreamWatermark(router.read, 1.0, lambda: now[0])
    for _ in range(1000):
        now[0] += 0.1
        await shared.latest(NOBODY)
    assert 24 <= router.reads <= 32
    for _ in range(1000):
        now[0] += 0.1
        router.time += 1
        await shared.latest(NOBODY)
    assert 110 <= router.reads <= 132


async def test_a_promise_stays_true_while_the_broker_is_away() -> None:
    router, now = Router(), [0.0]
    shared = SharedUpstreamWatermark(router.read, 1.0, lambda: now[0])
    router.away = True
    assert await shared.latest(NOBODY) is None
    router.away, now[0] = False, 5.0
    found = await shared.latest(NOBODY)
    router.away, now[0] = True, 9.0
    assert await shared.latest(NOBODY) == found == UpstreamWatermark(0, 0, {0: 0})


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.booleans()), max_size=40))
def test_a_reader_of_all_partitions_gets_the_newest_promise_within_its_reach(
    steps: list[tuple[int, int, bool]],
) -> None:
    pending, ends, positions, promises = PendingWatermarks(), [0, 0], [0, 0], []
    proven = UpstreamWatermark(MIN_TIME, 0, {})
    for turn, (written, read, both) in enumerate(steps):
        ends = [ends[0] + written, ends[1] + turn % 3]
        positions = [min(ends[0], positions[0] + read), ends[1] if both else positions[1]]
        promises.append(UpstreamWatermark(turn, 0, dict(enumerate(ends))))
        pending.add(promises[-1])
        proven = pending.reached(dict(enumerate(positions))) or proven
        reached = [p for p in promises if p.ends[0] <= positions[0] and p.ends[1] <= positions[1]]
        assert proven.time == max((p.time for p in reached), default=MIN_TIME)


def test_a_promise_that_says_nothing_new_is_not_kept_and_a_new_epoch_is_news() -> None:
    pending = PendingWatermarks()
    pending.add(UpstreamWatermark(5, 1, {0: 10}))
    pending.add(UpstreamWatermark(5, 1, {0: 20}))
    assert pending.reached({0: 10}) == UpstreamWatermark(5, 1, {0: 10})
    assert pending.reached({0: 20}) is None
    pending.add(UpstreamWatermark(5, 2, {0: 20}))
    assert pending.newest.epoch == 2
    assert pending.reached({0: 20}) == pending.newest


def test_a_reader_that_stands_still_does_not_collect_promises_for_ever() -> None:
    pending = PendingWatermarks()
    for time in range(100_000):
        pending.add(UpstreamWatermark(time, 0, {0: time + 1}))
    kept = 0
    while pending.reached({0: kept + 1}):
        kept += 1
    assert 0 < kept < 1000
    pending.add(UpstreamWatermark(100_000, 0, {0: 100_001}))
    assert pending.newest.time == 100_000
