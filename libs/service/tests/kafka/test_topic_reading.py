"""`keygrouping inspect` on a real topic: what it reads, and that it leaves no trace."""

import asyncio
import json
import time
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Self

import pytest
from aiokafka import AIOKafkaProducer
from aiokafka.admin import NewPartitions
from keygrouping.cli import main
from keygrouping.inspection import Extraction, InspectionError, Sample, Silence
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.damage import write_unreadable
from keygrouping_service.kafka import clients, topic_fetching, topic_reading
from keygrouping_service.kafka.topic_reading import TopicReading, open_topic
from keygrouping_service.records.batches import Outbox
from keygrouping_service.records.v2.batch import BufferBatch
from keygrouping_service.settings import ServiceSettings
from keygrouping_service.testing import Cluster, until

pytestmark = pytest.mark.kafka
SIZES = (500, 1500, 0)
LOOKS = 10
LONGEST = 300.0


@pytest.fixture(scope="module")
def broker(fresh_broker: EmbeddedBroker) -> EmbeddedBroker:
    return fresh_broker


@pytest.fixture
async def cluster(broker: EmbeddedBroker) -> AsyncIterator[Cluster]:
    async with Cluster(broker.bootstrap_servers) as found:
        yield found


@pytest.fixture
async def topic(cluster: Cluster, topic_prefix: str) -> str:
    """Three partitions: keys that are no UTF-8, one of them hot, and records without key."""
    name = f"{topic_prefix}-events"
    await cluster.create(**{name.replace("-", "__"): len(SIZES)})
    for partition, size in enumerate(SIZES):
        rows = [(b"\xffhot" if n % 2 else b"key-%d" % n, b'{"n": 2}') for n in range(size)]
        await cluster.write(name, rows, partition, timestamp_ms=1_700_000_000_000 + partition)
    await cluster.write(name, [(None, b"x")] * 3, 0)
    return name


def untold(done: int, total: int) -> None:
    """Progress that nobody looks at."""


def reading(cluster: Cluster, topic: str, *, sample: int | None = None, follow: bool = False) -> TopicReading:
    return open_topic(
        topic,
        Extraction(),
        bootstrap_servers=cluster.bootstrap_servers,
        sample=sample,
        follow=follow,
        progress=untold,
    )


async def traces(cluster: Cluster) -> tuple[set[str], int]:
    """All topics, and the number of consumer groups."""
    return set(await cluster.admin.list_topics()), len(await cluster.admin.list_consumer_groups())


async def test_the_command_reads_all_and_leaves_no_trace(
    cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = await traces(cluster)
    arguments = ["inspect", "--topic", topic, "--bootstrap-servers", cluster.bootstrap_servers, "--json"]
    options = ["--workers", "4", "--groupings", "key", "shuffle", "--interval", "500", "--weight", "field=n"]
    await asyncio.to_thread(main, [*arguments, *options])
    printed = capsys.readouterr()
    data = json.loads(printed.out)
    told = [line for line in printed.err.splitlines() if not line.startswith(f"reading {topic}: ")]
    assert told == []  # Progress is told where the machine is slow.
    assert (data["source"]["events"], data["source"]["weight"]) == (2000, 4000.0)
    assert data["source"]["left_out"] == {"invalid-json": 3} and data["source"]["sample"] is None
    assert (data["source"]["followed"], data["source"]["silence"]) == (0, None)
    for part in (data["source"], *data["trend"]):
        assert (part["earliest_ms"], part["latest_ms"]) == (1_700_000_000_000, 1_700_000_000_001)
    assert [each["events"] for each in data["partitions"]["loads"]] == list(SIZES)
    assert data["partitions"]["lambda"] == 3 * 1500 / 2000
    assert data["keys"]["top"][0] | {"key": ""} == data["keys"]["top"][0] | {"key": "", "share": 0.5}
    assert data["keys"]["top"][0]["key"].startswith("base64url:_2hvd")
    assert await traces(cluster) == before


async def test_a_sample_is_spread_over_all_partitions(cluster: Cluster, topic: str) -> None:
    sampled = reading(cluster, topic, sample=1000)
    batches = await asyncio.to_thread(lambda: list(sampled.batches()))
    taken = Counter(int(p) for batch in batches if batch.partitions is not None for p in batch.partitions)
    assert sum(taken.values()) + sum(sampled.left_out.values()) == 1000
    assert sampled.sample == Sample(size=1000, of=sum(SIZES) + 3, records=1000) and sampled.followed == 0
    assert abs(taken[1] - 1000 * 1500 / 2003) <= 1
    numbers = [int(key[4:]) for batch in batches for key in batch.keys if key.startswith(b"key-")]
    assert min(numbers) < 300 and max(numbers) > 1200


async def test_offsets_without_records_are_told_from_records(cluster: Cluster, topic_prefix: str) -> None:
    name = f"{topic_prefix}-events"
    await cluster.create(**{name.replace("-", "__"): 1})
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=topic_prefix)
    async with producer:
        for number in range(20):
            async with producer.transaction():
                await producer.send_and_wait(name, b"", b"%d" % number)
    sampled = reading(cluster, name, sample=20)
    await asyncio.to_thread(lambda: list(sampled.batches()))
    assert sampled.sample == Sample(size=20, of=40, records=10)


@pytest.mark.parametrize("sample", [None, 12])
async def test_what_can_not_be_read_is_left_out_as_a_router_leaves_it_out(
    broker: EmbeddedBroker, cluster: Cluster, topic_prefix: str, sample: int | None
) -> None:
    """Beside it lie batches of each codec, names of headers that are not UTF-8, and an aborted transaction."""
    name = f"{topic_prefix}-events"
    await cluster.create(**{name.replace("-", "__"): 2})
    settings = ServiceSettings(bootstrap_servers=cluster.bootstrap_servers)
    for number, codec in enumerate(["none", "gzip", "snappy", "lz4", "zstd"]):
        transactional_id = f"{name}-{number}"
        async with clients.started(
            clients.producer(settings, transactional_id=transactional_id, compression=codec)
        ) as producer:
            for aborted in (True, False):
                await producer.begin_transaction()
                outbox = Outbox(producer)
                headers = (("caf\udce9", b"1"),) if number % 2 else ()
                row = (0, 1, b"aborted" if aborted else codec.encode(), b"", headers)
                outbox.pass_on(name, number % 2, BufferBatch.of("", 0, [row]))
                await outbox.send()
                await (producer.abort_transaction() if aborted else producer.commit_transaction())
        if number == 2:
            await write_unreadable(broker, settings, name, 1)
    read = reading(cluster, name, sample=sample)
    batches = await asyncio.to_thread(lambda: list(read.batches()))
    keys = [key for batch in batches for key in batch.keys]
    if sample is None:
        assert read.left_out == {"record-too-large": 1, "undecodable-batch": 1, "invalid-header": 2}
        assert sorted(keys) == [b"none", b"snappy", b"zstd"]
    else:
        assert read.sample is not None and read.sample.records == len(keys) + sum(read.left_out.values()) > 0


async def test_values_are_not_kept(cluster: Cluster, topic_prefix: str) -> None:
    name = f"{topic_prefix}-events"
    await cluster.create(**{name.replace("-", "__"): 1})
    size, count = 100_000, 600
    await cluster.write(name, [(b"%d" % number, b"x" * size) for number in range(count)])

    def most() -> int:
        tracemalloc.start()
        try:
            assert sum(len(batch.keys) for batch in reading(cluster, name).batches()) == count
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert await asyncio.to_thread(most) < size * count / 2


class Tail:
    """A reading that is followed in a thread; use as an async context manager."""

    def __init__(self, reading: TopicReading) -> None:
        self.reading = reading
        self.keys: list[bytes] = []
        self._wanted: Callable[[], bool] = lambda: False
        self._done = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._thread = asyncio.create_task(asyncio.to_thread(self._read))
        self._ends = False

    async def until(self, wanted: Callable[[], bool]) -> None:
        """Returns when this is true after a look at the topic."""
        self._done.clear()
        self._wanted = wanted
        waiting = asyncio.create_task(self._done.wait())
        await asyncio.wait([waiting, self._thread], timeout=LONGEST, return_when=asyncio.FIRST_COMPLETED)
        assert self._done.is_set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exception: object) -> None:
        self._ends = True
        await self._thread

    def _read(self) -> None:
        batches = self.reading.batches()
        try:
            for batch in batches:
                self.keys += batch.keys
                if self._wanted():
                    self._loop.call_soon_threadsafe(self._done.set)
                if self._ends:
                    return
        finally:
            batches.close()


async def test_it_follows_what_comes(cluster: Cluster, topic: str) -> None:
    async with Tail(reading(cluster, topic, sample=0, follow=True)) as tail:
        await tail.until(lambda: tail.reading.sample is not None)
        await cluster.write(topic, [(b"new", b""), (None, b"")], 2)
        await tail.until(lambda: bool(tail.keys and tail.reading.left_out))
    assert tail.keys == [b"new"] and tail.reading.followed == 1
    assert tail.reading.sample == Sample(size=0, of=sum(SIZES) + 3, records=0)


async def test_what_is_followed_is_no_part_of_the_sample(cluster: Cluster, topic: str) -> None:
    async with Tail(reading(cluster, topic, sample=300, follow=True)) as tail:
        await tail.until(lambda: len(tail.keys) + tail.reading.left_out.total() == 300)
        await cluster.write(topic, [(b"new", b"")] * 3000, 2)
        await tail.until(lambda: tail.reading.followed == 3000)
    assert tail.keys.count(b"new") == 3000
    assert tail.reading.sample == Sample(size=300, of=sum(SIZES) + 3, records=300)


async def knows(cluster: Cluster, topic: str, partition: int) -> bool:
    """Whether the producer has heard of a partition: the broker tells of a new one when it is ready for it."""
    await cluster.producer.client.force_metadata_update()
    return partition in (cluster.producer.client.cluster.partitions_for_topic(topic) or ())


async def test_partitions_that_are_added_are_followed(
    cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_reading, "_REFRESH_MS", 500)
    async with Tail(reading(cluster, topic, sample=0, follow=True)) as tail:
        await tail.until(lambda: tail.reading.sample is not None)
        await cluster.write(topic, [(b"old", b"")], 0)
        await tail.until(lambda: bool(tail.keys))
        await cluster.admin.create_partitions({topic: NewPartitions(len(SIZES) + 1)})
        await until(lambda: knows(cluster, topic, len(SIZES)))
        await cluster.write(topic, [(b"%d" % number, b"") for number in range(10)], len(SIZES))
        await tail.until(lambda: len(tail.keys) == 11)
        await cluster.write(topic, [(b"after", b"")], 0)
        await tail.until(lambda: len(tail.keys) == 12)
    assert tail.keys == [b"old", *(b"%d" % number for number in range(10)), b"after"]
    assert tail.reading.partitions == len(SIZES) + 1


async def test_a_broker_that_goes_away_is_told(
    broker: EmbeddedBroker, cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read() -> None:
        batches = reading(cluster, topic, sample=1000).batches()
        next(batches)
        monkeypatch.setattr(topic_fetching, "_TIMEOUT", 2.0)
        broker.kill()
        with pytest.raises(InspectionError, match=r"nothing came for 2 s from partitions 0, 1.*its brokers run"):
            list(batches)

    try:
        await asyncio.wait_for(asyncio.to_thread(read), LONGEST)
    finally:
        await asyncio.to_thread(broker.start)


async def test_while_it_is_followed_a_broker_may_come_back(
    broker: EmbeddedBroker, cluster: Cluster, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_fetching, "_SILENCE", 2.0)
    async with Tail(reading(cluster, topic, sample=0, follow=True)) as tail:
        await tail.until(lambda: tail.reading.sample is not None)
        written = time.time()
        await cluster.write(topic, [(b"before", b"")], 1)
        await tail.until(lambda: bool(tail.keys))
        assert tail.reading.silence is None
        await asyncio.to_thread(broker.kill)
        killed = time.time()
        try:
            await tail.until(lambda: tail.reading.silence is not None)
            silence = tail.reading.silence
        finally:
            await asyncio.to_thread(broker.start)
        assert isinstance(silence, Silence) and (silence.partitions, silence.of) == (3, 3)
        assert written - 1 <= silence.since_ms / 1000 <= killed + 1
        await tail.until(lambda: tail.reading.silence is None)
        await cluster.write(topic, [(b"after", b"")], 1)
        await tail.until(lambda: len(tail.keys) == 2)
    assert tail.keys == [b"before", b"after"]


async def test_a_topic_that_is_not_there_is_told_and_not_made(cluster: Cluster, topic_prefix: str) -> None:
    missing = f"{topic_prefix}-missing"
    with pytest.raises(InspectionError, match=f"topic {missing} does not exist"):
        await asyncio.to_thread(lambda: list(reading(cluster, missing).batches()))
    assert missing not in await cluster.admin.list_topics()


async def test_a_topic_that_is_deleted_meanwhile_is_not_made_again(cluster: Cluster, topic: str) -> None:
    tail = reading(cluster, topic, follow=True)

    def read_on() -> None:
        batches = tail.batches()
        since = 0
        try:
            for batch in batches:
                since += deleted.is_set()
                if since == LOOKS:
                    return
                if not batch.keys:
                    loop.call_soon_threadsafe(at_end.set)
        except InspectionError:
            return
        finally:
            batches.close()

    loop, at_end, deleted = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    following = asyncio.create_task(asyncio.to_thread(read_on))
    await asyncio.wait_for(at_end.wait(), LONGEST)
    await cluster.admin.delete_topics([topic])
    deleted.set()
    await asyncio.wait_for(following, LONGEST)
    assert topic not in await cluster.admin.list_topics()


async def test_settings_that_will_not_do_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYGROUPING_SECURITY_PROTOCOL", "SASL_SSL")
    with pytest.raises(InspectionError, match="needs KEYGROUPING_SASL_USERNAME"):
        open_topic("t", Extraction(), bootstrap_servers="h:1", sample=None, follow=False, progress=untold)


def test_the_salt_of_the_command_is_no_unknown_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYGROUPING_INSPECT_SALT", "secret")
    opened = open_topic("t", Extraction(), bootstrap_servers="h:1", sample=None, follow=False, progress=untold)
    assert opened.name == "t"
