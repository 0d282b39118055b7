"""The log of the worker's batches on a real broker, without Spark: it fences, and knows a checkpoint out of date."""

import re
from collections.abc import AsyncIterator, Mapping

import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import NewTopic
from aiokafka.errors import KafkaError
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.proxy import Api, Proxy
from keygrouping_service.errors import Fatal
from keygrouping_service.kafka.clients import retry
from keygrouping_service.kafka.progress import Committed, Progress
from keygrouping_service.records.record import KEPT_BYTES, Record
from keygrouping_service.testing import Cluster, configure, until
from keygrouping_spark import metrics
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
    await second.require({0: 2, 1: 2})
    again = await drivers.open("one")
    with pytest.raises(Fatal, match="out of date, as a driver with another one has gone on since"):
        await again.require({0: 2, 1: 2})
    with pytest.raises(Fatal, match="out of date"):
        await first.begin(starts(2, 2), {0: 3, 1: 3})


async def test_an_older_copy_of_a_checkpoint_is_told_where_it_ends(drivers: Drivers) -> None:
    log = await drivers.open("one")
    await log.begin(starts(0, 0), {0: 4, 1: 130})
    copy = await drivers.open("one")
    await copy.require({0: 4, 1: 130})
    await copy.begin(starts(4, 130), {0: 4, 1: 150})
    again = await drivers.open("one")
    await again.require({0: 4, 1: 150})
    place = f"{drivers.settings.routed_topic}[1]"
    since = f"it ends at offset 130 of {place}, and has gone on to 150 in another copy"
    with pytest.raises(Fatal, match=re.escape(f"of the worker is out of date, as {since}: start the newest one")):
        await again.require({0: 4, 1: 130})
    await log.close()  # as after an error
    with pytest.raises(Fatal, match=re.escape("has gone on to 150 in another copy")):
        await log.begin(starts(4, 130), {0: 4, 1: 140})


def refused(partition: int, offset: int) -> Refused:
    return Refused(Record("routed", partition, offset, 1000, b"k", b"{"), "invalid-json", "ends too early")


async def end_of(drivers: Drivers, level: str) -> int:
    """Of the dead letters."""
    place = TopicPartition(drivers.settings.dead_letters_topic, 0)
    servers = drivers.cluster.bootstrap_servers
    async with AIOKafkaConsumer(bootstrap_servers=servers, isolation_level=level) as reader:
        return int((await reader.end_offsets([place]))[place])


async def offsets_told(drivers: Drivers) -> list[tuple[int, int]]:
    """Partition and offset of each dead letter."""

    async def is_shown() -> bool:
        """A commit is answered a moment before it is."""
        return await end_of(drivers, "read_committed") == await end_of(drivers, "read_uncommitted")

    await until(is_shown)
    found = [dict(record.headers) for record in await drivers.cluster.read(drivers.settings.dead_letters_topic)]
    return [(int(each["keygrouping-partition"] or b""), int(each["keygrouping-offset"] or b"")) for each in found]


async def test_what_is_of_no_use_in_a_batch_is_a_dead_letter_once_however_often_the_batch_is_written(
    drivers: Drivers,
) -> None:
    await drivers.cluster.create(**{drivers.settings.dead_letters_topic: 1})
    former = await drivers.open("former")
    await former.begin(starts(0, 5), {0: 2, 1: 9})
    log = await drivers.open("one")
    with pytest.raises(Fatal, match="another Spark driver of this application"):
        await former.refuse(0, [refused(0, 1)], 2)
    await log.take_over(BOTH)
    await log.begin(starts(0, 5), {0: 2, 1: 9})
    await log.refuse(1, [refused(1, 5), refused(1, 6)], 7)
    assert (log.told(0), log.told(1)) == (0, 7)
    await log.begin(starts(0, 5), {0: 2, 1: 9})
    assert (log.told(0), log.told(1)) == (0, 7)
    await log.refuse(1, [refused(1, 8)], 9)
    assert await offsets_told(drivers) == [(1, 5), (1, 6), (1, 8)]
    again = await drivers.open("two")
    await again.begin(starts(0, 5), {0: 2, 1: 9})
    assert (again.told(0), again.told(1)) == (0, 9), "another driver with another checkpoint knows of it"
    await again.begin(starts(0, 5), {0: 2, 1: 12})
    assert (again.told(0), again.told(1)) == (0, 0), "another batch"


@pytest.mark.parametrize("answer", [False, True], ids=["request-lost", "answer-lost"])
async def test_a_commit_that_is_not_answered_makes_no_second_dead_letter(
    drivers: Drivers, proxy: Proxy, answer: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor if the broker can't be asked at first what became of it; and it counts."""
    await drivers.cluster.create(**{drivers.settings.dead_letters_topic: 1})
    settings = drivers.settings.model_copy(update={"bootstrap_servers": proxy.bootstrap_servers})
    log = BatchLog(settings, drivers.cluster.admin, "one", TOPIC_ID)
    drivers.made.append(log)
    await log.open()
    await log.begin(starts(0, 5), {0: 2, 1: 9})
    last, failures = log.last, [KafkaError("not now"), KafkaError("not now, either")]

    async def fails_at_first(partitions: Mapping[int, object]) -> dict[int, Batch]:
        if failures:
            raise failures.pop()
        return await last(partitions)

    counted = metrics.DEAD.labels("invalid-json")._value.get()
    proxy.reset(lambda request: request.api is Api.END_TXN, answer=answer)
    monkeypatch.setattr(log, "last", fails_at_first)
    await log.refuse(1, [refused(1, 5)], 9)
    assert failures == []
    assert await offsets_told(drivers) == [(1, 5)]
    assert metrics.DEAD.labels("invalid-json")._value.get() == counted + 1


async def test_a_new_checkpoint_that_goes_on_for_a_lost_one_may_try_again(drivers: Drivers) -> None:
    lost = await drivers.open("lost")
    await lost.begin(starts(0, 0), {0: 2, 1: 2})
    log = await drivers.open("one")
    assert set(await log.take_over(BOTH)) == {0, 1}
    await log.close()  # as after an error
    await log.begin(starts(0, 0), {0: 2, 1: 2})
    assert (await log.last(BOTH))[0].checkpoint == "one"


async def test_of_a_dead_letter_that_is_too_large_its_beginning_is_kept(drivers: Drivers) -> None:
    topic = drivers.settings.dead_letters_topic
    limit = {"max.message.bytes": "300000"}
    await drivers.cluster.admin.create_topics([NewTopic(topic, 1, 1, topic_configs=limit)])
    log = await drivers.open("one")
    await log.begin(starts(0, 5), {0: 2, 1: 9})
    large = refused(1, 6)
    large = large._replace(record=large.record._replace(value=b"{" * 400_000))
    await log.refuse(1, [refused(1, 5), large], 9)
    assert await offsets_told(drivers) == [(1, 5), (1, 6)]
    assert [len(record.value or b"") for record in await drivers.cluster.read(topic)] == [1, KEPT_BYTES]
    await configure(drivers.cluster.admin, topic, {"max.message.bytes": "1000"})
    await log.begin(starts(0, 9), {0: 2, 1: 12})
    with pytest.raises(Fatal, match=r"refuses a dead letter as too large: raise its max.message.bytes"):
        await log.refuse(1, [large], 12)
