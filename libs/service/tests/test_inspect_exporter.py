"""`keygrouping inspect --follow --metrics-port` on a real topic: what it tells is what then happens."""

import asyncio
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from aiokafka import AIOKafkaProducer
from keygrouping.partitioner import Partitioner
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.monitoring import metrics_address
from keygrouping_local.process import spawn, terminate
from keygrouping_service.testing import Cluster, until
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.kafka
PARTITIONS = 12
HOT = {b"acme": 0.3, b"beta": 0.12}


@pytest.fixture
async def cluster(broker: EmbeddedBroker) -> AsyncIterator[Cluster]:
    async with Cluster(broker.bootstrap_servers) as found:
        yield found


@pytest.fixture
async def topic(cluster: Cluster, topic_prefix: str) -> str:
    return await created(cluster, f"{topic_prefix}-orders")


async def created(cluster: Cluster, name: str, partitions: int = PARTITIONS) -> str:
    await cluster.create(**{name.replace("-", "__"): partitions})
    return name


def keys(count: int, hot: dict[bytes, float] = HOT, seed: int = 1) -> list[bytes]:
    chance = np.random.default_rng(seed)
    names = [*hot, *(b"key-%d" % number for number in range(3000))]
    shares = [*hot.values(), *((1 - sum(hot.values())) / 3000 for _ in range(3000))]
    return [names[place] for place in chance.choice(len(names), count, p=shares)]


async def write(cluster: Cluster, topic: str, some: Sequence[bytes | None], grouping: str | None = None) -> None:
    """By the default partitioner of Java's clients, or by a grouping."""
    options: dict[str, Any] = {} if grouping is None else {"partitioner": Partitioner(grouping)}
    producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=20, **options)
    await producer.start()
    try:
        for begin in range(0, len(some), 1000):
            await asyncio.gather(*[await producer.send(topic, b"{}", key) for key in some[begin : begin + 1000]])
    finally:
        await producer.stop()


class Asked:
    """An exporter as its users see it."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

    async def advice(self) -> dict[str, Any]:
        answer = await self._client.get("/advice")
        return dict(answer.json()) if answer.status_code == 200 else {}

    async def status(self, path: str) -> int:
        try:
            return (await self._client.get(path)).status_code
        except httpx.TransportError:
            return 0

    async def series(self, name: str) -> dict[tuple[str, ...], float]:
        """Values by labels but the topic, in the order of their names."""
        families = text_string_to_metric_families((await self._client.get("/metrics")).text)
        return {
            tuple(value for label, value in sorted(sample.labels.items()) if label != "topic"): sample.value
            for family in families
            for sample in family.samples
            if sample.name == f"keygrouping_inspect_{name}"
        }

    async def has(self, events: int) -> bool:
        return (await self.advice()).get("events", 0) >= events


@asynccontextmanager
async def exporting(cluster: Cluster, topic: str, folder: Path, *options: str) -> AsyncIterator[Asked]:
    """The command as a process of its own."""
    log = folder / f"log-{topic}"
    command = [sys.executable, "-m", "keygrouping", "inspect", "--topic", topic, "--follow", "--metrics-port", "0"]
    given = ["--bootstrap-servers", cluster.bootstrap_servers, "--every", "1", "--workers", "6", "24", *options]
    process = spawn([*command, *given], log)
    try:
        await until(partial(metrics_address, log))
        async with httpx.AsyncClient(base_url=f"http://{metrics_address(log)}", timeout=30) as client:
            yield Asked(client)
    finally:
        terminate(process, 20)


async def reads(asked: Asked) -> bool:
    return await asked.status("/readyz") == 200


async def learned(asked: Asked) -> bool:
    """Whether it says what splitting does to this stream."""
    found = (await asked.advice()).get("workers", ())
    return bool(found) and all(each["split"]["imbalance"] is not None for each in found)


async def feed(cluster: Cluster, asked: Asked, topic: str, seconds: int = 12, **options: Any) -> dict[str, Any]:
    """The stream in so many batches; gives what is said of it."""
    await until(partial(reads, asked))
    for second in range(seconds):
        await write(cluster, topic, keys(4000, seed=second), **options)
        await asyncio.sleep(0.3)
    await until(partial(asked.has, seconds * 4000))
    await until(partial(learned, asked))
    return await asked.advice()


async def test_what_it_advises_is_what_then_happens(cluster: Cluster, topic: str, tmp_path: Path) -> None:
    before = (set(await cluster.admin.list_topics()), len(await cluster.admin.list_consumer_groups()))
    async with exporting(cluster, topic, tmp_path) as asked:
        found = await feed(cluster, asked, topic)
        width = {rank: value for (rank,), value in (await asked.series("hot_key_width")).items()}
        assert (await asked.series("works_like_workers"))[()] == found["partitions"]["works_like"]
        assert len(await asked.series("hot_key_share")) == 10
        assert await asked.series("named_key_share") == {}
    assert before == (set(await cluster.admin.list_topics()), len(await cluster.admin.list_consumer_groups()))
    assert [key["key"] for key in found["keys"]][:2] == ["acme", "beta"]
    assert "Splitting acme " in found["advice"][-1] and width["1"] > width["3"] == 1
    for workers in (6, 24):
        predicted = next(each for each in found["workers"] if each["workers"] == workers)
        for grouping, figure in (("key", predicted["by_key"]), ("level-fill", predicted["split"])):
            name = await created(cluster, f"{topic}-{grouping}-{workers}", workers)
            async with exporting(cluster, name, tmp_path) as asked:
                done = await feed(cluster, asked, name, grouping=grouping)
            assert done["partitions"]["works_like"] == pytest.approx(figure["works_like"], rel=0.06), (
                grouping,
                workers,
            )
