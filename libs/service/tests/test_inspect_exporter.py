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
from aiokafka.admin import NewPartitions
from aiokafka.partitioner import murmur2
from keygrouping.cli import main
from keygrouping.inspection import Extraction, KeyNaming, Wanted
from keygrouping.partitioner import Partitioner
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.monitoring import metrics_address
from keygrouping_local.process import spawn, terminate
from keygrouping_service import inspect_metrics, settings
from keygrouping_service.inspect_exporter import Exporter
from keygrouping_service.kafka import topic_slices
from keygrouping_service.kafka.topic_fetching import kept_by
from keygrouping_service.settings import ApiSettings
from keygrouping_service.testing import Cluster, until
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

pytestmark = pytest.mark.kafka
PARTITIONS = 12
HOT = {b"acme": 0.3, b"beta": 0.12}


@pytest.fixture(scope="module")
def broker(fresh_broker: EmbeddedBroker) -> EmbeddedBroker:
    return fresh_broker


@pytest.fixture
async def cluster(broker: EmbeddedBroker) -> AsyncIterator[Cluster]:
    async with Cluster(broker.bootstrap_servers) as found:
        yield found


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "REQUEST_TIMEOUT_MS", 4000)


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


def murmur(key: bytes) -> int:
    """Where the default partitioner puts a key."""
    return int(murmur2(key) & 0x7FFFFFFF) % PARTITIONS


class Asked:
    """An exporter as its users see it."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client

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
            if sample.name == name
        }


@asynccontextmanager
async def exporting(cluster: Cluster, topic: str, folder: Path, *options: str) -> AsyncIterator[Asked]:
    """The command as a process of its own."""
    log = folder / f"log-{topic}"
    command = [sys.executable, "-m", "keygrouping", "inspect", "--topic", topic, "--follow", "--metrics-port", "0"]
    given = ["--bootstrap-servers", cluster.bootstrap_servers, "--every", "1", *options]
    process = spawn([*command, *given], log)
    try:
        await until(partial(metrics_address, log))
        async with httpx.AsyncClient(base_url=f"http://{metrics_address(log)}", timeout=30) as client:
            yield Asked(client)
    finally:
        terminate(process, 20)


async def reads(asked: Asked) -> bool:
    return await asked.status("/readyz") == 200


@asynccontextmanager
async def running(cluster: Cluster, topic: str, **given: Any) -> AsyncIterator[Exporter]:
    """An exporter in this process."""
    kafka = ApiSettings(bootstrap_servers=cluster.bootstrap_servers)
    usual = {"workers": [4], "window": 600, "every": 0.2, "top": 5, "key_labels": False}
    wanted = Wanted(topic=topic, extraction=Extraction(), naming=KeyNaming(), **{**usual, **given})
    exporter, stop = Exporter(kafka, wanted), asyncio.Event()
    serving = asyncio.create_task(exporter.serve(stop))
    try:
        yield exporter
    finally:
        stop.set()
        await asyncio.wait_for(serving, 60)


def says(exporter: Exporter) -> dict[str, Any]:
    found = exporter.advice()
    return {} if found is None else found.model_dump()


async def until_events(exporter: Exporter, count: int) -> dict[str, Any]:
    await until(lambda: says(exporter).get("events", 0) >= count)
    return says(exporter)


def learned(exporter: Exporter) -> bool:
    """Whether it says what splitting does to this stream."""
    found = says(exporter).get("workers", ())
    return bool(found) and all(each["split"]["imbalance"] is not None for each in found)


async def feed(cluster: Cluster, topic: str, grouping: str | None = None) -> dict[str, Any]:
    """Writes the stream, by the default partitioner or by a grouping; gives what is said of it."""
    async with running(cluster, topic, workers=[6, 24]) as exporter:
        await until(lambda: exporter.state == "reading")
        for second in range(15):
            await write(cluster, topic, keys(4000, seed=second), grouping)
            await asyncio.sleep(0.1)
        await until_events(exporter, 60_000)
        await until(lambda: learned(exporter))
        return says(exporter)


async def test_what_it_advises_is_what_then_happens(cluster: Cluster, topic: str) -> None:
    before = (set(await cluster.admin.list_topics()), len(await cluster.admin.list_consumer_groups()))
    found = await feed(cluster, topic)
    width = [inspect_metrics.HOT_WIDTH.labels(topic, rank)._value.get() for rank in range(1, 11)]
    assert inspect_metrics.WORKS_LIKE.labels(topic)._value.get() == found["partitions"]["works_like"]
    assert before == (set(await cluster.admin.list_topics()), len(await cluster.admin.list_consumer_groups()))
    assert [key["key"] for key in found["keys"]][:2] == ["acme", "beta"]
    assert "Splitting acme " in found["advice"][-1] and width[0] > width[2] == 1
    predicted = next(each for each in found["workers"] if each["workers"] == 24)
    for grouping, figure in (("key", predicted["by_key"]), ("level-fill", predicted["split"])):
        done = await feed(cluster, await created(cluster, f"{topic}-{grouping}", 24), grouping)
        assert done["partitions"]["works_like"] == pytest.approx(figure["works_like"], rel=0.06), grouping


async def test_more_than_can_be_read_is_a_fair_sample(cluster: Cluster, topic: str) -> None:
    kafka = ApiSettings(bootstrap_servers=cluster.bootstrap_servers)
    reading = topic_slices.TopicSlices(kafka, topic, kept_by(Extraction().job()), 9000)
    slices = reading.slices(await reading.topic_id())
    try:
        first = await anext(slices)
        written = keys(60_000)
        await write(cluster, topic, written)
        found = await anext(slices)
    finally:
        await slices.aclose()
    sizes = np.bincount([murmur(key) for key in written], minlength=PARTITIONS)
    read = np.bincount([event.partition for event in found.events], minlength=PARTITIONS)
    assert (first.events, found.partitions) == ([], PARTITIONS)
    assert read.tolist() == np.ceil(sizes * 9000 / 60_000).tolist()
    assert len(found.events) * found.scale == pytest.approx(60_000)
    share = sum(event.key == b"acme" for event in found.events) / len(found.events)
    assert share == pytest.approx(HOT[b"acme"], rel=0.06)


async def test_it_waits_for_a_topic_and_follows_it_through_deletion(cluster: Cluster, topic_prefix: str) -> None:
    topic = f"{topic_prefix}-later"
    async with running(cluster, topic) as exporter:
        await until(lambda: exporter.state == "missing")
        assert exporter.advice() is None and topic not in await cluster.admin.list_topics()
        await created(cluster, topic, 2)
        await until(lambda: exporter.state == "reading" and exporter.advice() is not None)
        assert says(exporter)["advice"] == ["Nothing came lately: there is nothing to say."]
        assert says(exporter)["partitions"]["works_like"] is None
        await cluster.write(topic, [(b"old", b"")] * 30, 1)
        assert (await until_events(exporter, 30))["partitions"]["works_like"] == 1
        await cluster.admin.delete_topics([topic])
        await until(lambda: exporter.state == "missing")
        assert topic not in await cluster.admin.list_topics()
        await created(cluster, topic, 3)
        await until(lambda: exporter.state == "reading")
        await until(lambda: says(exporter)["partitions"]["count"] == 3)
        await until(lambda: knows(cluster, topic, 2))
        await cluster.write(topic, [(b"new", b"")] * 20, 2)
        found = await until_events(exporter, 20)
    assert found["events"] == 20 and [key["key"] for key in found["keys"]] == ["new"]


async def test_a_topic_of_the_same_name_is_another_one(
    cluster: Cluster, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_slices, "_LOOK_SECONDS", 0.1)
    topic = await created(cluster, f"{topic_prefix}-again", 1)
    async with running(cluster, topic) as exporter:
        await until(lambda: exporter.state == "reading")
        await cluster.write(topic, [(b"old", b"")] * 30)
        await until_events(exporter, 30)
        await cluster.recreate(topic, 2)
        await until(lambda: says(exporter)["partitions"]["count"] == 2 and exporter.state == "reading")
        await until(lambda: knows(cluster, topic, 1))
        await cluster.write(topic, [(b"new", b"")] * 20, 1)
        await until(lambda: [key["key"] for key in says(exporter)["keys"]] == ["new"])


async def test_partitions_that_are_added_are_read(
    cluster: Cluster, topic_prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(topic_slices, "_LOOK_SECONDS", 0.1)
    topic = await created(cluster, f"{topic_prefix}-grows", 2)
    async with running(cluster, topic) as exporter:
        await until(lambda: exporter.state == "reading")
        await cluster.write(topic, [(b"a", b"")] * 10, 0)
        await until_events(exporter, 10)
        await cluster.admin.create_partitions({topic: NewPartitions(4)})
        await until(lambda: says(exporter)["partitions"]["count"] == 4)
        await until(lambda: knows(cluster, topic, 3))
        await cluster.write(topic, [(b"b", b"")] * 30, 3)
        found = await until_events(exporter, 40)
    assert found["partitions"]["shares"] == [0.25, 0, 0, 0.75]
    assert [each["workers"] for each in found["workers"]] == [4]


async def knows(cluster: Cluster, topic: str, partition: int) -> bool:
    await cluster.producer.client.force_metadata_update()
    return partition in (cluster.producer.client.cluster.partitions_for_topic(topic) or ())


async def test_records_without_a_key_are_counted_and_are_a_load(cluster: Cluster, topic_prefix: str) -> None:
    topic = await created(cluster, f"{topic_prefix}-keyless", 2)
    async with running(cluster, topic) as exporter:
        await until(lambda: exporter.state == "reading")
        for reason in ("no-key", "record-too-large", "undecodable-batch"):
            assert left_out(topic, reason) == 0, "an alert sees the first increase"
        await cluster.write(topic, [(None, b"x")] * 30, 1)
        found = await until_events(exporter, 30)
        assert found["partitions"]["shares"] == [0, 1] and found["keys"] == []
        assert found["advice"][-1] == "No key can be seen: the load is spread unevenly by whoever writes it."
    assert left_out(topic, "no-key") == 30


def left_out(topic: str, reason: str) -> float | None:
    return REGISTRY.get_sample_value("keygrouping_inspect_left_out_total", {"topic": topic, "reason": reason})


async def test_a_broker_may_come_back(broker: EmbeddedBroker, cluster: Cluster, topic: str) -> None:
    async with running(cluster, topic) as exporter:
        await until(lambda: exporter.state == "reading")
        await cluster.write(topic, [(b"before", b"")] * 10)
        await until_events(exporter, 10)
        await asyncio.to_thread(broker.kill)
        try:
            await until(lambda: exporter.state == "unreachable")
        finally:
            await asyncio.to_thread(broker.start)
        await until(lambda: exporter.state == "reading")
        await cluster.write(topic, [(b"after", b"")] * 10)
        await until_events(exporter, 20)
        assert {key["key"] for key in says(exporter)["keys"]} == {"before", "after"}


async def test_tokens_and_names_are_as_asked(
    cluster: Cluster, topic: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "tokens").write_text("alice read secret\n")
    monkeypatch.setenv("KEYGROUPING_API_TOKEN_FILE", str(tmp_path / "tokens"))
    monkeypatch.setenv("KEYGROUPING_API_READS", "closed")
    async with exporting(cluster, topic, tmp_path, "--key-labels") as asked:
        await until(partial(reads, asked))
        assert await asked.status("/advice") == 401
        await write(cluster, topic, [b"acme"] * 30 + [b"\x1b[31m"] * 10)

        async def named() -> bool:
            return await asked.series("keygrouping_inspect_named_key_share") == {("acme",): 0.75, ("\x1b[31m",): 0.25}

        await until(named)
    log = (tmp_path / f"log-{topic}").read_text()
    assert "Traceback" not in log


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--metrics-port", "0"], "--metrics-port: shows what comes: add --follow, and --topic"),
        (["--follow", "--metrics-port", "70000"], "must be an integer, from 0 to 65535, not '70000'"),
        (["--follow", "--metrics-port", "0", "--sample", "5"], "--sample: not with --metrics-port"),
        (["--follow", "--metrics-port", "0", "--key-labels", "--hash-keys"], "--key-labels: not with --hash-keys"),
        (["--follow", "--window", "60"], "--window: only with --metrics-port"),
        (["--follow", "--metrics-port", "0", "--window", "5"], "--window: at least as long as --every"),
    ],
)
def test_options_that_will_not_do_are_told(options: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["inspect", "--topic", "orders", "--bootstrap-servers", "127.0.0.1:1", *options])
    assert ended.value.code == 2 and said in capsys.readouterr().err


def test_settings_that_will_not_do_are_told_as_the_services_do(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for extra in ("rich", "matplotlib"):
        monkeypatch.setitem(sys.modules, extra, None)  # the image is without them
    monkeypatch.setenv("KEYGROUPING_SECURITY_PROTOCOL", "SASL_SSL")
    with pytest.raises(SystemExit) as ended:
        main(["inspect", "--topic", "orders", "--bootstrap-servers", "k:1", "--follow", "--metrics-port", "0"])
    assert ended.value.code == 2 and "needs KEYGROUPING_SASL_USERNAME" in capsys.readouterr().err
