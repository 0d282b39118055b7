"""When partitions that stand still are taken for an outage, and when not; without a broker."""

import itertools
from typing import cast

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import OffsetOutOfRangeError
from keygrouping.inspection import Range
from keygrouping_service.kafka.topic_fetching import Fetching, Following, KeptEvent
from keygrouping_service.records.aiokafka_adapter import PartitionsSource
from keygrouping_service.records.record import DeadLetter, Record
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


async def test_what_is_left_out_while_another_partition_is_out_of_range_takes_the_place_of_no_event() -> None:
    tps = [TopicPartition("events", number) for number in range(2)]
    unpacking = Unpacking()
    places = dict.fromkeys(tps, 0)

    class Torn(Still):
        """Partition 0 has ten records and one that is too large; the first of partition 1 are deleted meanwhile."""

        answers = 0

        async def position(self, tp: TopicPartition) -> int:
            return places[tp]

        async def beginning_offsets(self, _: object) -> dict[TopicPartition, int]:
            return {tps[0]: 0, tps[1]: 5}

        def seek(self, tp: TopicPartition, offset: int) -> None:
            places[tp] = offset

        async def getmany(self, *_: object, **__: object) -> dict[TopicPartition, list[Record]]:
            self.answers += 1
            if self.answers == 1:
                places[tps[0]] = 10
                return {tps[0]: [Record("events", 0, number, 0, b"", b"") for number in range(10)]}
            if self.answers == 2:
                places[tps[0]] = 11
                unpacking.letters.append(DeadLetter(Record("events", 0, 10, 0, b"", b""), "record-too-large", ""))
                raise OffsetOutOfRangeError
            number = places[tps[1]]
            places[tps[1]] += 1
            return {tps[1]: [Record("events", 1, number, 0, b"", b"")]}

    def kept(record: Record) -> KeptEvent:
        return KeptEvent(record.partition, record.offset, 0, b"", 1.0, None)

    reading = Fetching(PartitionsSource(cast(AIOKafkaConsumer, Torn(2)), unpacking), kept)
    first = await reading.read({tps[0]: Range(0, 4), tps[1]: Range(0, 8)})
    rest = await reading.read({tps[0]: Range(4, 11)})
    assert sorted(event[:2] for event in first) == [*((0, n) for n in range(4)), *((1, n) for n in range(5, 8))]
    assert [event.offset for event in rest] == list(range(4, 11)) and rest[-1].fault == "record-too-large"
