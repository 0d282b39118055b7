"""What retention deletes before a query has read it is counted once, shown before it happens, and ends a checkpoint."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
from aiokafka import TopicPartition
from aiokafka.admin import RecordsToDelete
from aiokafka.errors import ClusterAuthorizationFailedError
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_service.errors import Fatal
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.retention import Retention
from keygrouping_service.settings import ServiceSettings
from keygrouping_service.testing import Cluster, configure
from keygrouping_spark import unread
from keygrouping_spark.unread import Unread
from prometheus_client import REGISTRY

HOUR = 3_600_000


class Broker:
    """Ends of the partitions of one topic, as a client tells them."""

    def __init__(self, firsts: dict[int, int], end: int = 100) -> None:
        self.firsts = firsts
        self.end = end

    async def beginning_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self.firsts[tp.partition] for tp in tps}

    async def end_offsets(self, tps: list[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(tps, self.end)


def value(name: str, group: str) -> float | None:
    return REGISTRY.get_sample_value(f"keygrouping_{name}", {"group": group})


def watched(
    broker: Broker, group: str, positions: dict[int, int], monkeypatch: pytest.MonkeyPatch
) -> tuple[Unread, list[dict[int, tuple[int, int]]]]:
    """Also what was asked to be judged by retention."""
    asked: list[dict[int, tuple[int, int]]] = []

    async def expiring(_: Retention, unread: dict[int, tuple[int, int]], now_ms: int) -> int:
        assert abs(now_ms / 1000 - time.time()) < 600
        asked.append(unread)
        return 7

    monkeypatch.setattr(Retention, "expiring", expiring)
    return Unread(None, broker, group, "t", lambda: positions), asked


async def test_each_lost_offset_is_counted_once(monkeypatch: pytest.MonkeyPatch) -> None:
    broker, positions = Broker({0: 0, 1: 10}), {0: 5, 1: 10}
    look, asked = watched(broker, "once", positions, monkeypatch)
    await look.look()
    assert value("expired_offsets_total", "once") is None and asked == [{0: (5, 100), 1: (10, 100)}]
    assert value("expiring_records", "once") == 7
    broker.firsts[0] = 8
    await look.look()
    await look.look()
    assert value("expired_offsets_total", "once") == 3 and asked[-1] == {0: (8, 100), 1: (10, 100)}
    broker.firsts[0] = 9
    await look.look()
    assert value("expired_offsets_total", "once") == 4
    positions[0], broker.firsts[0] = 50, 40
    await look.look()
    assert value("expired_offsets_total", "once") == 4


async def test_nothing_is_lost_of_what_nobody_has_begun_to_read(monkeypatch: pytest.MonkeyPatch) -> None:
    look, asked = watched(Broker({0: 40}), "fresh", {}, monkeypatch)
    await look.look()
    assert value("expired_offsets_total", "fresh") is None and asked == []


async def test_a_checkpoint_that_cannot_go_on_says_so_after_its_metrics_could_be_seen(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(unread, "SHOWN_SECONDS", 0.01)
    look, _ = watched(Broker({0: 9, 1: 0}), "gap", {0: 5, 1: 3}, monkeypatch)
    await look.look()
    await look.require({}, "file:/c", asyncio.Event())
    await look.require({0: 9, 1: 3}, "file:/c", asyncio.Event())
    with pytest.raises(Fatal, match=r"deleted 4 offsets of t .* KEYGROUPING_SPARK_CHECKPOINT to a new folder"):
        await look.require({0: 5, 1: 3}, "file:/c", asyncio.Event())
    monkeypatch.setattr(unread, "SHOWN_SECONDS", 600)
    stop = asyncio.Event()
    stop.set()
    with pytest.raises(Fatal):
        await look.require({0: 5, 1: 3}, "file:/c", stop)


async def test_a_query_works_on_where_retention_can_not_be_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    look, _ = watched(Broker({0: 8}), "unseen", {0: 5}, monkeypatch)

    async def refused(*_: object) -> int:
        raise ClusterAuthorizationFailedError

    monkeypatch.setattr(Retention, "expiring", refused)
    await look.look()
    assert value("expired_offsets_total", "unseen") == 3


@pytest.fixture
async def cluster(broker: EmbeddedBroker) -> AsyncIterator[Cluster]:
    async with Cluster(broker.bootstrap_servers) as made:
        yield made


@pytest.mark.kafka
async def test_losses_and_what_expires_on_a_real_broker(cluster: Cluster, application: str) -> None:
    await cluster.create(**{application: 1})
    await configure(cluster.admin, application, {"retention.ms": str(4 * HOUR)})
    for age in [int(3.5 * HOUR)] * 6 + [HOUR] * 2:
        stamp = int(time.time() * 1000) - age
        await cluster.producer.send_and_wait(application, b"v", key=b"k", partition=0, timestamp_ms=stamp)
    brokers = ServiceSettings(bootstrap_servers=cluster.bootstrap_servers)
    async with clients.started(clients.reader(brokers, committed=False)) as probe:
        look = Unread(cluster.admin, probe, application, application, lambda: {0: 1})
        await look.look()
        assert value("expiring_records", application) == 5
        assert value("expired_offsets_total", application) is None
        await cluster.admin.delete_records({TopicPartition(application, 0): RecordsToDelete(before_offset=4)})
        await look.look()
        assert value("expired_offsets_total", application) == 3
        assert value("expiring_records", application) == 2
