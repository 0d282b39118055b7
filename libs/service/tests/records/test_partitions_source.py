"""Several partitions by one consumer: nothing is lost, nothing stops it, and a poll stays small."""

from types import SimpleNamespace
from typing import Any

import pytest
from aiokafka import TopicPartition
from aiokafka.errors import OffsetOutOfRangeError
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.damage import write_unreadable
from keygrouping_service.kafka import clients
from keygrouping_service.records.aiokafka_adapter import PartitionsSource, _Unfinished
from keygrouping_service.records.batches import Outbox
from keygrouping_service.records.record import DeadLetter, Record, UndecodableError, in_order
from keygrouping_service.records.unpacking import AT_ONCE, Unpacking
from keygrouping_service.records.v2.batch import BufferBatch
from keygrouping_service.settings import StageSettings
from keygrouping_service.testing import Cluster

CODECS = ("none", "gzip", "snappy", "lz4", "zstd", "none")
ODD = (("caf\udce9", b"1"), ("none", None))
"""A name that is not UTF-8."""


async def write(settings: StageSettings, topic: str, partition: int, codec: str, rows: list[Any]) -> None:
    """Key, value and headers of each, all in one transaction; the producer's id is the partition's own."""
    name = f"{settings.application}-{partition}"
    async with (
        clients.started(clients.producer(settings, transactional_id=name, compression=codec)) as producer,
        producer.transaction(),
    ):
        outbox = Outbox(producer)
        outbox.pass_on(topic, partition, BufferBatch.of("", 0, [(n, 1000 + n, *row) for n, row in enumerate(rows)]))
        await outbox.send()


async def abort(settings: StageSettings, topic: str, partition: int) -> None:
    async with clients.started(clients.producer(settings, transactional_id=f"{settings.application}-x")) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(topic, b"aborted", b"aborted", partition)
        await producer.abort_transaction()


async def read_up_to_ends(
    settings: StageSettings, source: PartitionsSource, tps: list[TopicPartition], most: int
) -> tuple[dict[TopicPartition, list[Record]], list[DeadLetter], list[int]]:
    """The records, what was left out, and the bytes of each poll's values."""
    reader = source.consumer
    reader.assign(tps)
    for tp in tps:
        reader.seek(tp, 0)
    # Ends of transactions come after they are answered: what is committed may seem to end before its last record.
    async with clients.started(clients.reader(settings, committed=False)) as all_there_is:
        ends = await all_there_is.end_offsets(tps)
    found: dict[TopicPartition, list[Record]] = {tp: [] for tp in tps}
    letters, sizes = [], []
    while any([await reader.position(tp) < ends[tp] for tp in tps]):
        batches = await source.poll(*tps, most=most, timeout=0.2)
        assert sum(map(len, batches.values())) <= most
        letters += source.left_out()
        sizes.append(sum(int(batch.sizes().sum()) for batch in batches.values()))
        for tp, batch in batches.items():
            found[tp] += batch
    return found, letters, sizes


@pytest.mark.kafka
@pytest.mark.parametrize("most", [7, 5000])
async def test_what_one_partition_has_that_can_not_be_read_costs_none_of_the_others_a_record(
    broker: EmbeddedBroker, cluster: Cluster, settings: StageSettings, application: str, most: int
) -> None:
    await cluster.create(**{application: len(CODECS)})
    tps = [TopicPartition(application, number) for number in range(len(CODECS))]
    for tp, codec in zip(tps, CODECS, strict=True):
        rows = [(b"k%d" % n, b"v" * n if n % 4 else None, ODD if n % 5 == 0 else ()) for n in range(40)]
        await write(settings, application, tp.partition, codec, rows)
        await abort(settings, application, tp.partition)
    await write_unreadable(broker, settings, application, 7)
    for tp, codec in zip(tps, CODECS, strict=True):
        await write(settings, application, tp.partition, codec, [(b"last", None, ())])
    source = clients.source(settings)
    async with clients.started(source.consumer):
        for _ in range(5):  # What of a fetch comes first is chance.
            found, letters, _ = await read_up_to_ends(settings, source, tps, most)
            for tp in tps:
                keys = [record.key for record in found[tp]]
                assert keys == [*(b"k%d" % n for n in range(40)), b"last"], tp
                assert [record.headers for record in found[tp][:6]] == [ODD, (), (), (), (), ODD]
                assert [record.value for record in found[tp][:3]] == [None, b"v", b"vv"]
            large, damaged = letters
            after = found[tps[0]][39].offset + 4  # and three markers
            assert (large.reason, large.offset, large.after) == ("record-too-large", after, after + 1)
            assert (damaged.reason, damaged.offset, damaged.after) == ("undecodable-batch", after + 1, after + 3)
            assert (large.record.key, large.record.timestamp, large.record.value) == (b"large", 7, bytes(100_000))
            place = in_order(found[tps[0]], letters)
            assert [each.offset for each in place] == sorted(each.offset for each in place) and place[40] is large


@pytest.mark.kafka
async def test_a_position_that_is_none_of_its_partition_s_costs_the_others_no_record(
    cluster: Cluster, settings: StageSettings, application: str
) -> None:
    await cluster.create(**{application: 4})
    tps = [TopicPartition(application, number) for number in range(4)]
    for tp in tps:
        await cluster.write(application, [(b"%d" % n, b"") for n in range(20)], tp.partition)
    source, raised = clients.source(settings), 0
    found: list[tuple[int, int]] = []
    async with clients.started(source.consumer) as reader:
        reader.assign(tps)
        for tp in tps:
            reader.seek(tp, 0 if tp.partition else 1000)
        while len(found) < 60 or not raised:
            try:
                for batch in (await source.poll(*tps, most=7, timeout=0.2)).values():
                    found += [(record.partition, record.offset) for record in batch]
            except OffsetOutOfRangeError:
                raised += 1
    assert sorted(found) == [(partition, offset) for partition in (1, 2, 3) for offset in range(20)]


@pytest.mark.kafka
async def test_a_poll_stays_small_however_many_partitions_have_large_batches(
    cluster: Cluster, settings: StageSettings, application: str
) -> None:
    await cluster.create(**{application: 5})
    tps = [TopicPartition(application, number) for number in range(5)]
    for tp in tps:
        await write(settings, application, tp.partition, "gzip", [(b"k", bytes(1 << 19), ())] * 36)
    source = clients.source(settings)
    async with clients.started(source.consumer):
        found, letters, sizes = await read_up_to_ends(settings, source, tps, 5000)
    assert [len(records) for records in found.values()] == [36] * 5 and not letters
    assert max(sizes) <= 2 * AT_ONCE + (8 << 20)


@pytest.mark.parametrize(
    ("after", "stable", "goes_on_at"),
    [(7, 20, 7), (1 << 40, 18, 18), (1 << 40, -1, 20), (1 << 40, None, 20), (3, 20, 5)],
)
async def test_a_batch_that_can_not_be_read_is_asked_for_twice_and_its_header_is_not_believed_beyond_the_end(
    after: int, stable: int | None, goes_on_at: int
) -> None:
    """Another partition's records, which come with it, are handed on."""
    tp, other = TopicPartition("t", 0), TopicPartition("t", 1)
    letter = DeadLetter(Record("t", 0, 4, -1, None, b"raw"), "undecodable-batch", "why", after - 1)
    sought: list[tuple[TopicPartition, int]] = []
    beside = BufferBatch.of("t", 1, [(0, 1, b"k", b"v", ())])

    async def getmany(*_: TopicPartition, **__: int) -> dict[TopicPartition, Any]:
        return {other: beside, tp: _Unfinished(UndecodableError(letter, after))}

    consumer: Any = SimpleNamespace(
        getmany=getmany,
        highwater=lambda _: 20,
        last_stable_offset=lambda _: stable,
        seek=lambda tp, offset: sought.append((tp, offset)),
    )
    source = PartitionsSource(consumer, Unpacking())
    assert await source.poll(tp, other, most=9, timeout=1.0) == {other: beside}
    assert source.left_out() == [] and sought == []
    assert await source.poll(tp, other, most=9, timeout=1.0) == {other: beside}
    assert source.left_out() == [letter._replace(last=goes_on_at - 1)]
    assert source.left_out() == [] and sought == [(tp, goes_on_at)]
