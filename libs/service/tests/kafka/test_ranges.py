"""Laws of starts and ends: decided once for all partitions, by one of all that try, and kept like committed offsets."""

from __future__ import annotations

import asyncio
from functools import partial

import numpy as np
import pytest
from aiokafka.admin import NewPartitions
from keygrouping_service.errors import Fatal
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.owned import OwnedPartition
from keygrouping_service.kafka.progress import END, Progress, partitions_of
from keygrouping_service.kafka.ranges import Ends, Moment, decide, read_moment
from keygrouping_service.kafka.runner import PartitionRunner
from keygrouping_service.records.bounded import Bounded
from keygrouping_service.records.columns import Columns
from keygrouping_service.records.protocols import RecordBatch
from keygrouping_service.records.record import DeadLetter, Record
from keygrouping_service.settings import StageSettings
from keygrouping_service.testing import Cluster, until

STAGE = "copy"
SECOND = 1_780_000_000_000


class Reader:
    """A stage that notes what it reads, up to where it is told to end."""

    def __init__(self, cluster: Cluster, settings: StageSettings, topic: str) -> None:
        self.cluster, self.settings, self.topic = cluster, settings, topic
        self.group = settings.group(STAGE)
        self.read: list[tuple[int, int]] = []

    async def write(self, partition: int, seconds: range) -> None:
        # By a producer that knows partitions that were just added.
        async with Cluster(self.cluster.bootstrap_servers) as fresh:
            for second in seconds:
                await fresh.write(self.topic, [(b"k", b"v")], partition, SECOND + 1000 * second)

    async def decide(self, start: Moment = "earliest", until: Moment | None = None) -> Ends | None:
        return await clients.retry(lambda: decide(self.settings, STAGE, self.topic, start, until), "deciding")

    async def work(self, owned: OwnedPartition) -> None:
        while not owned.stopping:
            records = await owned.poll(7, 0.1)
            self.read += [(owned.partition, offset) for offset in records.offsets.tolist()]
            if len(records) or (owned.at_end and not owned.committed.progress.ended):
                await owned.commit(None, owned.position, Progress(END if owned.at_end else 0))

    def runner(self, ends: Ends | None) -> PartitionRunner:
        return PartitionRunner(self.settings, STAGE, self.topic, self.work, ends=ends)

    async def committed(self) -> dict[int, int | None]:
        return {p: entry.offset for p, entry in (await self.cluster.committed(self.group, self.topic)).items()}


@pytest.fixture
async def reader(cluster: Cluster, settings: StageSettings, topic_prefix: str) -> Reader:
    await cluster.create(**{topic_prefix: 3})
    return Reader(cluster, settings, topic_prefix)


@pytest.mark.kafka
async def test_latest_is_decided_once_by_whoever_and_kept_even_if_the_broker_forgets(reader: Reader) -> None:
    await reader.write(0, range(10))
    await reader.write(1, range(5))
    assert await asyncio.gather(*(reader.decide("latest") for _ in range(3))) == [None] * 3
    assert await reader.committed() == {0: 10, 1: 5, 2: 0}
    await reader.write(0, range(10, 13))
    await reader.write(2, range(10, 12))
    await reader.decide("latest")
    assert await reader.committed() == {0: 10, 1: 5, 2: 0}
    await reader.cluster.forget(reader.group)
    await reader.decide("latest")
    await reader.cluster.admin.create_partitions({reader.topic: NewPartitions(4)})

    async def there_are_four() -> bool:
        return len(await partitions_of(reader.cluster.admin, reader.topic)) == 4

    await until(there_are_four)
    await reader.write(3, range(4))
    stop = asyncio.Event()
    running = asyncio.create_task(reader.runner(await reader.decide("latest")).run(stop))
    await until(lambda: len(reader.read) >= 9)
    stop.set()
    await running
    assert sorted(reader.read) == [(0, 10), (0, 11), (0, 12), (2, 0), (2, 1), (3, 0), (3, 1), (3, 2), (3, 3)]


@pytest.mark.kafka
async def test_a_range_is_read_up_to_its_end_and_no_further_and_then_the_stage_ends(reader: Reader) -> None:
    """Partition 1 is empty, 2 ends before the range begins, and one is added after it was decided."""
    await reader.write(0, range(40))
    await reader.write(2, range(3))
    ends = await reader.decide(SECOND + 10_000, SECOND + 30_000)
    assert ends == {0: 30, 1: 0, 2: 3}
    assert await reader.committed() == {0: 10, 1: 0, 2: 3}
    await reader.cluster.admin.create_partitions({reader.topic: NewPartitions(4)})

    async def there_are_four() -> bool:
        return len(await partitions_of(reader.cluster.admin, reader.topic)) == 4

    await until(there_are_four)
    await reader.write(3, range(4))
    runner = reader.runner(ends)
    async with asyncio.timeout(60):
        await runner.run(asyncio.Event())
    assert reader.read == [(0, offset) for offset in range(10, 30)]
    assert await reader.committed() == {0: 30, 1: 0, 2: 3, 3: 0}


@pytest.mark.kafka
async def test_a_range_stays_as_it_was_decided_and_another_one_is_refused(reader: Reader) -> None:
    await reader.write(0, range(10))
    ends = await reader.decide(until="latest")
    assert ends == {0: 10, 1: 0, 2: 0}
    await reader.write(0, range(10, 20))
    assert await reader.decide(until="latest") == ends
    with pytest.raises(Fatal, match=r"has a range of .* otherwise .until latest.*use another KEYGROUPING_APPLICATION"):
        await reader.decide(until=SECOND + 15_000)


async def _has_read(reader: Reader, offset: int) -> bool:
    return (await reader.committed())[0] == offset


@pytest.mark.kafka
async def test_a_group_that_has_begun_gets_no_end(reader: Reader) -> None:
    """Partitions that are idle at that moment would be taken for ended by those that end."""
    await reader.write(0, range(10))
    runner = reader.runner(None)
    stop = asyncio.Event()
    running = asyncio.create_task(runner.run(stop))
    await until(partial(_has_read, reader, 10))
    stop.set()
    await running
    assert await reader.decide(start="latest") is None
    with pytest.raises(Fatal, match=r"without an end since it has begun.*use another KEYGROUPING_APPLICATION"):
        await reader.decide(until="latest")


class Ten:
    """A source of ten records, one of which was left out at each of 3 and 7."""

    at = 0

    async def poll(self, most: int, timeout: float) -> RecordBatch:
        assert timeout >= 0
        first, self.at = self.at, min(10, self.at + most)
        return Columns.of("t", 0, [(offset, 0, b"k", b"v", ()) for offset in range(first, self.at)])

    async def position(self) -> int:
        return self.at

    def end(self) -> int | None:
        return 10

    async def first(self) -> int:
        return 8

    def seek(self, offset: int) -> None:
        self.at = offset

    def left_out(self) -> list[DeadLetter]:
        return [DeadLetter(Record("t", 0, offset, 0, b"k", b"v", ()), "too-large", "") for offset in (3, 7)]


async def test_a_bounded_source_knows_nothing_behind_its_end() -> None:
    source = Bounded(Ten(), 5)
    assert np.concatenate([(await source.poll(3, 0)).offsets for _ in range(2)]).tolist() == [0, 1, 2, 3, 4]
    assert (await source.position(), source.end(), await source.first()) == (5, 5, 5)
    assert [letter.record.offset for letter in source.left_out()] == [3]


@pytest.mark.parametrize(
    "given", ["soon", "2026-11-01", "2026-11-01T00:00:00", "1960-01-01T00:00:00Z", "9999-01-01T00:00:00Z"]
)
def test_a_time_without_its_zone_or_in_the_future_is_refused(given: str) -> None:
    with pytest.raises(ValueError, match=r"is no past time with its zone, such as 2026-11-01T00:00:00Z"):
        read_moment(given)


def test_a_moment_is_a_word_or_a_time() -> None:
    assert [read_moment(each) for each in ("earliest", "latest")] == ["earliest", "latest"]
    assert read_moment("1970-01-01T01:00:01+01:00") == 1000
