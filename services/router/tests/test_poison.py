"""One record that stops nothing: too large unpacked, not to be read, or one at which our own code fails."""

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest
from aiokafka import AIOKafkaProducer
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.damage import damage
from keygrouping_router.service import serve
from keygrouping_router.settings import RouterSettings
from keygrouping_service.errors import Fatal
from keygrouping_service.events import sorting
from keygrouping_service.events.extract import Judged, sort_out_late
from keygrouping_service.events.lateness import PartitionClock
from keygrouping_service.kafka import clients
from keygrouping_service.records.record import Record
from keygrouping_service.settings import names_of
from keygrouping_service.testing import Cluster, configure, until
from prometheus_client import REGISTRY

pytestmark = pytest.mark.kafka

MB = 1 << 20
TIMEOUT = 240.0
START_MS = 1_700_000_000_000
CHART_LIMIT = 1 << 30
"""Memory limit of the router in the chart."""


def header(record: Record, name: str) -> str:
    return str(dict(record.headers)[f"keygrouping-{name}"] or b"", "utf-8")


async def routed_keys(cluster: Cluster, settings: RouterSettings) -> list[bytes]:
    return sorted(record.key or b"" for record in await cluster.read(settings.routed_topic))


async def dead(cluster: Cluster, settings: RouterSettings) -> dict[int, Record]:
    """Dead letters by the offset of what they stand for; none may come twice."""
    found = await cluster.read(settings.dead_letters_topic)
    letters = {int(header(record, "offset")): record for record in found}
    assert len(letters) == len(found)
    return letters


async def handled(cluster: Cluster, settings: RouterSettings, count: int) -> bool:
    return len(await routed_keys(cluster, settings)) + len(await dead(cluster, settings)) >= count


@asynccontextmanager
async def routing(settings: RouterSettings, **changes: Any) -> AsyncIterator[asyncio.Task[None]]:
    stop = asyncio.Event()
    task = asyncio.create_task(serve(settings.model_copy(update=changes), stop))
    try:
        yield task
    finally:
        stop.set()
        await task


@asynccontextmanager
async def router_process(settings: RouterSettings) -> AsyncIterator[psutil.Process]:
    """The router as a process of its own, so that its memory is its own."""
    given = {name: value for name, value in settings if value is not None and name in settings.model_fields_set}
    job = '{"aggregates": [{"name": "events", "op": "count"}]}'
    env = {names_of(RouterSettings, name)[0]: str(value) for name, value in given.items() if name != "job"}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "keygrouping_router", env={**os.environ, **env, "KEYGROUPING_JOB": job}
    )
    try:
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        await process.wait()


def peak_bytes(process: psutil.Process) -> int:
    (line,) = [line for line in Path(f"/proc/{process.pid}/status").read_text().splitlines() if "VmHWM" in line]
    return int(line.split()[1]) * 1024


async def send_batch(settings: RouterSettings, codec: str | None, rows: list[tuple[bytes, bytes]]) -> None:
    """Writes the rows as one batch."""
    producer = AIOKafkaProducer(
        bootstrap_servers=settings.bootstrap_servers,
        compression_type=codec,
        max_batch_size=1 << 30,
        max_request_size=1 << 30,
        request_timeout_ms=60_000,
    )
    async with clients.started(producer):
        batch = producer.create_batch()
        for key, value in rows:
            assert batch.append(key=key, value=value, timestamp=START_MS)
        await (await producer.send_batch(batch, settings.events_topic, partition=0))


async def take_large_requests(cluster: Cluster, topic: str) -> None:
    await configure(cluster.admin, topic, {"max.message.bytes": str(40 * MB)})


BOMBS = [("gzip", 110), ("gzip", 400), ("zstd", 400), ("lz4", 400), ("snappy", 110)]


@pytest.mark.timeout(600)
async def test_zeros_without_end_cost_no_memory_and_take_no_good_record_with_them(
    cluster: Cluster, settings: RouterSettings
) -> None:
    await take_large_requests(cluster, settings.events_topic)
    crowd = [(b"%03d" % number, bytes(200_000)) for number in range(500)]
    async with router_process(settings.model_copy(update={"compression": "gzip"})) as process:
        await cluster.write(settings.events_topic, [(b"before", b"")], 0, START_MS)
        await until(lambda: committed(cluster, settings, 1), TIMEOUT)
        usual = peak_bytes(process)
        for codec, size in BOMBS:
            await send_batch(settings, codec, [(b"bomb", bytes(size * MB))])
        await send_batch(settings, "gzip", [*crowd, (b"bomb", bytes(30 * MB)), (b"behind", b"")])
        await until(lambda: committed(cluster, settings, 1 + len(BOMBS) + 502), TIMEOUT)
        peak = peak_bytes(process)
    assert await routed_keys(cluster, settings) == sorted([b"before", b"behind", *(key for key, _ in crowd)])
    letters = await dead(cluster, settings)
    assert list(letters) == [*range(1, 1 + len(BOMBS)), 1 + len(BOMBS) + 500]
    for (_, size), letter in zip([*BOMBS, ("gzip", 30)], letters.values(), strict=True):
        assert (letter.key, letter.value) == (b"bomb", bytes(100_000))
        assert header(letter, "reason") == "record-too-large"
        assert header(letter, "timestamp") == str(START_MS)
        assert str(size * MB)[:4] in header(letter, "detail") and "max_record_bytes" in header(letter, "detail")
    print(f"{usual / MB:.0f} MB as usual, {peak / MB:.0f} MB at most")  # noqa: T201
    assert peak < CHART_LIMIT
    assert peak - usual < 150 * MB


async def committed(cluster: Cluster, settings: RouterSettings, offset: int) -> bool:
    found = await cluster.committed(settings.group("router"), settings.events_topic)
    return (found[0].offset or 0) >= offset


async def test_an_uncompressed_record_above_the_bound_is_truncated(cluster: Cluster, settings: RouterSettings) -> None:
    await take_large_requests(cluster, settings.events_topic)
    async with routing(settings, max_record_bytes=50_000):
        for size in (10, 49_000, 51_000, 12 * MB, 10):
            await send_batch(settings, None, [(b"%d" % size, b"x" * size)])
        await until(lambda: handled(cluster, settings, 5), TIMEOUT)
    assert await routed_keys(cluster, settings) == [b"10", b"10", b"49000"]
    letters = await dead(cluster, settings)
    assert {offset: len(letter.value or b"") for offset, letter in letters.items()} == {2: 51_000, 3: 100_000}


async def test_a_bound_above_what_routed_takes_stops_the_start(settings: RouterSettings) -> None:
    wrong = settings.model_copy(update={"max_record_bytes": 5 * MB})
    with pytest.raises(
        Fatal, match=r"KEYGROUPING_ROUTER_MAX_RECORD_BYTES=5242880 is more than topic .* takes: set its"
    ):
        await serve(wrong, asyncio.Event())


Failing = Callable[[Judged, PartitionClock], Judged]


def fail_at(poison: dict[bytes, Exception], usual: Failing) -> Failing:
    def judge(judged: Judged, clock: PartitionClock) -> Judged:
        for value in judged.usable.events.values:
            if value in poison:
                raise poison[value]
        return usual(judged, clock)

    return judge


async def test_whatever_our_own_code_fails_with_at_a_record_only_that_one_is_left_out(
    cluster: Cluster, settings: RouterSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    poison: dict[bytes, Exception] = {
        b"defect": TypeError("unhashable"),
        b"memory": MemoryError(),
        b"depth": RecursionError("too deep"),
    }
    monkeypatch.setattr(sorting, "sort_out_late", fail_at(poison, sort_out_late))
    values = [b"good"] * 400
    for place, value in zip((3, 200, 399), poison, strict=True):
        values[place] = value
    rows = [(b"%03d" % number, value) for number, value in enumerate(values)]
    await cluster.write(settings.events_topic, rows, 0, START_MS)
    before = REGISTRY.get_sample_value("keygrouping_router_dead_letters_total", {"reason": "unprocessable"}) or 0
    async with routing(settings):
        await until(lambda: handled(cluster, settings, 400), TIMEOUT)
        await cluster.write(settings.events_topic, [(b"later", b"good")], 0, START_MS)
        await until(lambda: handled(cluster, settings, 401), TIMEOUT)
    assert await routed_keys(cluster, settings) == [*(key for key, value in rows if value == b"good"), b"later"]
    letters = await dead(cluster, settings)
    assert {offset: letter.value for offset, letter in letters.items()} == dict(zip((3, 200, 399), poison, strict=True))
    assert {header(letter, "reason") for letter in letters.values()} == {"unprocessable"}
    assert header(letters[3], "detail") == "TypeError: unhashable"
    after = REGISTRY.get_sample_value("keygrouping_router_dead_letters_total", {"reason": "unprocessable"}) or 0
    assert after - before == 3


async def test_a_batch_that_is_damaged_on_the_broker_s_disk_is_passed_over(
    broker: EmbeddedBroker, cluster: Cluster, settings: RouterSettings, caplog: pytest.LogCaptureFixture
) -> None:
    for key in (b"before", b"damaged", b"behind"):
        await send_batch(settings, None, [(key, b"value of " + key), (key, b"")])
    damage(broker, settings.events_topic, b"value of damaged", b"VALUE OF DAMAGED")
    async with routing(settings):
        await until(lambda: handled(cluster, settings, 5), TIMEOUT)
    assert await routed_keys(cluster, settings) == [b"before", b"before", b"behind", b"behind"]
    ((offset, letter),) = (await dead(cluster, settings)).items()
    assert (offset, header(letter, "reason")) == (2, "undecodable-batch")
    assert header(letter, "last-offset") == "3"
    assert "offsets 2 to 3 can't be read: its checksum is wrong" in header(letter, "detail")
    assert b"VALUE OF DAMAGED" in (letter.value or b"")
    assert any("it goes to dead-letters, and reading goes on at 4" in record.getMessage() for record in caplog.records)
