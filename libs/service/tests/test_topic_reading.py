"""`keygrouping inspect` on a real topic: what it reads, and that it leaves no trace."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator

import pytest
from keygrouping.cli import main
from keygrouping.inspection import Extraction, InspectionError
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_service.testing import Cluster
from keygrouping_service.topic_reading import TopicReading, open_topic

pytestmark = pytest.mark.kafka
SIZES = (500, 1500, 0)
LOOKS = 10


@pytest.fixture
async def cluster(broker: EmbeddedBroker) -> AsyncIterator[Cluster]:
    async with Cluster(broker.bootstrap_servers) as found:
        yield found


@pytest.fixture
async def topic(cluster: Cluster, topic_prefix: str) -> str:
    """Three partitions: keys that are no UTF-8, one of them hot, and records without key."""
    name = f"{topic_prefix}-events"
    await cluster.create(**{name.replace("-", "__"): len(SIZES)})
    for partition, size in enumerate(SIZES):
        rows = [(b"\xffhot" if n % 2 else b"key-%d" % n, b'{"n": 2}') for n in range(size)]
        await cluster.write(name, rows, partition, timestamp_ms=1_700_000_000_000 + partition)
    await cluster.write(name, [(None, b"x")] * 3, 0)
    return name


def untold(done: int, total: int) -> None:
    """Progress that nobody looks at."""


def reading(cluster: Cluster, topic: str, *, sample: int | None = None, follow: bool = False) -> TopicReading:
    return open_topic(
        topic,
        Extraction(),
        bootstrap_servers=cluster.bootstrap_servers,
        sample=sample,
        follow=follow,
        progress=untold,
    )


async def traces(cluster: Cluster) -> tuple[set[str], int]:
    """All topics, and the number of consumer groups."""
    return set(await cluster.admin.list_topics()), len(await cluster.admin.list_consumer_groups())


async def test_the_command_reads_all_and_leaves_no_trace(
    cluster: Cluster, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = await traces(cluster)
    arguments = ["inspect", "--topic", topic, "--bootstrap-servers", cluster.bootstrap_servers, "--json"]
    options = ["--workers", "4", "--groupings", "key", "shuffle", "--interval", "500", "--weight", "field=n"]
    await asyncio.to_thread(main, [*arguments, *options])
    printed = capsys.readouterr()
    data = json.loads(printed.out)
    assert printed.err == ""
    assert (data["source"]["events"], data["source"]["weight"]) == (2000, 4000.0)
    assert data["source"]["left_out"] == {"invalid-json": 3} and data["source"]["sampled_of"] is None
    assert data["source"]["earliest_ms"] == 1_700_000_000_000
    assert [each["events"] for each in data["partitions"]["loads"]] == list(SIZES)
    assert data["partitions"]["lambda"] == 3 * 1500 / 2000
    assert data["keys"]["top"][0] | {"key": ""} == data["keys"]["top"][0] | {"key": "", "share": 0.5}
    assert data["keys"]["top"][0]["key"].startswith("base64url:_2hvd")
    assert await traces(cluster) == before


async def test_a_sample_is_spread_over_all_partitions(cluster: Cluster, topic: str) -> None:
    sampled = reading(cluster, topic, sample=1000)
    batches = await asyncio.to_thread(lambda: list(sampled.batches()))
    taken = Counter(int(p) for batch in batches if batch.partitions is not None for p in batch.partitions)
    assert sampled.sampled_of == sum(SIZES) + 3 and sum(taken.values()) + sum(sampled.left_out.values()) == 1000
    assert abs(taken[1] - 1000 * 1500 / 2003) <= 1
    numbers = [int(key[4:]) for batch in batches for key in batch.keys if key.startswith(b"key-")]
    assert min(numbers) < 300 and max(numbers) > 1200


async def test_it_follows_what_comes(cluster: Cluster, topic: str) -> None:
    follower = reading(cluster, topic, sample=0, follow=True)

    def first_of() -> list[bytes]:
        batches = follower.batches()
        try:
            for batch in batches:
                if not batch.keys and not started.is_set():
                    loop.call_soon_threadsafe(started.set)
                if batch.keys:
                    return list(batch.keys)
        finally:
            batches.close()
        return []

    loop, started = asyncio.get_running_loop(), asyncio.Event()
    following = asyncio.create_task(asyncio.to_thread(first_of))
    await asyncio.wait_for(started.wait(), 60)
    await cluster.write(topic, [(b"new", b"")], 2)
    assert await asyncio.wait_for(following, 60) == [b"new"]


async def test_a_topic_that_is_not_there_is_told_and_not_made(cluster: Cluster, topic_prefix: str) -> None:
    missing = f"{topic_prefix}-missing"
    with pytest.raises(InspectionError, match=f"topic {missing} does not exist"):
        await asyncio.to_thread(lambda: list(reading(cluster, missing).batches()))
    assert missing not in await cluster.admin.list_topics()


async def test_a_topic_that_is_deleted_meanwhile_is_not_made_again(cluster: Cluster, topic: str) -> None:
    follower = reading(cluster, topic, follow=True)

    def read_on() -> None:
        batches = follower.batches()
        since = 0
        try:
            for batch in batches:
                since += deleted.is_set()
                if since == LOOKS:
                    return
                if not batch.keys:
                    loop.call_soon_threadsafe(at_end.set)
        except InspectionError:
            return
        finally:
            batches.close()

    loop, at_end, deleted = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
    following = asyncio.create_task(asyncio.to_thread(read_on))
    await asyncio.wait_for(at_end.wait(), 60)
    await cluster.admin.delete_topics([topic])
    deleted.set()
    await asyncio.wait_for(following, 60)
    assert topic not in await cluster.admin.list_topics()


async def test_settings_that_will_not_do_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEYGROUPING_SECURITY_PROTOCOL", "SASL_SSL")
    with pytest.raises(InspectionError, match="needs KEYGROUPING_SASL_USERNAME"):
        open_topic("t", Extraction(), bootstrap_servers="h:1", sample=None, follow=False, progress=untold)
