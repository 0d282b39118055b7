"""The watermark of each input partition is shown by who works on it, and a command names the one that is behind."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiokafka import TopicPartition
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.owned import OwnedPartition
from keygrouping_service.kafka.progress import END, Committed, Progress, commit_progress
from keygrouping_service.kafka.runner import PartitionRunner
from keygrouping_service.kafka.watermarks import Standing, hide_watermark, report, show_watermark
from keygrouping_service.settings import StageSettings
from keygrouping_service.testing import Cluster, until
from prometheus_client import REGISTRY

TEN = 36_000_000
"""10:00 on the first day of 1970, in ms."""


@asynccontextmanager
async def running(runner: PartitionRunner) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(runner.run(stop))
    try:
        yield
    finally:
        stop.set()
        await task


def shown(group: str, partition: int) -> float | None:
    labels = {"group": group, "partition": str(partition)}
    return REGISTRY.get_sample_value("keygrouping_watermark_timestamp_seconds", labels)


def test_what_holds_nothing_back_is_not_shown() -> None:
    show_watermark("k-router", 3, Progress(TEN))
    assert shown("k-router", 3) == 36_000
    show_watermark("k-router", 3, Progress(TEN, idle=True))
    assert shown("k-router", 3) is None
    show_watermark("k-router", 3, Progress(TEN, resuming=True))
    assert shown("k-router", 3) == 36_000
    show_watermark("k-router", 3, Progress(END))
    assert shown("k-router", 3) is None


def test_a_partition_of_which_nothing_is_known_is_shown_at_the_begin_of_time() -> None:
    show_watermark("k-router", 4, Progress())
    assert shown("k-router", 4) == 0
    hide_watermark("k-router", 4)
    hide_watermark("k-router", 4)
    assert shown("k-router", 4) is None


@pytest.mark.parametrize(
    ("behind", "verdict"),
    [
        (
            Standing("events", 1, Progress(TEN - 720_000), 0),
            "events[1] holds results back, 12 min 0 s behind: all of it is read, so whoever writes to it is behind",
        ),
        (
            Standing("events", 1, Progress(TEN - 3_900_000), 1234),
            "events[1] holds results back, 1 h 5 min behind: 1,234 offsets of it are unread, so the router stage has "
            "yet to read them",
        ),
        (
            Standing("events", 1, Progress(), 7),
            "events[1] holds results back: nothing of it is known yet, with 7 offsets unread",
        ),
        (Standing("events", 1, Progress(TEN), 0), "no partition is behind another: event time is 1970-01-01T10:00:00Z"),
        (
            Standing("events", 1, Progress(TEN - 400), 9),
            "no partition is behind another: event time is 1970-01-01T10:00:00Z",
        ),
    ],
)
def test_the_partition_that_holds_results_back_is_named_with_the_reason(behind: Standing, verdict: str) -> None:
    others = [Standing("events", 0, Progress(TEN), 0), Standing("events", 2, Progress(TEN, idle=True), 0)]
    first, *rows = report({"router": [behind, *others]}, TEN).splitlines()
    assert first == f"router: {verdict}"
    assert [row.split()[0] for row in rows if row] == ["events[1]", "events[0]", "events[2]"]


def test_partitions_that_are_ahead_of_the_clock_are_named() -> None:
    hour = 3_600_000
    found = [
        Standing("events", number, Progress(time), 0) for number, time in enumerate((TEN, TEN + hour, TEN + 5_000))
    ]
    lines = report({"router": found, "worker": found}, TEN).splitlines()
    (line,) = (line for line in lines if "ahead of the clock" in line)
    assert line == "  ahead of the clock by up to 1 h 0 min: events[1]"
    assert "ahead of the clock" not in report({"router": found}, TEN + hour)


def test_idle_and_finished_partitions_hold_nothing_back() -> None:
    found = [Standing("events", 0, Progress(TEN, idle=True), 0), Standing("events", 1, Progress(END), 0)]
    text = report({"router": found, "worker": []}, TEN)
    assert "router: nothing is held back, as all partitions are idle or finished" in text
    assert "worker: its input does not exist" in text


@pytest.mark.kafka
async def test_a_stage_shows_what_it_has_committed_while_it_works_on_a_partition(
    cluster: Cluster, settings: StageSettings, topic_prefix: str
) -> None:
    source = f"{topic_prefix}-in"
    await cluster.create(**{source: 2})
    idle = asyncio.Event()

    async def work(owned: OwnedPartition) -> None:
        await owned.commit(None, 0, Progress(TEN + owned.partition))
        if owned.partition == 1:
            await idle.wait()
            await owned.commit(None, 0, Progress(TEN, idle=True))
        await until(lambda: owned.stopping)

    runner = PartitionRunner(settings, "router", source, work)
    async with running(runner):
        await until(lambda: [shown(runner.group, p) for p in (0, 1)] == [36_000.0, 36_000.001])
        idle.set()
        await until(lambda: shown(runner.group, 1) is None)
    assert shown(runner.group, 0) is None, "another process may show it now"


@pytest.mark.kafka
async def test_the_command_names_the_partition_that_is_behind(
    broker: EmbeddedBroker, cluster: Cluster, settings: StageSettings, application: str
) -> None:
    events, routed, partials = (f"{application}-{name}" for name in ("events", "routed", "partials"))
    await cluster.create(**{events: 3, routed: 1, partials: 1})
    await cluster.write(events, [(b"k", b"v")] * 5, 2)
    times = {0: TEN, 1: TEN - 60_000, 2: TEN - 7_200_000}
    async with clients.started(clients.reader(settings, group_id=settings.group("router"))) as consumer:
        consumer.assign([TopicPartition(events, partition) for partition in times])
        await commit_progress(consumer, events, {p: Committed(0, Progress(t)) for p, t in times.items()})
    environment = {
        "KEYGROUPING_BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        "KEYGROUPING_APPLICATION": application,
        "KEYGROUPING_EVENTS_TOPIC": events,
        "KEYGROUPING_ROUTED_TOPIC": routed,
        "KEYGROUPING_PARTIALS_TOPIC": partials,
    }
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "keygrouping_service.kafka.watermarks"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"router: {events}[2] holds results back, 2 h 0 min behind: 5 offsets of it are unread" in done.stdout
    assert f"worker: {routed}[0] holds results back: nothing of it is known yet" in done.stdout
