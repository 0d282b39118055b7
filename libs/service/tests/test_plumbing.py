"""Laws of the small parts: retries, batches, logging, exit codes, HTTP, metrics."""

import asyncio
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Sequence
from random import Random
from types import SimpleNamespace
from typing import Any, ClassVar

import httpx
import numpy as np
import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import (
    GroupAuthorizationFailedError,
    KafkaConnectionError,
    MessageSizeTooLargeError,
    UnknownTopicOrPartitionError,
)
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import given
from hypothesis import strategies as st
from keygrouping_kafka.errors import can_be_retried
from keygrouping_service.errors import Fatal
from keygrouping_service.http.app import create_app, serving
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.owned import Clients, OwnedPartition
from keygrouping_service.kafka.progress import Committed, Progress
from keygrouping_service.observability.logs import Calm
from keygrouping_service.records.batches import Outbox, add_by_key, origin_headers, partition_of
from keygrouping_service.records.bisection import Bisection, Suspects
from keygrouping_service.records.columns import Columns
from keygrouping_service.records.dead_letters import DeadLetters
from keygrouping_service.records.protocols import RecordBatch
from keygrouping_service.records.record import UNDECODABLE, DeadLetter, Record, UndecodableError
from keygrouping_service.records.v2.writing import Packed, compressed
from keygrouping_service.run import run
from keygrouping_service.settings import ServiceSettings


async def test_a_retry_goes_on_until_it_works_and_not_with_what_cannot() -> None:
    attempts = 0

    async def third_time_lucky() -> str:
        nonlocal attempts
        attempts += 1
        if attempts < 3:
            raise KafkaConnectionError("away")
        return "here"

    async def forbidden() -> None:
        raise GroupAuthorizationFailedError("g")

    assert await clients.retry(third_time_lucky, "finding it") == "here"
    with pytest.raises(GroupAuthorizationFailedError):
        await clients.retry(forbidden, "reading")
    assert not can_be_retried(ValueError())


class Sent:
    """Stands for a producer: builds real batches and keeps what is sent."""

    def __init__(self, batch_bytes: int, compression: str | None = None) -> None:
        self._real = AIOKafkaProducer(max_batch_size=batch_bytes, compression_type=compression)
        self._real._closed = True
        self.batches: list[tuple[str, int, bytes]] = []
        self.counts: list[int] = []
        self.client = self
        self.known, self.there = {0}, {0, 1, 2, 3}

    async def partitions_for(self, _: str) -> set[int]:
        return self.known

    async def force_metadata_update(self) -> bool:
        self.known = self.there
        return True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    async def send_batch(self, batch: object, topic: str, *, partition: int) -> "asyncio.Future[SimpleNamespace]":
        self.counts.append(batch.record_count())  # type: ignore[attr-defined]
        self.batches.append((topic, partition, bytes(batch._build())))  # type: ignore[attr-defined]
        done = asyncio.get_running_loop().create_future()
        done.set_result(SimpleNamespace(offset=sum(self.counts[:-1])))
        return done

    def records(
        self, wanted: int | None = None
    ) -> list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]]:
        """Those of a partition (None: of all)."""
        found = []
        for data in [data for _, partition, data in self.batches if wanted in (None, partition)]:
            batches = MemoryRecords(data)
            while batches.has_next():
                found += [(r.timestamp, r.key, r.value, list(r.headers)) for r in batches.next_batch()]
        return found


binary = st.one_of(st.none(), st.binary(max_size=40))
rows = st.tuples(
    st.one_of(st.just(-1), st.integers(0, 2**43)),
    binary,
    binary,
    st.lists(st.tuples(st.text(max_size=4), binary), max_size=2),
)


@given(st.lists(rows, max_size=30))
async def test_an_outbox_sends_every_record_as_it_is(
    given_rows: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]],
) -> None:
    sent = Sent(batch_bytes=200)
    outbox = Outbox(sent)
    for timestamp, key, value, headers in given_rows:
        outbox.append("t", 0, timestamp, key, value, headers)
    await outbox.send()
    assert sent.records() == given_rows
    assert outbox.records == len(given_rows) and bool(outbox) == bool(given_rows)


@given(st.lists(rows, max_size=30), st.randoms(use_true_random=False))
async def test_records_passed_on_are_what_they_were(
    given_rows: list[tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]], order: Random
) -> None:
    sent = Sent(batch_bytes=200)
    outbox = Outbox(sent)
    batch = Columns.of("e", 0, [(number, t, k, v, tuple(h)) for number, (t, k, v, h) in enumerate(given_rows)])
    partitions = np.array([order.randrange(3) for _ in given_rows], np.int32)
    outbox.pass_on("t", partitions, batch)
    await outbox.send()
    for partition in range(3):
        wanted = [row for row, to in zip(given_rows, partitions, strict=True) if to == partition]
        assert sent.records(partition) == wanted
    assert sum(sent.counts) == outbox.records == len(given_rows)


@given(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=60)), max_size=30))
async def test_new_records_go_where_their_keys_belong_and_stay_in_their_order(
    given_rows: list[tuple[bytes, bytes]],
) -> None:
    sent = Sent(batch_bytes=200)
    outbox = Outbox(sent)
    outbox.append("t", 2, 1, b"odd", b"before", [("h", b"x")])
    before = int(time.time() * 1000)
    await add_by_key(outbox, "t", 3, iter([(key, key + b"|7", value) for key, value in given_rows]))
    outbox.append("t", 2, 1, b"odd", b"behind")
    await outbox.send()
    for partition in range(3):
        found = sent.records(partition)
        if partition == 2:
            assert [found.pop(0)[2], found.pop()[2]] == [b"before", b"behind"]
        assert [row[1:] for row in found] == [
            (key + b"|7", value, []) for key, value in given_rows if partition_of(key, 3) == partition
        ]
        assert len({row[0] for row in found}) <= 1 and all(before <= row[0] <= time.time() * 1000 for row in found)
    assert sum(sent.counts) == outbox.records == len(given_rows) + 2


async def test_new_records_are_packed_a_bounded_part_at_a_time_and_others_have_their_turns() -> None:
    class Adding:
        parts: ClassVar[list[int]] = []

        def add(self, topic: str, partitions: object, timestamp: int, keys: Sequence[bytes], values: object) -> None:
            del topic, partitions, timestamp, values
            self.parts.append(len(keys))

    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    outbox: Any = Adding()
    other = asyncio.create_task(others())
    await add_by_key(outbox, "t", 3, ((b"k", b"k", bytes(4 << 10)) for _ in range(5000)))
    other.cancel()
    assert sum(outbox.parts) == 5000 and max(outbox.parts) <= (1 << 20) // (4 << 10) + 500 and turns >= 10
    outbox.parts.clear()
    await add_by_key(outbox, "t", 64, ((b"k", b"k", bytes(4 << 10)) for _ in range(5000)))
    assert (1 << 20) // (4 << 10) < max(outbox.parts) <= (8 << 20) // (4 << 10) + 500, "or each partition gets little"
    outbox.parts.clear()
    await add_by_key(outbox, "t", 3, iter(()))
    assert not outbox.parts


async def test_a_thread_compresses_what_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    threads = []

    def seen(packed: Packed, codec: int) -> Packed:
        threads.append(threading.get_ident())
        return compressed(packed, codec)

    monkeypatch.setattr("keygrouping_service.records.v2.built.compressed", seen)
    sent = Sent(batch_bytes=20_000, compression="lz4")
    outbox = Outbox(sent)
    given_rows: list[Any] = [(number, b"k", b"value" * 100, []) for number in range(100)]
    outbox.pass_on("t", 1, Columns.of("e", 0, [(n, t, k, v, tuple(h)) for n, (t, k, v, h) in enumerate(given_rows)]))
    outbox.add("t", 1, 0, [b"k"] * 35, [b"value" * 100] * 35)
    given_rows += [(0, b"k", b"value" * 100, [])] * 35
    assert not threads
    await outbox.send()
    assert len(threads) == len(sent.batches) == 4 and threading.get_ident() not in threads
    assert sent.records() == given_rows and all(len(data) < 2000 for *_, data in sent.batches)


async def test_full_batches_are_followed_by_new_ones_and_a_giant_travels_alone() -> None:
    sent = Sent(batch_bytes=1000)
    outbox = Outbox(sent)
    for size in (400, 400, 400, 50_000, 400):
        outbox.append("t", 3, 1, b"k", b"x" * size)
    await outbox.send()
    assert [len(value or b"") for _, _, value, _ in sent.records()] == [400, 400, 400, 50_000, 400]
    assert len(sent.batches) == 4


async def test_partitions_that_were_added_since_are_looked_for() -> None:
    sent = Sent(batch_bytes=1000)
    outbox = Outbox(sent)
    outbox.append("t", 3, 1, b"k", b"v")
    await outbox.send()
    assert sent.known == sent.there and len(sent.batches) == 1
    beyond = Outbox(sent)
    beyond.append("t", 4, 1, b"k", b"v")
    with pytest.raises(UnknownTopicOrPartitionError, match="t has no partition 4"):
        await beyond.send()


class Reader:
    """Stands for a source that has nothing, and knows the end once it was told."""

    seen_end: int | None = None

    async def poll(self, most: int, timeout: float) -> RecordBatch:
        del most, timeout
        return Columns.of("t", 0, ())

    async def position(self) -> int:
        return 7

    def end(self) -> int | None:
        return self.seen_end

    def left_out(self) -> list[DeadLetter]:
        return []


async def test_the_lag_is_not_known_before_the_end_was_seen() -> None:
    reader: Any = Reader()
    connections = Clients(reader, reader, DeadLetters("dead-letters", reader), reader, reader)
    owned = OwnedPartition(TopicPartition("t", 0), Committed(7), connections, "group", asyncio.Event(), Bisection())
    assert owned.lag is None
    await owned.poll(10, 0.0)
    assert owned.lag is None
    for reader.seen_end, lag in ((7, 0), (10, 3)):
        await owned.poll(10, 0.0)
        assert owned.lag == lag


async def test_what_was_left_out_is_forgotten_once_it_is_committed() -> None:
    async def commit(*_: object) -> None: ...

    reader: Any = Reader()
    connections = Clients(reader, reader, DeadLetters("dead-letters", reader), reader, reader, commit)
    bisection = Bisection()
    owned = OwnedPartition(TopicPartition("t", 0), Committed(0), connections, "group", asyncio.Event(), bisection)
    for offset in (3, 5):
        bisection.failed(Suspects(offset, offset + 1, 1), MessageSizeTooLargeError())
        assert not bisection.doubted(offset)
    await owned.commit(None, 5, Progress())
    assert bisection.banned(3) is None and bisection.banned(5) is not None
    assert not bisection.doubted(3) and bisection.doubted(5)
    await owned.commit(None, 6, Progress())
    assert not bisection.bans


class OwnState(Reader):
    """Stands for a source of the state that a work has written: a record, or a batch that can't be read."""

    def __init__(self, broken: bool) -> None:
        self._broken = broken

    async def poll(self, most: int, timeout: float) -> RecordBatch:
        del most, timeout
        record = Record("state", 0, 6, 0, b"state", b"{}")
        if self._broken:
            raise UndecodableError(DeadLetter(record, UNDECODABLE, "the batch at 6 can't be read"), 7)
        return Columns.of("state", 0, [record[2:]])

    def seek(self, _: int) -> None: ...


def own_state(*, broken: bool) -> OwnedPartition:
    reader: Any = OwnState(broken)
    connections = Clients(reader, reader, DeadLetters("dead-letters", reader), reader, reader)
    return OwnedPartition(TopicPartition("state", 0), Committed(0), connections, "group", asyncio.Event(), Bisection())


async def test_no_record_of_its_own_state_is_left_out_whatever_work_fails_with_after_it_was_read() -> None:
    owned = own_state(broken=False)
    assert len(await owned.poll(10, 0.0)) == 1
    assert owned.suspects is None


async def test_own_state_that_can_not_be_read_is_not_passed_over() -> None:
    owned = own_state(broken=True)
    assert not await owned.poll(10, 0.0)
    with pytest.raises(Fatal, match=r"^state\[0\]: the batch at 6 can't be read: delete the topic to begin without"):
        await owned.poll(10, 0.0)


@pytest.mark.parametrize(
    ("key", "hashed"),
    [(b"21", -973932308), (b"foobar", -790332482), (b"abc", 479470107), (b"a-little-bit-long-string", -985981536)],
)
def test_the_partition_of_a_key_is_that_of_kafkas_own_partitioner(key: bytes, hashed: int) -> None:
    """The hashes are those of Kafka's own tests (UtilsTest)."""
    assert [partition_of(key, n) for n in (1, 4, 7)] == [(hashed & 0x7FFFFFFF) % n for n in (1, 4, 7)]


def test_a_dead_letter_says_why_and_where_it_came_from() -> None:
    record = Record("events", 2, 77, 5, b"k", b"v", (("own", b"1"),))
    assert origin_headers(record, "no-key", "send one") == [
        ("own", b"1"),
        ("keygrouping-reason", b"no-key"),
        ("keygrouping-detail", b"send one"),
        ("keygrouping-topic", b"events"),
        ("keygrouping-partition", b"2"),
        ("keygrouping-offset", b"77"),
    ]


UNUSED = ServiceSettings(bootstrap_servers="unused:9092")


def test_a_chatty_library_is_heard_once_per_interval() -> None:
    now = 0.0
    calm = Calm("aiokafka", 10.0, lambda: now)

    def passes(name: str, text: str) -> bool:
        return calm.filter(logging.LogRecord(name, logging.ERROR, "", 1, text, (), None))

    assert passes("aiokafka.conn", "away %s") and not passes("aiokafka.conn", "away %s")
    assert passes("aiokafka.conn", "other") and passes("keygrouping_router", "away %s")
    assert passes("keygrouping_router", "away %s")
    now = 10.0
    assert passes("aiokafka.conn", "away %s")


def test_a_service_ends_with_0_when_it_returns() -> None:
    async def main(stop: asyncio.Event) -> None:
        os.kill(os.getpid(), signal.SIGTERM)
        await stop.wait()

    assert run(main, UNUSED) == 0


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (Fatal("topic 'x' is missing"), "fatal: topic 'x' is missing"),
        (GroupAuthorizationFailedError("g"), "fatal: Kafka refuses: [Error 30] GroupAuthorizationFailedError: g"),
    ],
)
def test_a_fault_is_one_line_and_exit_code_1(error: Exception, line: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def main(_: asyncio.Event) -> None:
        raise error

    assert run(main, UNUSED) == 1
    assert capsys.readouterr().err.splitlines() == [line]


async def test_health_readiness_and_metrics_are_served() -> None:
    ready = False
    app = create_app("test", lambda: ready)
    async with (
        serving(app, "127.0.0.1", 0) as port,
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}") as client,
    ):
        assert (await client.get("/healthz")).status_code == 200
        assert (await client.get("/readyz")).status_code == 503
        ready = True
        assert (await client.get("/readyz")).json() == {"status": "ready"}
        assert "keygrouping_commits_total" in (await client.get("/metrics")).text


async def test_a_taken_port_is_told_in_one_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        with pytest.raises(Fatal, match="KEYGROUPING_HTTP_PORT"):
            async with serving(create_app("test", lambda: True), "127.0.0.1", taken.getsockname()[1]):
                pass


def test_modules_import_without_the_compiler() -> None:
    """numba takes seconds to import; services that don't route must not pay for it."""
    code = "import sys, keygrouping_service.kafka.runner; sys.exit('numba' in sys.modules)"
    assert os.spawnv(os.P_WAIT, sys.executable, [sys.executable, "-c", code]) == 0


async def test_the_last_records_of_an_outbox_are_made_once_the_offsets_of_the_others_are_known() -> None:
    sent = Sent(batch_bytes=1000)
    outbox = Outbox(sent)
    assert not outbox
    outbox.append("t", 0, 1, b"k", b"one")
    outbox.append("t", 0, 1, b"k", b"two")
    outbox.end_with("last", lambda written: [repr(dict(written)).encode()])
    assert outbox
    await outbox.send()
    assert [(topic, partition) for topic, partition, _ in sent.batches] == [("t", 0), ("last", 0)]
    assert sent.records()[-1][2] == b"{('t', 0): [(0, 2)]}"
