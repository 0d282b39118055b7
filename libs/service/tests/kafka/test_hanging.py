"""A transaction that stays open is named, with the offset at which it begins."""

from __future__ import annotations

import asyncio
import time

import pytest
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from keygrouping_service.kafka import clients, positions, progress
from keygrouping_service.kafka.hanging import open_transactions
from keygrouping_service.kafka.owned import OwnedPartition
from keygrouping_service.kafka.requests import ProducersRequest
from keygrouping_service.kafka.runner import PartitionRunner
from keygrouping_service.settings import StageSettings
from keygrouping_service.testing import Cluster, until

pytestmark = pytest.mark.kafka


async def test_an_open_transaction_is_found_until_it_ends(cluster: Cluster, application: str) -> None:
    tp = TopicPartition(application, 0)
    await cluster.create(**{application: 1})
    await cluster.write(application, [(b"k", b"before")])
    old_ms = int((time.time() - 100) * 1000)
    async with AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, transactional_id=f"{application}-writer"
    ) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(application, b"v", partition=0, timestamp_ms=old_ms)
        (found,) = await open_transactions(cluster.admin, tp, 60)
        assert (found.tp, found.start) == (tp, 1)
        assert 100 <= found.age < 300
        assert f"{application}[0] since offset 1" in str(found)
        assert await open_transactions(cluster.admin, tp, 3600) == [], "it may still go on"
        await producer.commit_transaction()

    async def has_ended() -> bool:
        return await open_transactions(cluster.admin, tp, 60) == []

    await until(has_ended)


async def test_who_waits_for_it_says_so(
    cluster: Cluster, settings: StageSettings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(positions, "_LONG_SECONDS", 0.1)
    old_ms = int((time.time() - 1000) * 1000)
    async with (
        AIOKafkaProducer(
            bootstrap_servers=cluster.bootstrap_servers, transactional_id=settings.application
        ) as producer,
        clients.started(clients.reader(settings, committed=False)) as probe,
    ):
        await producer.begin_transaction()
        await producer.send_and_wait(settings.positions_topic, b"{}", key=b"[]", partition=0, timestamp_ms=old_ms)
        finding = asyncio.create_task(positions.Positions(settings, "group").find(cluster.admin, probe, []))
        await until(lambda: "kafka-transactions.sh find-hanging" in caplog.text)
        await producer.abort_transaction()
        assert await finding == {}


async def test_a_partition_whose_offsets_are_held_says_which_transaction_holds_them(
    cluster: Cluster, settings: StageSettings, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    group, topic = settings.group("work"), f"{settings.application}-in"
    await cluster.create(**{topic: 1})
    monkeypatch.setattr(progress, "_STABLE_SECONDS", 0.1)
    old_ms = int((time.time() - 1000) * 1000)
    stop = asyncio.Event()

    async def work(_: OwnedPartition) -> None:
        stop.set()

    async with AIOKafkaProducer(
        bootstrap_servers=cluster.bootstrap_servers, transactional_id=settings.application
    ) as producer:
        await producer.begin_transaction()
        await producer.send_and_wait(settings.positions_topic, b"{}", key=b"[]", partition=0, timestamp_ms=old_ms)
        await producer.send_offsets_to_transaction({TopicPartition(topic, 0): 0}, group)
        running = asyncio.create_task(PartitionRunner(settings, "work", topic, work).run(stop))
        await until(lambda: "kafka-transactions.sh find-hanging" in caplog.text)
        await producer.abort_transaction()
        await asyncio.wait_for(running, 60)


async def test_an_old_broker_tells_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(request: ProducersRequest, _node: int | None) -> None:
        request.prepare({61: (1, 1)})

    async def describe(_: list[str]) -> list[dict[str, object]]:
        return [{"partitions": [{"partition": 0, "leader": 1}]}]

    admin = AIOKafkaAdminClient(bootstrap_servers="localhost:1")
    monkeypatch.setattr(admin, "_send_request", refuse)
    monkeypatch.setattr(admin, "describe_topics", describe)
    assert await open_transactions(admin, TopicPartition("positions", 0), 60) == []
