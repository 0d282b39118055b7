"""Laws on a real broker: every event once, in its partition and order, whatever is killed and whenever."""

from __future__ import annotations

import asyncio
import random
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import httpx
import orjson
import pytest
from aiokafka import TopicPartition
from aiokafka.errors import InvalidProducerEpoch, ProducerFenced
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_producer.filling import Partitions
from keygrouping_producer.ledger import fence_predecessors, read_places
from keygrouping_producer.plan import Pace, Plan
from keygrouping_producer.position import Counters
from keygrouping_producer.replay import Replay
from keygrouping_producer.settings import ProducerSettings
from keygrouping_producer.sources.flights import Flights
from keygrouping_service.kafka import clients
from keygrouping_service.testing import Cluster as Brokers

Cluster = Any  # the fixtures' classes, of which conftest.py is the only home
Service = Any

pytestmark = pytest.mark.kafka

LINES = 30_000
PARTITIONS = 4
DONE_SECONDS = 500
FILE = {"workload": "file", "key": "key", "time_field": "at", "time_format": "epoch_ms"}


@pytest.fixture(scope="module")
def broker(fresh_broker: EmbeddedBroker) -> EmbeddedBroker:
    return fresh_broker


@asynccontextmanager
async def running(settings: ProducerSettings) -> AsyncIterator[Replay]:
    """A replay in this process, stopped in order at the end."""
    replay = Replay(settings)
    task = asyncio.create_task(replay.run())
    yield replay
    replay.stop()
    await task


async def finished(settings: ProducerSettings) -> Replay:
    """A replay that has come to its end."""
    async with running(settings) as replay:
        await asyncio.wait_for(replay.done(), DONE_SECONDS)
    return replay


async def check_lines(cluster: Cluster, count: int) -> None:
    records = await cluster.read()
    assert cluster.numbers_in(records) == cluster.expected_numbers(count)
    for found in records.values():
        for record in found:
            value = orjson.loads(record.value or b"")
            assert record.timestamp == value["at"]
            assert record.key == (None if value["key"] is None else value["key"].encode())


async def test_a_file_is_written_once_in_order_with_its_times_and_a_second_start_adds_nothing(
    cluster: Cluster,
) -> None:
    settings = cluster.settings(file=cluster.write_lines(LINES), transaction_events=7_000, **FILE)
    for _ in range(2):
        replay = await finished(settings)
        assert replay.status().sent == LINES
        assert replay.status().done
    await check_lines(cluster, LINES)


async def test_a_replay_goes_on_although_the_broker_has_forgotten_where_it_stands(cluster: Cluster) -> None:
    settings = cluster.settings(file=cluster.write_lines(LINES), transaction_events=7_000, **FILE)
    await finished(settings)
    async with Brokers(settings.bootstrap_servers) as brokers:
        await brokers.forget(settings.positions_group)
        assert (await finished(settings)).status().sent == LINES
        await check_lines(cluster, LINES)
        await brokers.recreate(settings.events_topic, PARTITIONS)
    await finished(settings)
    await check_lines(cluster, LINES)


async def test_a_workload_is_written_as_the_generator_gives_it(cluster: Cluster) -> None:
    await finished(cluster.settings(workload="country-skew-80", events=20_000, seed=5))
    records = await cluster.read()
    table = Partitions(len(records))
    for partition, found in records.items():
        assert all(table[record.key or b""] == partition for record in found)
        assert [record.timestamp for record in found] == sorted(record.timestamp for record in found)
    assert len({record.timestamp for found in records.values() for record in found}) == 20_000


async def test_flights_by_tail_number_keep_their_missing_keys(cluster: Cluster) -> None:
    replay = await finished(cluster.settings(workload="flights", key="tailnum"))
    assert (replay.status().sent, replay.status().total) == (336_776, 336_776)
    records = [record for found in (await cluster.read()).values() for record in found]
    block = Flights("tailnum").read(0, 336_776)
    assert sorted(record.timestamp for record in records) == list(block.times)
    assert sum(record.key is None for record in records) == 2512
    assert len({record.key for record in records}) == 4044


async def test_bad_lines_are_found_in_dead_letters_and_counts_add_up(cluster: Cluster) -> None:
    path = cluster.write_lines(100)
    lines = path.read_bytes().splitlines()
    lines[17], lines[59] = b"{", orjson.dumps({"i": 59, "key": "k", "at": 1, "pad": "x" * 3000})
    path.write_bytes(b"\n".join(lines))
    settings = cluster.settings(file=path, max_event_bytes=2000, **FILE)
    replay = await finished(settings)
    assert (replay.status().sent, replay.status().bad_lines) == (98, 2)
    dead = (await cluster.read(settings.dead_letters_topic, 1))[0]
    # Of a line that is too long, the beginning is kept.
    assert [(dict(r.headers)["keygrouping-reason"], r.value[:2000]) for r in dead] == [
        (b"invalid-json", lines[17]),
        (b"too-large", lines[59][:2000]),
    ]
    assert b"3,0" in dict(dead[1].headers)["keygrouping-detail"] and len(dead[1].value) < 2010
    assert dict(dead[0].headers)["keygrouping-source"] == b"events.jsonl:18"
    assert sum(map(len, (await cluster.read()).values())) == 98


async def test_after_sigkill_a_restart_goes_on_without_loss_or_double(cluster: Cluster) -> None:
    file = cluster.write_lines(LINES)
    for stop_at in (2_000, 7_000):
        service = cluster.start(file=file, rate=8_000, **FILE)
        await service.sent_at_least(stop_at)
        service.process.send_signal(signal.SIGKILL)
        assert await service.ends() == -signal.SIGKILL
    last = cluster.start(file=file, exit_when_done=True, **FILE)
    assert await last.ends() == 0, last.log.read_text()
    assert f'"sent":{LINES}' in last.log.read_text()
    await check_lines(cluster, LINES)


async def test_processes_share_the_partitions_and_may_be_fewer_after_a_sigkill(cluster: Cluster) -> None:
    file = cluster.write_lines(LINES)
    service = cluster.start(file=file, rate=8_000, processes=3, **FILE)
    await service.sent_at_least(4_000)
    service.process.send_signal(signal.SIGKILL)
    await service.ends()
    last = cluster.start(file=file, processes=2, exit_when_done=True, **FILE)
    assert await last.ends() == 0, last.log.read_text()
    assert f'"sent":{LINES}' in last.log.read_text()
    await check_lines(cluster, LINES)
    assert await cluster.start(file=file, processes=1, exit_when_done=True, **FILE).ends() == 0
    await check_lines(cluster, LINES)


async def test_a_process_that_starts_when_its_leader_is_gone_changes_nothing(cluster: Cluster) -> None:
    file = cluster.write_lines(LINES)
    service = cluster.start(file=file, rate=8_000, **FILE)
    await service.sent_at_least(2_000)
    service.process.kill()
    gone = await service.ends() and service.process.pid
    before = await read_places(cluster.settings())
    late = cluster.start("keygrouping_producer.slot", "1", "3", str(gone), file=file, **FILE)
    assert await late.ends() == 0, late.log.read_text()
    assert await read_places(cluster.settings()) == before


async def test_a_slot_is_shut_out_though_it_has_recorded_nothing_yet(cluster: Cluster) -> None:
    settings = cluster.settings()
    partition = TopicPartition(settings.events_topic, 3)
    late = clients.producer(settings, transactional_id=settings.transactional_id("producer", 3))
    async with clients.started(late):
        await fence_predecessors(settings, first=1)
        with pytest.raises((ProducerFenced, InvalidProducerEpoch)):
            async with late.transaction():
                await late.send_offsets_to_transaction({partition: 5}, settings.positions_group)
    assert (await read_places(settings))[0][3] is None


async def test_places_are_read_once_what_transactions_have_committed_can_be_seen(cluster: Cluster) -> None:
    settings = cluster.settings(file=cluster.write_lines(100), **FILE)
    await finished(settings)
    before = (await read_places(settings)).places[2]
    assert before is not None
    other = clients.producer(settings, transactional_id=f"{settings.application}-other")
    async with clients.started(other):
        await other.begin_transaction()
        place = TopicPartition(settings.events_topic, 2)
        later = replace(before, counters=Counters(sent=before.counters.sent + 7))
        await other.send_offsets_to_transaction({place: later.encode()}, settings.positions_group)
        reading = asyncio.create_task(read_places(settings, (2, PARTITIONS)))
        elsewhere = await read_places(settings, (1, PARTITIONS))
        assert elsewhere.places[2] == before, "what others write is not waited for"
        assert not reading.done()
        await other.commit_transaction()
        assert (await reading).places[2] == later


@pytest.mark.long
async def test_a_broker_that_is_killed_and_comes_back_costs_nothing(cluster: Cluster) -> None:
    service = cluster.start(file=cluster.write_lines(LINES), rate=6_000, exit_when_done=True, **FILE)
    await service.sent_at_least(3_000)
    cluster.broker.kill()
    await asyncio.to_thread(cluster.broker.start)
    assert await service.ends() == 0, service.log.read_text()
    await check_lines(cluster, LINES)


async def test_sigterm_ends_in_order_and_the_rest_follows_later(cluster: Cluster) -> None:
    file = cluster.write_lines(LINES)
    service = cluster.start(file=file, rate=5_000, **FILE)
    await service.sent_at_least(1_000)
    service.process.send_signal(signal.SIGTERM)
    assert await service.ends() == 0, service.log.read_text()
    await finished(cluster.settings(file=file, **FILE))
    await check_lines(cluster, LINES)


async def test_a_switch_ends_one_run_and_begins_another_and_outlives_a_restart(cluster: Cluster) -> None:
    settings = cluster.settings(workload="country-skew-80", rate=2_000)
    skewed = Plan.model_validate({"workload": {"workload": "country-skew-0", "events": 3_000}})
    async with running(settings) as replay:

        async def has_sent() -> bool:
            return replay.status().sent > 500

        await cluster.eventually(has_sent, "some events of the first run")
        await replay.switch(skewed)
        before = await count_records(cluster)
        assert replay.status().run == 2
    async with running(settings) as replay:
        await asyncio.wait_for(replay.done(), DONE_SECONDS)
        assert replay.status().workload == "country-skew-0"
        assert replay.status().sent == 3_000
    assert await count_records(cluster) - before <= 3_000
    times = sorted(record.timestamp for found in (await cluster.read()).values() for record in found)
    first_run = len(times) - 3_000
    assert first_run > 500
    step = times[-1] - times[-2]
    assert times == sorted(
        [times[0] + i * step for i in range(3_000)] + [times[0] + i * step for i in range(first_run)]
    )


async def count_records(cluster: Cluster) -> int:
    return sum(map(len, (await cluster.read()).values()))


async def test_a_loop_goes_on_until_it_is_told_not_to(cluster: Cluster) -> None:
    async with running(cluster.settings(workload="country-skew-50", events=500, loop=True, rate=5_000)) as replay:

        async def has_looped() -> bool:
            return replay.status().sent > 1_000

        await cluster.eventually(has_looped, "a third round")
        assert not replay.status().done
        await replay.set_pace(Pace(rate=0, loop=False))
        await asyncio.wait_for(replay.done(), DONE_SECONDS)
        sent = replay.status().sent
    assert sent % 500 == 0
    records = [record for found in (await cluster.read()).values() for record in found]
    assert len({record.timestamp for record in records}) == len(records) == sent


async def posted(cluster: Cluster, service: Service, *events: dict[str, Any]) -> httpx.Response:
    content = b"\n".join(map(orjson.dumps, events))
    async with httpx.AsyncClient(base_url=await service.url(), timeout=30) as client:

        async def is_ready() -> bool:
            return (await client.get("/readyz")).status_code == 200

        await cluster.eventually(is_ready, "a ready service")
        return await client.post("/events", content=content, headers={"content-type": "application/x-ndjson"})


async def test_events_by_http_are_there_when_the_answer_comes(cluster: Cluster) -> None:
    service = cluster.start()
    answer = await posted(
        cluster,
        service,
        *({"key": f"k{i % 37}" if i % 10 else None, "value": {"i": i}, "timestamp": i} for i in range(1000)),
        {"key": "last", "value": None, "headers": {"h": "1"}, "timestamp": 5},
    )
    assert (answer.status_code, answer.json()) == (202, {"accepted": 1001})
    records = await cluster.read()
    (tombstone,) = [record for found in records.values() for record in found if record.value is None]
    assert (tombstone.key, tombstone.headers, tombstone.timestamp) == (b"last", (("h", b"1"),), 5)
    events = {p: [record for record in found if record.value] for p, found in records.items()}
    assert cluster.numbers_in(events) == cluster.expected_numbers(1000)
    assert all(
        record.timestamp == orjson.loads(record.value or b"")["i"] for found in events.values() for record in found
    )


@pytest.mark.long
async def test_while_the_broker_is_away_requests_are_refused_in_bounded_time(cluster: Cluster) -> None:
    service = cluster.start(acknowledge_timeout=0.5)
    assert (await posted(cluster, service, {"value": 1})).status_code == 202
    cluster.broker.kill()
    try:
        async with httpx.AsyncClient(base_url=await service.url(), timeout=5) as client:
            for _ in range(3):
                answer = await client.post("/events", json={"value": 2})
                assert answer.status_code == 503
    finally:
        await asyncio.to_thread(cluster.broker.start)
    async with httpx.AsyncClient(base_url=await service.url(), timeout=30) as client:

        async def is_taken() -> bool:
            return (await client.post("/events", json={"value": 3})).status_code == 202

        await cluster.eventually(is_taken, "events taken again")
    values = [record.value for found in (await cluster.read()).values() for record in found]
    assert values.count(b"1") == 1
    assert values.count(b"3") == 1


async def test_two_producers_of_one_name_end_with_one_and_lose_nothing(cluster: Cluster) -> None:
    file = cluster.write_lines(LINES)
    services = [cluster.start(file=file, rate=2_000, exit_when_done=True, **FILE) for _ in range(2)]
    codes = sorted([await service.ends() for service in services])
    assert codes == [0, 1]
    assert sum("another producer of the application" in service.log.read_text() for service in services) == 1
    await check_lines(cluster, LINES)


@pytest.mark.long
async def test_an_outage_longer_than_the_transaction_timeout_costs_nothing(cluster: Cluster) -> None:
    file = cluster.write_lines(LINES)
    timeout = 5
    service = cluster.start(file=file, rate=5_000, exit_when_done=True, transaction_timeout=timeout, **FILE)
    await service.sent_at_least(3_000)
    cluster.broker.kill()
    await asyncio.sleep(timeout + 2)  # the outage itself
    await asyncio.to_thread(cluster.broker.start)
    assert await service.ends() == 0, service.log.read_text()
    await check_lines(cluster, LINES)


async def test_workload_and_rate_of_several_processes_are_switched_live(cluster: Cluster) -> None:
    service = cluster.start(workload="country-skew-80", rate=1_000, processes=2)
    await service.sent_at_least(500)
    async with httpx.AsyncClient(base_url=await service.url(), timeout=30) as client:
        answer = await client.put("/workload", json={"skew": 0, "events": 3_000})
        assert (answer.status_code, answer.json()["run"], answer.json()["skew"]) == (200, 2, 0)
        assert (await client.put("/rate", json={"rate": 0})).json()["rate"] == 0

        async def is_done() -> bool:
            return bool((await client.get("/status")).json()["done"])

        await cluster.eventually(is_done, "the end of the second run")
        assert (await client.get("/status")).json()["sent"] == 3_000
        metrics = (await client.get("/metrics")).text
    sent = re.search(r"^keygrouping_producer_sent_total (\d+)", metrics, re.MULTILINE)
    assert sent and int(sent[1]) > 3_000
    service.process.send_signal(signal.SIGTERM)
    assert await service.ends() == 0, service.log.read_text()


async def test_more_processes_than_partitions_are_refused_in_one_line(cluster: Cluster) -> None:
    service = cluster.start(workload="country-skew-80", processes=5)
    assert await service.ends() == 1
    assert "5 processes are too many for 4 partitions" in service.log.read_text()


@pytest.mark.fault
@pytest.mark.timeout(1200)
async def test_many_kills_of_producer_and_broker_in_mid_stream_cost_nothing(cluster: Cluster) -> None:
    count, kills, chance = 1_000_000, 20, random.Random(4)
    file = cluster.write_lines(count)
    for turn in range(kills):
        service = cluster.start(file=file, processes=1 + turn % 3, rate=40_000, **FILE)
        await service.sent_at_least(turn * count // (kills + 1) + chance.randrange(40_000))
        if turn % 4 == 3:
            cluster.broker.kill()
            await asyncio.sleep(chance.uniform(0, 2))
            await asyncio.to_thread(cluster.broker.start)
            await asyncio.sleep(chance.uniform(0, 2))
        service.process.kill()
        await service.ends()
    last = cluster.start(file=file, exit_when_done=True, **FILE)
    assert await last.ends() == 0, last.log.read_text()
    await check_lines(cluster, count)
