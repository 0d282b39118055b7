"""Combining workers and an input that is large, damaged, or deleted in part: what is used is exact, the rest told."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import islice

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import RecordsToDelete
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.comparison import compare, compare_left_out
from keygrouping_local.damage import damage
from keygrouping_local.deployment import Deploy, Deployment, Event, Shape
from keygrouping_local.oracle import Oracle
from keygrouping_local.records import dead_letters, read_all, read_letters, read_results, reasons
from keygrouping_service.kafka import clients
from keygrouping_service.records.protocols import RecordBatch
from keygrouping_service.testing import configure

from .test_combining import DAY, JOB, START, events, start

pytestmark = pytest.mark.kafka

MB = 1 << 20


async def write_large(deployment: Deployment, *rows: Event) -> None:
    """Writes events one by one, each a batch, that no producer with the usual bounds would."""
    settings = deployment.settings
    options = settings.kafka_options() | {"max_request_size": 1 << 30, "compression_type": "gzip"}
    async with clients.started(AIOKafkaProducer(**options)) as producer:
        for row in rows:
            await producer.send_and_wait(settings.events_topic, row.value, row.key, row.partition, row.time_ms)


async def limit(deployment: Deployment, topic: str, configs: dict[str, int]) -> None:
    given = {name: str(value) for name, value in ({"retention.ms": -1} | configs).items()}
    await configure(deployment.admin, topic, given)


def document(size: int) -> bytes:
    return b'{"n":1,"kind":"1","cost":1,"filler":"%s"}' % (b"x" * size)


async def letters(deployment: Deployment) -> dict[int, tuple[str, str]]:
    """Reason and detail of each dead letter of partition 0, by offset."""
    found = [each async for each in read_letters(deployment.settings, deployment.settings.dead_letters_topic)]
    assert len({(each.partition, each.offset) for each in found}) == len(found)
    return {each.offset: (each.reason, each.detail) for each in found if each.partition == 0}


async def test_a_late_event_that_is_too_large_for_its_topic_is_a_dead_letter_at_once(deploy: Deploy) -> None:
    """What is large and in time counts, what is large and of no use keeps its reason; no session begins again."""
    deployment = await deploy(JOB, Shape(partitions=1))
    settings = deployment.settings
    await limit(deployment, settings.events_topic, {"max.message.bytes": 16 * MB})
    start(deployment, "worker-0", "aggregator-0", idle_timeout=60, flush_interval=0.1)
    stream, late, large = events(2000, partitions=1), START - DAY, 3 * MB
    await deployment.write(islice(stream, 1000))
    await write_large(
        deployment,
        Event(0, b"late", document(large), late),
        Event(0, b"in time", document(large), START + 20_000),
        Event(0, b"late again", document(large), late),
        Event(0, b"of no use", b"x" * large, START + 20_000),
        Event(0, b"late and small", document(10), late),
    )
    await deployment.write(stream)
    comparison = await deployment.check()
    assert comparison.equal, comparison
    found = await letters(deployment)
    assert [found[offset][0] for offset in (1000, 1002, 1003)] == [
        "record-too-large",
        "record-too-large",
        "invalid-json",
    ]
    assert "the event is late" in found[1000][1]
    assert "raise max.message.bytes, and restart the workers" in found[1000][1]
    assert not {1001, 1004} & found.keys()
    assert (0, 1004) in await reasons(settings, settings.late_topic)
    said = deployment.log("worker-0").read_text()
    assert said.count("the event is late") == 1
    assert "at the committed offset" not in said and "at its committed offset" not in said


async def test_poison_records_become_dead_letters_and_all_else_is_exact(deploy: Deploy, broker: EmbeddedBroker) -> None:
    """One too large to be read, one that the broker refuses, and a batch that is damaged on its disk."""
    deployment = await deploy(JOB, Shape(partitions=1))
    settings = deployment.settings
    await limit(deployment, settings.events_topic, {"max.message.bytes": 16 * MB})
    # Late ones of the stream are taken, one of the day before is not.
    bound = int(time.time() * 1000) - START + DAY // 2
    await limit(deployment, settings.late_topic, {"message.timestamp.before.max.ms": bound})
    stream = events(3000, partitions=1)
    await deployment.write(islice(stream, 1000))
    await write_large(deployment, Event(0, b"large", document(20 * MB), START + 20_000))
    await deployment.write(islice(stream, 500))
    await write_large(deployment, Event(0, b"refused", document(10), START - DAY))
    await deployment.write([Event(0, b"damaged", b'{"n":1,"kind":"whole"}', START + 30_000)])
    await deployment.write(stream)
    damage(broker, settings.events_topic, b"whole", b"WHOLE")
    start(deployment, "worker-0", "aggregator-0", idle_timeout=60)
    await deployment.finish()
    await deployment.until(deployment.is_final)
    # The oracle can read it again.
    damage(broker, settings.events_topic, b"WHOLE", b"whole")
    comparison = await deployment.check()
    assert comparison.equal, comparison
    found = await letters(deployment)
    reader = {offset: reason for offset, (reason, _) in found.items() if offset in (1000, 1501, 1502)}
    assert reader == {1000: "record-too-large", 1501: "refused-by-broker", 1502: "undecodable-batch"}


async def test_what_retention_deletes_unread_is_told_and_all_else_is_exact(deploy: Deploy) -> None:
    deployment = await deploy(JOB, Shape(partitions=2))
    settings, stream = deployment.settings, events(6000, partitions=2)
    oracle, seen = Oracle(deployment.job), dict.fromkeys(range(2), 0)

    async def expect(kept: Callable[[RecordBatch], RecordBatch]) -> None:
        """The oracle reads what has come to the input since it did last."""
        async for records in read_all(settings, settings.events_topic):
            new = records.where(records.offsets >= seen[records.partition])
            if len(new):
                seen[records.partition] = int(new.offsets[-1]) + 1
                oracle.add(kept(new))

    start(deployment, "worker-0", "aggregator-0", idle_timeout=60)
    await deployment.write(islice(stream, 2000))
    await deployment.until(deployment.is_routed)
    assert deployment.stop("worker-0") == 0
    await expect(lambda records: records)
    first, after = seen[0], seen[0] + 700
    await deployment.write(islice(stream, 2000))
    await expect(lambda records: records.where((records.partition != 0) | (records.offsets >= after)))
    await deployment.admin.delete_records({TopicPartition(settings.events_topic, 0): RecordsToDelete(after)})
    start(deployment, "worker-0", idle_timeout=60)
    await deployment.write(stream)
    await deployment.finish()
    await expect(lambda records: records)
    await deployment.until(deployment.is_final)
    expected = oracle.finish()
    comparison = compare(expected, await read_results(settings))
    compare_left_out(expected, await reasons(settings, settings.late_topic), await dead_letters(settings), comparison)
    assert comparison.equal, comparison
    assert (
        f"{settings.events_topic}[0]: retention deleted {after - first} offsets unread"
        in deployment.log("worker-0").read_text()
    )
