"""When partitions that stand still are taken for an outage, and when not; without a broker."""

import itertools
from typing import cast

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from keygrouping.inspection import Range
from keygrouping_service.kafka.topic_fetching import Fetching, Following, KeptEvent
from keygrouping_service.records.aiokafka_adapter import PartitionsSource
from keygrouping_service.records.record import Record
from keygrouping_service.records.unpacking import Unpacking

EVENT = KeptEvent(0, 0, 0, b"key", 1.0, None)


class Still:
    """A consumer of partitions that stand still, though records are given out."""

    def __init__(self, partitions: int, records: int = 0) -> None:
        self.tps = [TopicPartition("events", number) for number in range(partitions)]
        self.records = records

    def partitions_for_topic(self, topic: str) -> set[int]:
        return {tp.partition for tp in self.tps if tp.topic == topic}

    def last_poll_timestamp(self, tp: TopicPartition) -> int:
        return self.tps.index(tp)

    async def position(self, tp: TopicPartition) -> int:
        return self.tps.index(tp)

    async def getmany(
        self, *tps: TopicPartition, timeout_ms: int, max_records: int
    ) -> dict[TopicPartition, list[Record]]:
        assert timeout_ms >= 0
        return {tps[0]: [Record("events", 0, 0, 0, b"", b"")] * min(self.records, max_records)} if self.records else {}


def fetching(consumer: Still) -> Fetching:
    def kept(record: Record) -> KeptEvent:
        del record
        return EVENT

    return Fetching(PartitionsSource(cast(AIOKafkaConsumer, consumer), Unpacking()), kept)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every look at it is a second later."""
    monkeypatch.setattr("time.monotonic", itertools.count().__next__)


@pytest.mark.usefixtures("clock")
async def test_reading_is_given_up_after_a_minute_without_progress() -> None:
    consumer = Still(10)
    with pytest.raises(TimeoutError, match=r"for 60 s from partitions 0, 1, 2, 3, 4, 5, 6, 7 and 2 more,"):
        await fetching(consumer).read(dict.fromkeys(consumer.tps, Range(0, 100)))


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize(("records", "silent"), [(0, True), (10, True), (500, False)])
async def test_partitions_are_silent_only_if_nothing_lies_ready(records: int, silent: bool) -> None:
    """As long as as much as possible is given out, a partition may stand still because others are ahead of it."""
    consumer = Still(3, records)
    following = Following(fetching(consumer), "events", consumer.tps)
    for _ in range(15):
        await following.next()
    assert (following.silence is not None) == silent
    assert following.silence is None or following.silence[1:] == (3, 3)
