"""The log of the worker's batches on a real broker, without Spark: it fences, and knows a checkpoint out of date."""

from collections.abc import AsyncIterator

import pytest
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_service.errors import Fatal
from keygrouping_service.kafka.clients import retry
from keygrouping_service.kafka.progress import Committed, Progress
from keygrouping_service.records.record import Record
from keygrouping_service.testing import Cluster
from keygrouping_spark.batch_log import Batch, BatchLog
from keygrouping_spark.refused import Refused
from keygrouping_spark.settings import SparkSettings

pytestmark = pytest.mark.kafka

TOPIC_ID, OTHER_ID = "C" * 22, "D" * 22
BOTH = {0: None, 1: None}


@pytest.fixture
async def cluster(broker: EmbeddedBroker) -> AsyncIterator[Cluster]:
    async with Cluster(broker.bootstrap_servers) as made:
        yield made


class Drivers:
    """Logs of one application, which end with the test."""

    def __init__(self, cluster: Cluster, application: str) -> None:
        self.cluster = cluster
        self.settings = SparkSettings(
            bootstrap_servers=cluster.bootstrap_servers,
            application=application,
            routed_topic=f"{application}.routed",
            dead_letters_topic=f"{application}.dead-letters",
            checkpoint="/c",
            job='{"aggregates": []}',
        )
        self.made: list[BatchLog] = []

    async def open(self, checkpoint: str, topic_id: str = TOPIC_ID) -> BatchLog:
        log = BatchLog(self.settings, self.cluster.admin, checkpoint, topic_id)
        self.made.append(log)
        await log.open()
        return log


@pytest.fixture
async def drivers(cluster: Cluster, application: str) -> AsyncIterator[Drivers]:
    made = Drivers(cluster, application)
    await cluster.create(**{made.settings.routed_topic: 2})
    yield made
    for log in made.made:
        await log.close()


def starts(*offsets: int) -> dict[int, Committed]:
    return {p: Committed(offset, Progress(7_000, 3), TOPIC_ID) for p, offset in enumerate(offsets)}


async def test_a_batch_is_known_before_it_is_written_with_where_its_group_stands(drivers: Drivers) -> None:
    log = await drivers.open("one")
    assert await retry(lambda: log.last(BOTH), "reading the first time, while the broker makes the group") == {}
    await log.begin(starts(0, 5), {0: 0, 1: 9})
    await log.begin(starts(0, 9), {0: 4, 1: 9})
    again = await drivers.open("two")
    assert await again.last(BOTH) == {0: Batch("one", 0, 4), 1: Batch("one", 9, 9)}
    committed = await drivers.cluster.committed(drivers.settings.group("worker"), drivers.settings.routed_topic)
    assert committed == starts(0, 9)
    assert await (await drivers.open("two", OTHER_ID)).last(BOTH) == {}, "offsets of another topic"


async def test_a_second_driver_ends_the_first_and_a_checkpoint_that_is_out_of_date(drivers: Drivers) -> None:
    first = await drivers.open("one")
    await first.begin(starts(0, 0), {0: 2, 1: 2})
    second = await drivers.open("two")
    with pytest.raises(Fatal, match="another Spark driver of this application writes partials now"):
        await first.begin(starts(2, 2), {0: 3, 1: 3})
    await second.require({})
    await second.begin(starts(2, 2), {0: 2, 1: 2})
    await second.require(BOTH)
    again = await drivers.open("one")
    with pytest.raises(Fatal, match="out of date"):
        await again.require(BOTH)
    with pytest.raises(Fatal, match="out of date"):
        await first.begin(starts(2, 2), {0: 3, 1: 3})


def refused(partition: int, offset: int) -> Refused:
    return Refused(Record("routed", partition, offset, 1000, b"k", b"{"), "invalid-json", "ends too early")


async def test_what_is_of_no_use_in_a_batch_is_a_dead_letter_once_however_often_the_batch_is_written(
    drivers: Drivers,
) -> None:
    topic = drivers.settings.dead_letters_topic
    await drivers.cluster.create(**{topic: 1})

    async def told() -> list[tuple[str, str]]:
        found = [dict(record.headers) for record in await drivers.cluster.read(topic)]
        return [(f"{each['keygrouping-partition']!r}", f"{each['keygrouping-offset']!r}") for each in found]

    former = await drivers.open("former")
    await former.begin(starts(0, 5), {0: 2, 1: 9})
    log, both = await drivers.open("one"), [refused(0, 1), refused(1, 5)]
    with pytest.raises(Fatal, match="another Spark driver of this application"):
        await former.refuse(both)
    await log.begin(starts(0, 5), {0: 2, 1: 9})
    await log.refuse(both[:1])
    await log.refuse(both)
    await log.begin(starts(0, 5), {0: 2, 1: 9})
    await log.refuse(both)
    assert await told() == [("b'0'", "b'1'"), ("b'1'", "b'5'")]
    await log.close()
    await log.refuse(both)
    again = await drivers.open("two")
    await again.begin(starts(0, 5), {0: 2, 1: 9})
    await again.refuse(both)
    assert len(await told()) == 2, "another driver, and one with another checkpoint, know of it"
    await again.begin(starts(2, 9), {0: 4, 1: 9})
    await again.refuse([refused(0, 2)])
    await again.begin(starts(0, 5), {0: 4, 1: 9})
    await again.refuse([refused(0, 1)])
    assert await told() == [("b'0'", "b'1'"), ("b'1'", "b'5'"), ("b'0'", "b'2'"), ("b'0'", "b'1'")]
