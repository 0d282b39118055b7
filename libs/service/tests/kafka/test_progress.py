import logging
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.structs import OffsetAndMetadata
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.job import MOST_CONFIRMATIONS
from keygrouping_service.kafka.premises import LEAST_METADATA_BYTES
from keygrouping_service.kafka.progress import (
    END,
    MIN_TIME,
    Progress,
    Upstream,
    UpstreamWatermark,
    floor_of_resuming,
    router_watermark,
    stage_watermark,
)
from keygrouping_service.kafka.topic_ids import UNKNOWN

times = st.one_of(st.integers(0, 10_000), st.just(MIN_TIME), st.just(END))
states = st.sampled_from([(False, False), (True, False), (False, True)])
progress = st.builds(lambda time, epoch, state: Progress(time, epoch, *state), times, st.integers(0, 9), states)


@given(progress)
def test_progress_survives_the_trip_through_metadata(value: Progress) -> None:
    assert Progress.decode(value.encode()) == value


@given(st.one_of(st.none(), st.text()))
def test_foreign_metadata_counts_as_nothing_known(text: str | None) -> None:
    if not (text or "").startswith("v2 "):
        assert Progress.decode(text) == Progress()


def test_broken_numbers_in_metadata_count_as_nothing_known() -> None:
    assert Progress.decode(f"v2 soon 0 active {UNKNOWN}") == Progress()
    assert Progress.decode(f"v2 5 0 asleep {UNKNOWN}") == Progress()


@given(st.dictionaries(st.integers(0, 5), progress, min_size=1), st.integers(0, 500))
def test_no_active_partition_can_send_an_event_before_the_watermark(
    partitions: dict[int, Progress], lateness: int
) -> None:
    watermark = router_watermark(partitions, lateness)
    for partition in partitions.values():
        if not partition.idle and watermark != END:
            assert watermark <= max(MIN_TIME, partition.time - lateness)


def test_the_slowest_active_partition_decides() -> None:
    assert router_watermark({0: Progress(5000), 1: Progress(900), 2: Progress(10, idle=True)}, 100) == 800


def test_a_partition_without_progress_holds_everything_back() -> None:
    assert router_watermark({0: Progress(5000), 1: Progress()}, 100) == MIN_TIME


def test_when_all_are_idle_the_newest_decides() -> None:
    assert router_watermark({0: Progress(5000, idle=True), 1: Progress(900, idle=True)}, 100) == 4900


@given(st.dictionaries(st.integers(0, 5), progress, min_size=2), st.sets(st.integers(0, 5)), st.integers(0, 500))
def test_who_comes_back_knows_the_furthest_that_anybody_went_without_it(
    partitions: dict[int, Progress], coming_back: set[int], lateness: int
) -> None:
    """Some of the idle partitions commit that they are resuming, then one of them asks for its floor."""
    derived = router_watermark(partitions, lateness)
    back = [p for p in coming_back if p in partitions and partitions[p].idle]
    for partition in back:
        now = partitions | {p: Progress(partitions[p].time, resuming=True) for p in back}
        assert floor_of_resuming(now, partition, lateness) >= derived


def test_a_finished_input_ends_everything() -> None:
    assert router_watermark({0: Progress(END), 1: Progress(END)}, 100) == END
    assert router_watermark({0: Progress(END), 1: Progress(700)}, 100) == 600


def test_nothing_is_known_without_partitions() -> None:
    assert router_watermark({}, 100) == stage_watermark({}) == MIN_TIME


@given(st.dictionaries(st.integers(0, 5), progress, min_size=1))
def test_a_stage_is_as_far_as_its_slowest_partition(partitions: dict[int, Progress]) -> None:
    assert stage_watermark(partitions) == min(p.time for p in partitions.values())


def test_an_upstream_watermark_is_covered_at_its_end_and_not_before() -> None:
    upstream = UpstreamWatermark(10, 1, {0: 5})
    assert not upstream.covered(0, 4)
    assert upstream.covered(0, 5)
    assert upstream.covered(1, 0), "a partition born later holds nothing that it covers"


@given(st.lists(st.one_of(st.just(0), st.integers(0, END)), max_size=256))
def test_what_waits_for_confirmation_is_committed_too(ahead: list[int]) -> None:
    decoded = Progress.decode(Progress(5, 1, ahead=tuple(ahead)).encode()).ahead
    first = next((place for place, number in enumerate(ahead) if number), len(ahead))
    assert decoded == tuple(ahead[first:])


def test_a_word_that_is_not_ours_counts_as_nothing_known() -> None:
    assert Progress.decode(f"v2 5 1 active {UNKNOWN} x-ray") == Progress()
    assert len(Progress.decode(f"v2 5 1 active {UNKNOWN} 1,*ffffffff").ahead) <= 256


def test_the_longest_metadata_is_as_long_as_brokers_are_asked_to_take() -> None:
    """All that can wait for confirmation does, each between two that don't, and nothing is confirmed; until 2248."""
    ahead = [number for _ in range(MOST_CONFIRMATIONS - 1) for number in (2**43, 0)]
    longest = Progress(MIN_TIME, 2**53, resuming=True, ahead=(*ahead, 2**43)).encode("A" * 22)
    assert LEAST_METADATA_BYTES - 100 < len(longest) <= LEAST_METADATA_BYTES


class Broker:
    """A worker has read `routed` to offset `read` of `end`, and `partials` ends at `written`."""

    def __init__(self, read: int, end: int, written: int) -> None:
        self.read, self.end, self.written = read, end, written

    async def describe_topics(self, _: list[str]) -> list[Any]:
        return [{"partitions": [{"partition": 0}]}]

    async def list_consumer_group_offsets(
        self, _: str, partitions: list[TopicPartition]
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return {tp: OffsetAndMetadata(self.read, "") for tp in partitions}

    async def end_offsets(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: {"routed": self.end, "partials": self.written}[tp.topic] for tp in partitions}


@pytest.mark.parametrize(
    ("read", "end", "written", "doubted"),
    [
        pytest.param([9] * 6, [9] * 6, [5, 6, 6, 7, 8, 9], True, id="partials-grow-though-all-is-read"),
        pytest.param([9] * 6, [9] * 6, [5, 6, 6, 7, 7, 7], False, id="markers-come-late"),
        pytest.param([9] * 6, [12] * 6, [5, 6, 7, 8, 9, 10], False, id="a-worker-has-not-committed-yet"),
        pytest.param([4, 5, 6, 7, 8, 9], [4, 5, 6, 7, 8, 9], [4, 5, 6, 7, 8, 9], False, id="workers-read"),
        pytest.param([-1] * 6, [0] * 6, [5] * 6, True, id="nobody-has-ever-read"),
        pytest.param([-1] * 6, [9] * 6, [0] * 6, False, id="workers-have-yet-to-begin"),
    ],
)
async def test_partials_that_are_not_of_what_is_routed_are_told_once(
    read: list[int], end: list[int], written: list[int], doubted: bool, caplog: pytest.LogCaptureFixture
) -> None:
    broker: Any = Broker(0, 0, 0)
    upstream = Upstream(broker, broker)
    for broker.read, broker.end, broker.written in zip(read, end, written, strict=True):
        with caplog.at_level(logging.WARNING):
            await upstream.of_aggregator("workers", "routed", "partials")
    assert caplog.text.count("set KEYGROUPING_STAGES=combine here too") == doubted
