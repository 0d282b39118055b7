"""Tasks read the committed records of their offsets, each once, whatever the broker has between them."""

from __future__ import annotations

import asyncio
import pickle
import random
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from itertools import accumulate, chain, pairwise
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import RecordsToDelete
from keygrouping.aggregate import Aggregate, NumberField
from keygrouping.job import JobSpec
from keygrouping.partial import Partial
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_service.kafka.clients import started
from keygrouping_service.records.aiokafka_adapter import PartitionSource
from keygrouping_service.records.columns import Columns
from keygrouping_service.records.record import DeadLetter, Record, UndecodableError
from keygrouping_service.testing import Cluster
from keygrouping_spark import fetching
from keygrouping_spark.access import Access
from keygrouping_spark.fetching import BrokerAwayError, Fetching, LostRecordsError, Range, UnreadableError
from keygrouping_spark.pre_aggregation import AggregateFailedError, PreAggregation, Seen

pytestmark = pytest.mark.kafka

JOB = JobSpec.from_json({"window": "1m", "aggregates": [{"name": "total", "op": "sum", "field": "x"}]})
TOPIC_ID = "x" * 22
LARGE = 17 << 20
"""More than a record may be."""


@pytest.fixture
async def cluster(broker: EmbeddedBroker) -> AsyncIterator[Cluster]:
    async with Cluster(broker.bootstrap_servers) as found:
        yield found


@pytest.fixture(autouse=True)
async def _no_client_stays() -> AsyncIterator[None]:
    yield
    await asyncio.to_thread(fetching.forget_client)


def fetching_of(cluster: Cluster, topic: str) -> Fetching:
    """As a task gets it, which is sent to its process."""
    access = Access({"bootstrap_servers": cluster.bootstrap_servers}, None)
    found: Fetching = pickle.loads(pickle.dumps(Fetching(access, topic)))
    return found


async def read(task: Fetching, wanted: Range) -> list[Record]:
    """All that is read of a range, record by record."""
    return await asyncio.to_thread(lambda: list(chain.from_iterable(task.read(wanted))))


async def fill(cluster: Cluster, topic: str, transactions: int) -> int:
    """Records of several producers in transactions, of which a third are aborted; gives where the partition ends."""
    rng = random.Random(7)
    await cluster.create(**{topic: 1})
    for number in range(transactions):
        options = {"transactional_id": f"{topic}-{number % 3}", "compression_type": rng.choice([None, "lz4", "zstd"])}
        async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **options) as producer:
            await producer.begin_transaction()
            for each in range(rng.randrange(1, 40)):
                value = b'{"x":%d}' % rng.randrange(1000)
                headers = [("h", b"%d" % each)] if each % 3 else []
                await producer.send(topic, value, b"k%d" % rng.randrange(5), 0, 1000 + each, headers)
            await (producer.abort_transaction() if rng.random() < 1 / 3 else producer.commit_transaction())
    await cluster.transactions_end(topic)
    return await end_of(cluster, topic)


async def end_of(cluster: Cluster, topic: str) -> int:
    tp = TopicPartition(topic, 0)
    options = {"bootstrap_servers": cluster.bootstrap_servers, "isolation_level": "read_committed"}
    async with started(AIOKafkaConsumer(**options)) as consumer:
        return int((await consumer.end_offsets([tp]))[tp])


@pytest.mark.parametrize(("fetched", "polled"), [(4 << 20, 100_000), (200, 100_000), (4 << 20, 7), (2000, 3)])
async def test_ranges_hold_what_a_consumer_reads_each_record_once(
    cluster: Cluster, application: str, monkeypatch: pytest.MonkeyPatch, fetched: int, polled: int
) -> None:
    """However many bytes are fetched and records polled at once."""
    monkeypatch.setattr(fetching, "_FETCH_BYTES", fetched)
    monkeypatch.setattr(fetching, "_POLL_RECORDS", polled)
    end = await fill(cluster, application, 30)
    expected = await cluster.read(application)
    assert len(expected) < end - 30, "some are aborted, and each transaction has a marker"
    task, rng = fetching_of(cluster, application), random.Random(3)
    for _ in range(5):
        bounds = [0, *sorted(rng.sample(range(1, end), 9)), end]
        ranges = [Range(0, begin, stop) for begin, stop in pairwise(bounds)]
        rng.shuffle(ranges)
        found = [await read(task, wanted) for wanted in ranges]
        for wanted, part in zip(ranges, found, strict=True):
            assert part == [r for r in expected if wanted.begin <= r.offset < wanted.end], wanted
    assert await read(task, Range(0, end, end)) == []


async def test_a_range_is_read_again_to_the_same_partials(cluster: Cluster, application: str) -> None:
    end = await fill(cluster, application, 12)
    expected = sum(int(r.value[5:-1]) for r in await cluster.read(application) if r.value)
    task, wanted = fetching_of(cluster, application), Range(0, 3, end)

    def partials() -> list[bytes]:
        seen: Seen = {}
        made = PreAggregation(JOB, 0, TOPIC_ID)(wanted, task.read(wanted), seen)
        values: list[bytes] = [value for batch in made for value in batch["value"].to_pylist()]
        assert seen == {(0, 3): (sum(Partial.decode(value).events for value in values), None)}
        return values

    first, second = [await asyncio.to_thread(partials) for _ in range(2)]
    assert first == second
    before = sum(int(r.value[5:-1]) for r in await cluster.read(application) if r.value and r.offset < 3)
    totals = [int(Partial.decode(value).aggregates["total"]["whole"]) for value in first]
    assert sum(totals) == expected - before


async def test_records_of_any_size_that_a_router_lets_through_are_read(cluster: Cluster, application: str) -> None:
    await cluster.create_small(application, 4 << 20)
    options = {"compression_type": "lz4", "max_request_size": 2 * LARGE}
    async with AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, **options) as producer:
        for value in (b'{"x":1}', b" " * LARGE, b'{"x":2}'):
            await producer.send_and_wait(application, value, b"k", 0, 1000)
    found = await read(fetching_of(cluster, application), Range(0, 0, 3))
    assert [len(r.value or b"") for r in found] == [7, LARGE, 7]


async def test_what_is_larger_stops_the_query_unless_it_is_behind_the_batch(
    cluster: Cluster, application: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Left out it would be in no result, and told by nobody."""
    monkeypatch.setattr(fetching, "LARGEST_OF_ANY", 1000)
    await cluster.create(**{application: 1})
    await cluster.write(application, [(b"k", b"1"), (b"k", b" " * 2000), (b"k", b"2")])
    task = fetching_of(cluster, application)
    with pytest.raises(UnreadableError, match=rf"{application}\[0\] has something at offset 1 that can't be read"):
        await read(task, Range(0, 0, 3))
    assert [r.value for r in await read(task, Range(0, 0, 1))] == [b"1"]


class Damaged(PartitionSource):
    """A source that can't read a batch so many times."""

    times = 0

    async def poll(self, most: int, timeout: float) -> Any:
        if type(self).times and await self.position() > 0:
            type(self).times -= 1
            letter = DeadLetter(Record("routed", 0, await self.position(), 0, None, None), "undecodable", "crc")
            raise UndecodableError(letter, 1 << 40)
        return await super().poll(min(2, most), timeout)


@pytest.mark.parametrize(("times", "readable"), [(1, True), (2, False)])
async def test_a_batch_that_can_not_be_read_is_fetched_a_second_time_and_then_stops_the_query(
    cluster: Cluster, application: str, monkeypatch: pytest.MonkeyPatch, times: int, readable: bool
) -> None:
    """What stands in its damaged header, as where the next batch begins, is believed by nobody."""
    monkeypatch.setattr(fetching, "PartitionSource", Damaged)
    monkeypatch.setattr(Damaged, "times", times)
    await cluster.create(**{application: 1})
    await cluster.write(application, [(b"k", b"%d" % number) for number in range(9)])
    task = fetching_of(cluster, application)
    if readable:
        assert [r.offset for r in await read(task, Range(0, 0, 9))] == list(range(9))
        return
    with pytest.raises(UnreadableError, match=r"at offset 2 that can't be read \(crc\)"):
        await read(task, Range(0, 0, 9))


async def test_a_range_that_is_left_in_the_middle_is_nothing_to_the_next(
    cluster: Cluster, application: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "_POLL_RECORDS", 2)
    await cluster.create(**{application: 1})
    await cluster.write(application, [(b"k", b"%d" % number) for number in range(9)])
    task = fetching_of(cluster, application)

    def first() -> int:
        found = task.read(Range(0, 0, 9))
        return len(next(iter(found)))

    assert await asyncio.to_thread(first) == 2
    assert [r.offset for r in await read(task, Range(0, 1, 8))] == list(range(1, 8))


def test_where_records_are_that_the_job_can_not_use_is_told() -> None:
    rows = [(offset, 1000, b"k", value, ()) for offset, value in ((5, b'{"x":1}'), (6, b"{"), (8, b"["), (9, b"{}"))]
    seen: Seen = {}
    (made,) = PreAggregation(JOB, 0, TOPIC_ID)(Range(2, 5, 10), [Columns.of("routed", 2, rows)], seen)
    assert [Partial.decode(value).events for value in made["value"].to_pylist()] == [2]
    assert seen == {(2, 5): (4, Range(2, 6, 9))}


class Lax(Aggregate):
    """A user's own, whose check takes what it can't add: 13 whenever it comes, and more than 100 in all."""

    field: NumberField

    def check(self, value: Any) -> None:
        pass

    def initial(self) -> int:
        return 0

    def add_many(self, state: Any, values: Iterable[Any]) -> Any:
        for value in values:
            if value == 13:
                raise ValueError("unlucky")
            state += value
            if state > 100:
                raise OverflowError("too much")
        return state

    def merge(self, left: Any, right: Any) -> Any:
        return left + right

    def finish(self, state: Any) -> Any:
        return state


def by_lax(values: list[int], size: int) -> list[tuple[int, int]]:
    """Events and sum of each partial, in batches of this size."""
    job = replace(JOB, aggregates=(Lax(name="own", field="x"),))
    rows = [(5 + number, 1000, b"k", b'{"x":%d}' % value, ()) for number, value in enumerate(values)]
    batches = [Columns.of("routed", 0, rows[begin : begin + size]) for begin in range(0, len(rows), size)]
    made = PreAggregation(job, 0, TOPIC_ID)(Range(0, 5, 5 + len(rows)), batches, {})
    found = [Partial.decode(value) for batch in made for value in batch["value"].to_pylist()]
    return [(partial.events, partial.aggregates["own"]) for partial in found]


@pytest.mark.parametrize("size", [1, 3, 100])
def test_an_event_at_which_users_code_fails_though_its_check_takes_it_is_named(size: int) -> None:
    assert by_lax([1, 2, 3], size) == [(3, 6)]
    with pytest.raises(AggregateFailedError, match=r"raises ValueError: unlucky, at offset 7 of a worker's partition"):
        by_lax([1, 2, 13, 4], size)


def test_events_at_which_it_fails_only_together_are_named_together() -> None:
    with pytest.raises(AggregateFailedError, match=r"OverflowError\('too much'\) at several events of offsets 5 to 6"):
        by_lax([60, 60], 2)


@pytest.mark.parametrize("error", [MemoryError("none left"), FileNotFoundError("model.bin"), ImportError("no model")])
def test_what_only_the_executor_lacks_is_no_fault_of_an_event(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr(Lax, "add_many", fail)
    with pytest.raises(type(error), match=str(error)):
        by_lax([1], 1)


BITWISE = {
    "aggregates": [
        {"name": "spread", "op": "variance", "field": "x"},
        {"name": "shape", "op": "histogram", "field": "x", "bins": 8},
        {"name": "top", "op": "top-k", "field": "y", "k": 2, "capacity": 4},
    ]
}


def test_partials_are_the_same_to_the_last_bit_however_much_is_fetched_at_once() -> None:
    """Variances and histograms depend on how many are added at once."""
    chance = random.Random(4)
    rows = [
        (offset, 1000, b"k%d" % (offset % 3), b'{"x":%.9f,"y":"%d"}' % (chance.gauss(0, 1e3), chance.randrange(9)), ())
        for offset in range(25_000)
    ]
    whole = Columns.of("routed", 0, rows)
    task = PreAggregation(JobSpec.from_json(BITWISE), 0, TOPIC_ID)

    def partials(sizes: list[int]) -> list[bytes]:
        bounds = [0, *accumulate(sizes), len(whole)]
        batches = [whole.cut(begin, end) for begin, end in pairwise(bounds)]
        made = task(Range(0, 0, len(whole)), batches, {})
        return [value for batch in made for value in batch["value"].to_pylist()]

    first = partials([])
    assert len(first) == 3
    for sizes in ([9_999], [16_384], [1, 10_000, 11_000], [7] * 3000):
        assert partials(sizes) == first


async def test_records_that_are_gone_are_named(cluster: Cluster, application: str) -> None:
    await cluster.create(**{application: 1})
    await cluster.write(application, [(b"k", b"{}")] * 9)
    await cluster.admin.delete_records({TopicPartition(application, 0): RecordsToDelete(before_offset=5)})
    task = fetching_of(cluster, application)
    with pytest.raises(LostRecordsError, match=rf"{application}\[0\] has not all of the offsets 3 to 8 any more"):
        await read(task, Range(0, 3, 9))
    assert len(await read(task, Range(0, 5, 9))) == 4, "the next task has a client that works"


async def test_a_broker_that_is_away_may_be_back_later() -> None:
    task = Fetching(Access({"bootstrap_servers": "127.0.0.1:1"}, None), "routed")
    with pytest.raises(BrokerAwayError, match=r"reading routed\[0\]: KafkaConnectionError"):
        await read(task, Range(0, 0, 9))


async def test_nothing_that_comes_ends_a_task_after_a_while(
    cluster: Cluster, application: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As of a partition whose leader is lost: the query begins its batch again."""
    await cluster.create(**{application: 1})
    await cluster.write(application, [(b"k", b"{}")] * 3)
    task = fetching_of(cluster, application)
    assert len(await read(task, Range(0, 0, 3))) == 3, "the client is there before the time counts"
    monkeypatch.setattr(fetching, "_TIMEOUT_SECONDS", 1.5)
    with pytest.raises(BrokerAwayError, match="nothing has come from offset 3 on"):
        await read(task, Range(0, 0, 9))


async def test_what_no_other_attempt_can_better_is_told_as_it_is(broker: EmbeddedBroker) -> None:
    login = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN"}
    access = Access({"bootstrap_servers": broker.bootstrap_servers, **login, "sasl_plain_username": "a"}, None)
    with pytest.raises(ValueError, match="sasl_plain_password"):
        await read(Fetching(access, "routed"), Range(0, 0, 9))


async def test_one_client_serves_the_tasks_of_a_process(cluster: Cluster, application: str) -> None:
    await cluster.create(**{application: 2})
    for partition in range(2):
        await cluster.write(application, [(b"k", b"%d" % partition)] * 5, partition)
    await read(fetching_of(cluster, application), Range(0, 0, 5))
    (client,) = fetching._opened
    found = await read(fetching_of(cluster, application), Range(1, 2, 4))
    assert fetching._opened == [client]
    assert [(r.offset, r.value) for r in found] == [(2, b"1"), (3, b"1")]
