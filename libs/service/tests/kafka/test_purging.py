"""Purging: only what all readers have committed goes, and it goes from a real broker's disk."""

import asyncio
import logging
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import NewTopic
from aiokafka.protocol.admin import CreateAclsRequest
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.topics import settings_for
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.owned import OwnedPartition
from keygrouping_service.kafka.progress import Committed, Progress, commit_progress
from keygrouping_service.kafka.purging import Purger, Readers, Ripening, Sample, committed_by_all, purging, readers_of
from keygrouping_service.kafka.runner import PartitionRunner
from keygrouping_service.kafka.topics import create_topics, topics_of
from keygrouping_service.observability import metrics
from keygrouping_service.records.aiokafka_adapter import send_request
from keygrouping_service.settings import PurgeSettings, StageSettings
from keygrouping_service.testing import Cluster, until

GROUP, GUEST = "a-worker", "a-guest"
JOB = '{"aggregates": [{"name": "events", "op": "count"}]}'
LOGGER = "keygrouping_service.kafka.purging"


# what may go


def test_the_slowest_reader_decides_and_who_has_nothing_committed_holds_all() -> None:
    readers = readers_of(GROUP, "billing,audit")
    assert readers == Readers((GROUP, "billing", "audit"))
    found = {GROUP: {0: 9, 1: 9, 2: 9}, "billing": {0: 4, 1: 12, 2: -1}, "audit": {0: 7, 1: 8, 2: 9}}
    assert committed_by_all(found, readers) == {0: 4, 1: 8}


def test_a_guest_counts_from_its_first_commit_on() -> None:
    readers = Readers((GROUP,), (GUEST,))
    assert committed_by_all({GROUP: {0: 9, 1: 9}, GUEST: {0: -1, 1: -1}}, readers) == {0: 9, 1: 9}
    assert committed_by_all({GROUP: {0: 9, 1: 9}, GUEST: {0: 3, 1: -1}}, readers) == {0: 3}
    assert committed_by_all({GROUP: {0: 9}, GUEST: {0: 0}}, readers) == {}


def test_what_was_committed_goes_after_its_time_and_no_further() -> None:
    ripening = Ripening(60)
    assert ripening.purgeable(Sample(0, {0: 5})) == {}
    assert ripening.purgeable(Sample(59, {0: 8, 1: 3})) == {}
    assert ripening.purgeable(Sample(60, {0: 9, 1: 4})) == {0: 5}
    assert ripening.purgeable(Sample(119, {0: 10, 1: 5})) == {0: 8, 1: 3}


def test_a_group_that_was_set_back_is_not_robbed() -> None:
    ripening = Ripening(60)
    ripening.purgeable(Sample(0, {0: 100, 1: 100}))
    assert ripening.purgeable(Sample(60, {0: 7})) == {0: 7}


def test_nothing_goes_before_it_is_ripe() -> None:
    final = False
    ripening = Ripening(0, lambda _: final)
    assert ripening.purgeable(Sample(0, {0: 5})) == {}
    assert ripening.purgeable(Sample(500, {0: 6})) == {}
    final = True
    assert ripening.purgeable(Sample(501, {0: 7})) == {0: 7}


def test_memory_stays_bounded_however_long_it_takes() -> None:
    ripening = Ripening(1e6)
    for second in range(20_000):
        ripening.purgeable(Sample(second, {0: second}))
    assert len(ripening.samples) <= 500
    assert ripening.purgeable(Sample(1e6 + 10, {0: 10**6}))[0] <= 10


# on a broker


@pytest.fixture
def settings(broker: EmbeddedBroker, application: str) -> StageSettings:
    names = settings_for(broker.bootstrap_servers, application).model_dump(exclude_unset=True)
    return StageSettings(**names, job=JOB, session_timeout=6)


async def commit(settings: StageSettings, group: str, **offsets: int) -> None:
    """Commits offsets of `routed` for a group without members."""
    consumer = clients.reader(settings, group_id=group)
    async with clients.started(consumer):
        found = {int(name.removeprefix("p")): offset for name, offset in offsets.items()}
        consumer.assign([TopicPartition(settings.routed_topic, partition) for partition in found])
        committed = {partition: Committed(offset) for partition, offset in found.items()}
        await commit_progress(consumer, settings.routed_topic, committed)


async def starts(settings: StageSettings, partitions: int) -> list[int]:
    async with clients.started(clients.reader(settings)) as reader:
        tps = [TopicPartition(settings.routed_topic, partition) for partition in range(partitions)]
        found = await reader.beginning_offsets(tps)
        return [found[tp] for tp in tps]


async def step(settings: StageSettings, purger: Purger, times: int = 1) -> None:
    async with clients.started(clients.admin(settings)) as admin:
        for _ in range(times):
            await clients.retry(lambda: purger.step(admin), "purging")


@pytest.mark.kafka
async def test_a_topic_is_purged_up_to_its_slowest_reader_and_never_beyond(
    cluster: Cluster, settings: StageSettings
) -> None:
    topic = settings.routed_topic
    await cluster.create(**{topic: 3})
    for partition in range(3):
        await cluster.write(topic, [(b"k", b"%d" % n) for n in range(100)], partition)
    before = metrics.PURGED.labels(topic)._value.get()
    worker, second = settings.group("worker"), settings.group("second")
    purger = Purger(topic, readers_of(worker, second), Ripening(0), lambda: range(3))
    await step(settings, purger)
    assert await starts(settings, 3) == [0, 0, 0]
    await commit(settings, worker, p0=60, p1=100)
    await step(settings, purger)
    assert await starts(settings, 3) == [0, 0, 0]
    await commit(settings, second, p0=10, p1=100, p2=50)
    await step(settings, purger, 2)
    assert await starts(settings, 3) == [10, 100, 0]
    await commit(settings, second, p0=80)
    await step(settings, purger)
    assert await starts(settings, 3) == [60, 100, 0]
    assert metrics.PURGED.labels(topic)._value.get() - before == 160
    left = [record.value for record in await cluster.read(topic) if record.partition == 0]
    assert left == [b"%d" % n for n in range(60, 100)]


@pytest.mark.kafka
async def test_a_process_purges_what_it_owns(cluster: Cluster, settings: StageSettings) -> None:
    await cluster.create(**{settings.routed_topic: 2})
    for partition in range(2):
        await cluster.write(settings.routed_topic, [(b"k", b"v")] * 10, partition)
    await commit(settings, settings.group("worker"), p0=5, p1=5)
    owned = [1]
    purger = Purger(settings.routed_topic, readers_of(settings.group("worker"), ""), Ripening(0), lambda: owned)
    await step(settings, purger)
    assert await starts(settings, 2) == [0, 5]
    owned[:] = [0, 1]
    await step(settings, purger)
    assert await starts(settings, 2) == [5, 5]


class Counting:
    """A stage that counts what it reads, commits each batch, and works on."""

    def __init__(self) -> None:
        self.read: list[int] = []

    async def work(self, owned: OwnedPartition) -> None:
        while not owned.stopping:
            records = await owned.poll(10, 0.1)
            if records:
                await owned.commit(None, owned.position, Progress())
                self.read += [record.offset for record in records]


@pytest.mark.kafka
async def test_a_restart_goes_on_where_it_was_purged(cluster: Cluster, settings: StageSettings) -> None:
    topic = settings.routed_topic
    await cluster.create(**{topic: 1, settings.positions_topic: 1})
    stage, purge = Counting(), PurgeSettings(bootstrap_servers=settings.bootstrap_servers, purge_after=0)
    for start in (0, 50):
        await cluster.write(topic, [(b"k", b"v")] * 50)
        stop = asyncio.Event()
        runner = PartitionRunner(settings, "worker", topic, stage.work)
        purger = Purger(topic, readers_of(runner.group, ""), Ripening(0), partial(list, runner.owned))
        async with purging(purge, purger):
            running = asyncio.create_task(runner.run(stop))
            await until(partial(_begins_at, settings, start + 50))
            stop.set()
            await running
    assert stage.read == list(range(100))


async def _begins_at(settings: StageSettings, offset: int) -> bool:
    return await starts(settings, 1) == [offset]


@pytest.mark.kafka
async def test_purging_can_be_switched_off(cluster: Cluster, settings: StageSettings) -> None:
    await cluster.create(**{settings.routed_topic: 1})
    await cluster.write(settings.routed_topic, [(b"k", b"v")] * 10)
    await commit(settings, settings.group("worker"), p0=10)
    looks = 0

    def owned() -> list[int]:
        nonlocal looks
        looks += 1
        return [0]

    purger = Purger(settings.routed_topic, readers_of(settings.group("worker"), ""), Ripening(0), owned)
    off = PurgeSettings(bootstrap_servers=settings.bootstrap_servers, purge=False, purge_after=0)
    async with purging(off, purger):
        await asyncio.sleep(1)
    assert looks == 0
    on = PurgeSettings(bootstrap_servers=settings.bootstrap_servers, purge_after=0)
    async with purging(on, purger):
        await until(lambda: looks > 2)


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    """What purging says; clients on a busy machine warn of other things."""
    return [record.message for record in caplog.records if record.name == LOGGER]


@pytest.mark.kafka
async def test_a_guest_that_stays_silent_is_named(
    cluster: Cluster, settings: StageSettings, caplog: pytest.LogCaptureFixture
) -> None:
    await cluster.create(**{settings.routed_topic: 1})
    await cluster.write(settings.routed_topic, [(b"k", b"v")] * 10)
    await commit(settings, settings.group("worker"), p0=10)
    await commit(settings, settings.group("guest"), p0=4)
    now = 0.0
    readers = readers_of(settings.group("worker"), "", [settings.group("guest")])
    purger = Purger(settings.routed_topic, readers, Ripening(0), lambda: [0], lambda: now)
    await step(settings, purger)
    now = 3599.0
    await step(settings, purger)
    assert await starts(settings, 1) == [4]
    assert not told(caplog)
    now = 3600.0
    await step(settings, purger, 2)
    (line,) = told(caplog)
    assert f"--delete --group {settings.group('guest')}" in line


# brokers of their own


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker that goes by its ACLs, and lets everybody do what none speaks of."""
    properties = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with EmbeddedBroker(tmp_path, properties=properties) as broker:
        yield broker


@pytest.mark.kafka
async def test_without_the_right_to_delete_one_line_says_what_to_do(
    guarded: EmbeddedBroker, application: str, caplog: pytest.LogCaptureFixture
) -> None:
    names = settings_for(guarded.bootstrap_servers, application).model_dump(exclude_unset=True)
    settings = StageSettings(**names, job=JOB)
    topic, may_read, not_delete = settings.routed_topic, (2, 3), (6, 2)
    async with Cluster(guarded.bootstrap_servers) as cluster:
        await cluster.create(**{topic: 1})
        await cluster.write(topic, [(b"k", b"v")] * 10)
        for operation, verdict in (may_read, not_delete):
            request = CreateAclsRequest(2, topic, 3, "User:ANONYMOUS", "*", operation, verdict)
            await send_request(cluster.admin, request)
    await commit(settings, settings.group("worker"), p0=10)
    purge = PurgeSettings(bootstrap_servers=settings.bootstrap_servers, purge_after=0)
    purger = Purger(topic, readers_of(settings.group("worker"), ""), Ripening(0), lambda: [0])
    with caplog.at_level(logging.ERROR, LOGGER):
        async with purging(purge, purger):
            await until(lambda: "cannot be purged" in caplog.text)
    (line,) = told(caplog)
    assert "allow the user to Delete its records, or set KEYGROUPING_PURGE=false" in line


@pytest.fixture
def small(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker that looks often for what it may delete."""
    properties = {"log.retention.check.interval.ms": "300", "log.initial.task.delay.ms": "100"}
    with EmbeddedBroker(tmp_path, properties=properties) as broker:
        yield broker


def bytes_on_disk(folder: Path, topic: str) -> int:
    """Bytes of a topic's segments, without what is renamed to be deleted in a moment."""
    sizes = []
    for file in folder.rglob("*.log"):
        if file.parent.name.startswith(f"{topic}-"):
            try:
                sizes.append(file.stat().st_size)
            except FileNotFoundError:
                continue
    return sum(sizes)


@pytest.mark.kafka
async def test_the_disk_stays_bounded_over_many_segments(
    small: EmbeddedBroker, application: str, tmp_path: Path
) -> None:
    names = settings_for(small.bootstrap_servers, application).model_dump(exclude_unset=True)
    settings = StageSettings(**names, job=JOB)
    topic, segment = settings.routed_topic, 1 << 20
    row = (b"k", b"v" * 10_000)
    async with Cluster(small.bootstrap_servers) as cluster:
        configs = {"segment.bytes": str(segment), "retention.ms": "-1", "file.delete.delay.ms": "0"}
        await cluster.admin.create_topics([NewTopic(topic, 1, 1, topic_configs=configs)])
        purger = Purger(topic, readers_of(settings.group("worker"), ""), Ripening(0), lambda: [0])
        written = 0
        for _ in range(6):
            await cluster.write(topic, [row] * 400)
            written += 400
            await commit(settings, settings.group("worker"), p0=written)
            await step(settings, purger)
            await until(lambda: bytes_on_disk(tmp_path, topic) <= 2 * segment)
    assert written * 10_000 > 20 * segment


@pytest.mark.kafka
@pytest.mark.parametrize("kind", ["late", "receipts"])
async def test_letters_are_bounded_by_size_and_so_are_receipts_that_nobody_audits(
    small: EmbeddedBroker, tmp_path: Path, kind: str
) -> None:
    settings = settings_for(small.bootstrap_servers, "letters")
    topic = getattr(settings, f"{kind}_topic")
    bound = 8 << 20
    async with Cluster(small.bootstrap_servers) as cluster:
        topics = topics_of(settings, letters_bytes=bound)
        await create_topics(cluster.admin, topics)
        for _ in range(4):
            await cluster.write(topic, [(b"k", b"v" * 10_000)] * 500, timestamp_ms=1)
        await until(lambda: bytes_on_disk(tmp_path, topic) <= bound + bound // 8)
        left = await cluster.read(topic)
        assert left[-1].offset == 1999
        assert len(left) > 600
