"""Laws of the router against a real broker: unchanged, complete, once, in the right place."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import httpx
import pytest
from aiokafka.admin import NewPartitions
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from keygrouping.receipt import Receipt
from keygrouping_local.ports import free_ports
from keygrouping_router import metrics
from keygrouping_router.service import serve
from keygrouping_router.settings import RouterSettings
from keygrouping_service.errors import Fatal
from keygrouping_service.kafka.end_of_input import InputNotRoutedError, finish_input
from keygrouping_service.kafka.progress import END, Progress
from keygrouping_service.records.record import Record
from keygrouping_service.testing import Cluster, configure, until

pytestmark = pytest.mark.kafka

START_MS = 1_700_000_000_000


@asynccontextmanager
async def routing(settings: RouterSettings, **changes: Any) -> AsyncIterator[asyncio.Task[None]]:
    stop = asyncio.Event()
    task = asyncio.create_task(serve(settings.model_copy(update=changes), stop))
    try:
        yield task
    finally:
        stop.set()
        await task


async def everything(cluster: Cluster, settings: RouterSettings) -> dict[str, list[Any]]:
    topics = {"routed": settings.routed_topic, "late": settings.late_topic, "dead": settings.dead_letters_topic}
    return {name: await cluster.read(topic) for name, topic in topics.items()}


async def handled(cluster: Cluster, settings: RouterSettings, count: int) -> bool:
    return sum(map(len, (await everything(cluster, settings)).values())) >= count


def content(record: Record) -> tuple[Any, ...]:
    return record.key, record.value, record.timestamp, tuple(record.headers)


def header(record: Record, name: str) -> str:
    found = dict(record.headers)[f"keygrouping-{name}"]
    return str(found or b"", "utf-8")


async def test_key_value_headers_and_timestamp_pass_unchanged(cluster: Cluster, settings: RouterSettings) -> None:
    rows: list[tuple[bytes, bytes | None, list[tuple[str, bytes | None]], int]] = [
        (b"plain", b"value", [], START_MS),
        (b"", b"empty key", [], START_MS),
        (b"no value", None, [], START_MS),
        (b"\xff\xfe", b"\x00\x80", [("h", b"1"), ("h", b"2"), ("unknown \u00e9", None)], START_MS + 1),
        (b"big", b"x" * 1_000_000, [], START_MS + 2),
        (b"empty", b"", [], START_MS + 3),
    ]
    for key, value, headers, timestamp in rows:
        sent = cluster.producer.send(
            settings.events_topic, value, key, partition=0, timestamp_ms=timestamp, headers=headers
        )
        await (await sent)
    async with routing(settings):
        await until(lambda: handled(cluster, settings, len(rows)))
    found = await everything(cluster, settings)
    assert Counter(map(content, found["routed"])) == Counter((k, v, t, tuple(h)) for k, v, h, t in rows)
    assert not found["late"] and not found["dead"]
    assert all(record.partition < settings.workers for record in found["routed"])


async def test_a_quarantined_key_goes_to_its_topic_and_comes_back_and_the_counts_add_up(
    cluster: Cluster, settings: RouterSettings
) -> None:
    """Nothing is lost or doubled while it begins and ends, and each event says why it is there."""
    topic = f"{settings.events_topic}-quarantine"
    await cluster.create(**{topic: 3})
    changed = settings.model_copy(update={"quarantine_topic": topic, "http_port": free_ports(1)[0]})
    written = 0

    async def write() -> None:
        nonlocal written
        rows = [(b"bad", b"%d" % n) for n in range(20)] + [(b"good", b"%d" % n) for n in range(20)]
        await cluster.write(settings.events_topic, rows, timestamp_ms=START_MS)
        written += len(rows)
        await until(is_done)

    async def found() -> tuple[list[Any], list[Any]]:
        return await cluster.read(settings.routed_topic), await cluster.read(topic)

    async def is_done() -> bool:
        return sum(map(len, await found())) >= written

    async with routing(changed), httpx.AsyncClient(base_url=f"http://127.0.0.1:{changed.http_port}", timeout=60) as api:

        async def answers() -> bool:
            try:
                return (await api.get("/readyz")).is_success
            except httpx.TransportError:
                return False

        await until(answers)
        await write()
        order = {"action": "quarantine-topic", "seconds": 600}
        assert (await api.put("/overrides/bad", json=order)).is_success
        await write()
        assert (await api.delete("/overrides/bad")).is_success
        await write()
    routed, aside = await found()
    assert (len(routed), len(aside)) == (100, 20)
    assert {(record.key, header(record, "reason")) for record in aside} == {(b"bad", "quarantined")}
    offsets = [int(header(record, "offset")) for record in aside]
    assert len(set(offsets)) == 20 and [record.value for record in aside] == [b"%d" % n for n in range(20)]
    receipts = [Receipt.decode(record.value) for record in await cluster.read(settings.receipts_topic)]
    assert sum(receipt.consumed.events for receipt in receipts) == written
    assert sum(receipt.routed.events for receipt in receipts) == 100
    assert sum(receipt.dead.events for receipt in receipts) == 20


async def test_bad_input_ends_in_dead_letters_and_the_counts_add_up(
    cluster: Cluster, settings: RouterSettings, caplog: pytest.LogCaptureFixture
) -> None:
    job = {
        "time": {"field": "at"},
        "aggregates": [{"name": "total", "op": "sum", "field": "amount"}],
        "lateness": "10s",
    }
    good = json.dumps({"at": START_MS, "amount": 1}).encode()
    values = [
        (None, good, "no-key"),
        (b"k", b"\xff\xff", "invalid-json"),
        (b"k", b'{"at": 1, "amount": NaN}', "invalid-json"),
        (b"k", b'{"amount": 3}', "no-timestamp"),
        (b"k", None, "no-value"),
        (b"k", b'{"at": 99999999999999, "amount": 3}', "timestamp-in-the-future"),
    ]
    for key, value, _ in values:
        await cluster.write(settings.events_topic, [(key, value)], timestamp_ms=START_MS)
    odd = b'{"at": %d, "amount": "many"}' % START_MS
    await cluster.write(settings.events_topic, [(b"k", good), (b"", good), (b"odd", odd)])
    skipped = metrics.SKIPPED_FIELDS.labels("/amount")._value.get()
    changed = settings.model_copy(update={"job": type(settings.job).from_json(job)})
    async with routing(changed):
        await until(lambda: handled(cluster, settings, len(values) + 3))
    found = await everything(cluster, settings)
    assert metrics.SKIPPED_FIELDS.labels("/amount")._value.get() == skipped + 1
    assert "field '/amount' is not a finite number, so its aggregates skip it" in caplog.text
    assert [header(record, "reason") for record in found["dead"]] == [reason for *_, reason in values]
    assert [(r.key, r.value) for r in found["dead"]] == [(key, value) for key, value, _ in values]
    assert [header(record, "offset") for record in found["dead"]] == [str(n) for n in range(len(values))]
    assert {header(record, "topic") for record in found["dead"]} == {settings.events_topic}
    assert Counter(r.key for r in found["routed"]) == {b"k": 1, b"": 1, b"odd": 1}


async def test_late_is_only_what_is_late_against_its_own_partition(cluster: Cluster, settings: RouterSettings) -> None:
    times = {0: [START_MS, START_MS + 20_000, START_MS + 5_000, START_MS + 10_000], 1: [5_000, 3_000]}
    for partition, partition_times in times.items():
        for event_time in partition_times:
            await cluster.write(settings.events_topic, [(b"k", b"%d" % event_time)], partition, event_time)
    async with routing(settings):
        await until(lambda: handled(cluster, settings, 6))
    found = await everything(cluster, settings)
    assert [record.timestamp for record in found["late"]] == [START_MS + 5_000]
    told = {name: header(found["late"][0], name) for name in ("reason", "partition", "late-by")}
    assert told == {"reason": "late", "partition": "0", "late-by": "5000"}, "the job allows for 10 s of the 15"
    committed = await cluster.committed(settings.group("router"), settings.events_topic)
    assert {p: entry.progress.time for p, entry in committed.items()} == {0: START_MS + 20_000, 1: 5_000}


async def test_lateness_is_judged_by_the_committed_progress_after_a_restart(
    cluster: Cluster, settings: RouterSettings
) -> None:
    await cluster.write(settings.events_topic, [(b"k", b"new")], 0, START_MS)
    async with routing(settings):
        await until(lambda: handled(cluster, settings, 1))
    await cluster.write(settings.events_topic, [(b"k", b"old")], 0, START_MS - 10_001)
    async with routing(settings):
        await until(lambda: handled(cluster, settings, 2))
    assert [record.value for record in (await everything(cluster, settings))["late"]] == [b"old"]


async def is_idle(cluster: Cluster, settings: RouterSettings, partition: int) -> bool:
    committed = await cluster.committed(settings.group("router"), settings.events_topic)
    return committed[partition].progress.idle


async def test_an_idle_partition_says_so_and_comes_back_behind_the_others(
    cluster: Cluster, settings: RouterSettings
) -> None:
    minute = 60_000
    async with routing(settings, idle_timeout=0.5):
        await cluster.write(settings.events_topic, [(b"k", b"0")], 0, START_MS)
        await until(lambda: is_idle(cluster, settings, 0))
        await cluster.write(settings.events_topic, [(b"k", b"1")], 1, START_MS + minute)
        await until(lambda: handled(cluster, settings, 2))
        await until(lambda: is_idle(cluster, settings, 1))
        await cluster.write(settings.events_topic, [(b"k", b"old")], 0, START_MS + minute - 10_001)
        await cluster.write(settings.events_topic, [(b"k", b"in time")], 0, START_MS + minute - 10_000)
        await until(lambda: handled(cluster, settings, 4))
    found = await everything(cluster, settings)
    assert [record.value for record in found["late"]] == [b"old"]
    assert header(found["late"][0], "reason") == "partition-was-idle"
    committed = await cluster.committed(settings.group("router"), settings.events_topic)
    assert committed[0].progress.time == START_MS + minute


async def test_the_quiet_end_of_a_transactional_input_is_committed_too(
    cluster: Cluster, settings: RouterSettings
) -> None:
    """So that lag 0 means that everything was routed."""
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=settings.application)
    async with producer, producer.transaction():
        await producer.send(settings.events_topic, b"v", b"k", partition=0, timestamp_ms=START_MS)

    async def at_the_end() -> bool:
        return (await cluster.committed(settings.group("router"), settings.events_topic))[0].offset == 2

    async with routing(settings):
        await until(at_the_end)


async def test_an_input_that_is_not_routed_cannot_be_finished(cluster: Cluster, settings: RouterSettings) -> None:
    await cluster.write(settings.events_topic, [(b"k", b"v")], 0, START_MS)
    with pytest.raises(InputNotRoutedError, match=r"partitions \[0\]"):
        await finish_input(settings)


async def test_a_finished_input_is_finished(cluster: Cluster, settings: RouterSettings) -> None:
    await finish_input(settings)
    await cluster.write(settings.events_topic, [(b"k", b"too late")], 0, START_MS)
    async with routing(settings):
        await until(lambda: handled(cluster, settings, 1))
    (record,) = (await everything(cluster, settings))["late"]
    assert header(record, "reason") == "input-was-finished"
    assert "keygrouping-late-by" not in dict(record.headers), "no lateness would have been enough"
    committed = await cluster.committed(settings.group("router"), settings.events_topic)
    assert committed[0].progress == Progress(END)


async def test_w_may_change_on_restart(cluster: Cluster, settings: RouterSettings) -> None:
    for workers in (2, 6):
        rows = [(b"%d" % n, b"%d" % workers) for n in range(200)]
        await cluster.write(settings.events_topic, rows, 0, START_MS)
        async with routing(settings, workers=workers, grouping="shuffle"):
            await until(partial(handled, cluster, settings, 200 if workers == 2 else 400))
    routed = await cluster.read(settings.routed_topic)
    used = {value: {r.partition for r in routed if r.value == value} for value in (b"2", b"6")}
    assert used == {b"2": {0, 1}, b"6": {0, 1, 2, 3, 4, 5}}
    assert len(routed) == 400


@pytest.mark.parametrize("compression", ["gzip", "snappy", "lz4", "zstd"])
async def test_every_compression_is_understood(cluster: Cluster, settings: RouterSettings, compression: str) -> None:
    await cluster.write(settings.events_topic, [(b"k", b"v" * 2000)] * 20, 0, START_MS)
    async with routing(settings, compression=compression):
        await until(lambda: handled(cluster, settings, 20))
    assert {record.value for record in await cluster.read(settings.routed_topic)} == {b"v" * 2000}


async def test_at_least_once_delivers_everything(cluster: Cluster, settings: RouterSettings) -> None:
    await cluster.write(settings.events_topic, [(b"k", b"%d" % n) for n in range(300)], 1, START_MS)
    async with routing(settings, delivery="at_least_once"):
        await until(lambda: handled(cluster, settings, 300))
    assert {record.value for record in await cluster.read(settings.routed_topic)} == {b"%d" % n for n in range(300)}


async def test_too_few_partitions_and_missing_topics_are_told_in_one_line(settings: RouterSettings) -> None:
    with pytest.raises(Fatal, match="has 8 partitions, too few for KEYGROUPING_ROUTER_WORKERS=9"):
        await serve(settings.model_copy(update={"workers": 9}), asyncio.Event())
    with pytest.raises(Fatal, match="missing topics: nowhere"):
        await serve(settings.model_copy(update={"late_topic": "nowhere"}), asyncio.Event())


async def test_the_api_shows_health_metrics_and_the_keys(
    cluster: Cluster, settings: RouterSettings, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    rows = [(b"\xff" if n % 2 else b"hot", b"") for n in range(400)]
    await cluster.write(settings.events_topic, rows, 0, START_MS)
    async with routing(settings, grouping="dkg"):
        await until(lambda: handled(cluster, settings, 400))
        (line,) = [r.getMessage() for r in caplog.records if r.getMessage().startswith("listening on ")]
        async with httpx.AsyncClient(base_url=line.removeprefix("listening on "), timeout=60) as client:
            assert (await client.get("/healthz")).json() == {"status": "ok"}
            assert (await client.get("/readyz")).status_code == 200
            assert "keygrouping_router_routed_total" in (await client.get("/metrics")).text
            keyspace = (await client.get("/keyspace?limit=5")).json()
            assert (await client.get("/keyspace?limit=-1")).status_code == 422
    assert keyspace["events"] == 400 and keyspace["workers"] == 4
    assert {(entry["key"], entry["key_base64"], entry["count"]) for entry in keyspace["keys"]} == {
        ("hot", None, 200.0),
        (None, "_w", 200.0),
    }


async def test_partitions_that_are_added_to_routed_are_routed_to_without_a_restart(
    cluster: Cluster, settings: RouterSettings
) -> None:
    (port,) = free_ports(1)
    rows = [(b"k%d" % n, b"") for n in range(300)]
    await cluster.write(settings.events_topic, rows, 0, START_MS)
    async with (
        routing(settings, grouping="shuffle", http_port=port),
        httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client,
    ):
        await until(lambda: handled(cluster, settings, 300))
        assert (await client.put("/workers", json={"workers": 12})).status_code == 422
        await cluster.admin.create_partitions({settings.routed_topic: NewPartitions(12)})

        async def is_noticed() -> bool:
            return bool((await client.get("/workers")).json()["max_workers"] == 12)

        await until(is_noticed)
        assert (await client.put("/workers", json={"workers": 12})).status_code == 200
        await cluster.write(settings.events_topic, rows, 0, START_MS)
        await until(lambda: handled(cluster, settings, 600))
    found = (await everything(cluster, settings))["routed"]
    assert {record.partition for record in found} == set(range(12))
    assert Counter(record.key for record in found) == {key: 2 for key, _ in rows}


async def test_what_the_broker_refuses_is_dead_lettered_and_stops_nothing(
    cluster: Cluster, settings: RouterSettings
) -> None:
    topic = settings.routed_topic
    limits = {"max.message.bytes": "20000"}
    await configure(cluster.admin, topic, limits)
    now_ms = int(time.time() * 1000)
    rows = [(b"%d" % n, b"x" * (30_000 if n == 17 else 10)) for n in range(60)]
    async with routing(settings, batch_bytes=10_000):
        await cluster.write(settings.events_topic, rows[1:2], 1, now_ms)
        await until(lambda: handled(cluster, settings, 1))
        # A router that finds this limit at its start refuses to start.
        limits["message.timestamp.before.max.ms"] = "1000000000"
        await configure(cluster.admin, topic, limits)
        for row in (*rows[:1], *rows[2:]):
            await cluster.write(settings.events_topic, [row], 0, 1 if row is rows[0] else now_ms)
        await until(lambda: handled(cluster, settings, 60))
    found = await everything(cluster, settings)
    reasons = {int(r.key): header(r, "reason") for r in found["dead"]}
    assert reasons == {0: "refused-by-broker", 17: "record-too-large"}
    assert sorted(int(r.key) for r in found["routed"]) == [n for n in range(60) if n not in (0, 17)]


random_rows = st.lists(
    st.tuples(
        st.one_of(st.none(), st.binary(max_size=8)),
        st.one_of(st.none(), st.binary(max_size=30), st.just(b'{"amount": 1}')),
        st.one_of(st.integers(0, START_MS), st.integers(0, 10**9)),
        st.lists(st.tuples(st.text(max_size=5), st.one_of(st.none(), st.binary(max_size=5))), max_size=2),
    ).filter(lambda row: row[0] is not None or row[1] is not None),
    min_size=1,
    max_size=40,
)


@hypothesis_settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(rows=random_rows)
async def test_random_bytes_stop_nothing_and_are_all_accounted_for(
    cluster: Cluster, settings: RouterSettings, rows: list[Any]
) -> None:
    before = sum(map(len, (await everything(cluster, settings)).values()))
    job = '{"aggregates": [{"name": "total", "op": "sum", "field": "amount"}]}'
    for key, value, timestamp, headers in rows:
        await cluster.producer.send(
            settings.events_topic, value, key, partition=0, timestamp_ms=timestamp, headers=headers
        )
    await cluster.producer.flush()
    async with routing(settings, job=type(settings.job).from_json(job)):
        await until(lambda: handled(cluster, settings, before + len(rows)))
    assert sum(map(len, (await everything(cluster, settings)).values())) == before + len(rows)
