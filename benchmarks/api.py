"""What the router's API costs its routing, and how fast it answers meanwhile: GET /keyspace, and trials of a change.

    python benchmarks/api.py [--records 6000000] [--rounds 4] [--rate 20] [--grouping level-fill]

One router processes a preloaded topic, in turns left alone and asked for its KeySpace, in equal parts of its records;
so both are measured in one run, from outside, by the committed offsets. A request's time counts from the moment when it
was due. In a last part it is asked what other numbers of workers would change, one dry run after the other, and again
when all is routed, for what a dry run costs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import os
import statistics
import sys
import tempfile
import time
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Coroutine, Sequence
from dataclasses import dataclass
from pathlib import Path

from aiokafka.admin import AIOKafkaAdminClient
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.ports import free_ports
from keygrouping_service.kafka.clients import retry
from keygrouping_service.kafka.progress import read_progress
from router import COUNT, WORKERS, cpu_seconds, create_topics, preload, router_environment

PARTITIONS = 4

CONNECTIONS = 4
_TRIALS = 10
KEYSPACE = b"GET /keyspace HTTP/1.1\r\nHost: router\r\n\r\n"
APPLICATION = "bench"


@dataclass(frozen=True)
class Part:
    """A part of the records: how fast they were routed, and what the router spent on each."""

    per_second: float
    cpu_microseconds: float


class RouterUnderTest:
    """A running router: how far it is, what it has spent, and its API."""

    def __init__(self, process: Process, port: int, admin: AIOKafkaAdminClient) -> None:
        self._process = process
        self._pid = process.pid
        self._port = port
        self._admin = admin

    async def reach(self, records: int) -> None:
        """Waits until so many records are committed."""
        while await self._done() < records:
            if self._process.returncode is not None:
                raise SystemExit(f"the router ended with {self._process.returncode}")
            await asyncio.sleep(0.02)

    async def part(self, after: int) -> Part:
        """Measures from now until `after` records are committed."""
        done, began, cpu = await self._done(), time.perf_counter(), cpu_seconds(self._pid)
        await self.reach(after)
        records = await self._done() - done
        spent = cpu_seconds(self._pid) - cpu
        return Part(records / (time.perf_counter() - began), 1e6 * spent / records)

    async def cores(self, seconds: float) -> float:
        """Cores in use on average over this time."""
        cpu = cpu_seconds(self._pid)
        await asyncio.sleep(seconds)
        return (cpu_seconds(self._pid) - cpu) / seconds

    @contextlib.asynccontextmanager
    async def asked(self, rate: float, times: list[float]) -> AsyncIterator[None]:
        """Asks `rate` times per second meanwhile; adds the seconds of each request to `times`."""
        async with _meanwhile([self._ask(n, rate / CONNECTIONS, times) for n in range(CONNECTIONS)]):
            yield

    @contextlib.asynccontextmanager
    async def tried(self, times: list[float]) -> AsyncIterator[None]:
        """Asks for one dry run after the other meanwhile; adds the seconds of each to `times`."""
        async with _meanwhile([self._try(times)]):
            yield

    async def _ask(self, number: int, rate: float, times: list[float]) -> None:
        due = time.perf_counter() + number / (rate * CONNECTIONS)
        async with self._connection() as connection:
            while True:
                await asyncio.sleep(due - time.perf_counter())
                await _request(*connection, KEYSPACE)
                times.append(time.perf_counter() - due)
                due += 1 / rate

    async def trial_cost(self, trials: int) -> float:
        """CPU seconds of a dry run, of so many while nothing is routed."""
        cpu = cpu_seconds(self._pid)
        await self._try([], trials)
        return (cpu_seconds(self._pid) - cpu) / trials

    async def _try(self, times: list[float], trials: int | None = None) -> None:
        """One dry run after the other, for ever unless it is said how many."""
        async with self._connection() as connection:
            for number in itertools.count() if trials is None else range(trials):
                body = b'{"workers": %d}' % (1 + number % (WORKERS - 1))
                head = b"PUT /workers?dry_run=true HTTP/1.1\r\nHost: router\r\nContent-Type: application/json\r\n"
                began = time.perf_counter()
                await _request(*connection, head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
                times.append(time.perf_counter() - began)

    @contextlib.asynccontextmanager
    async def _connection(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            yield reader, writer
        finally:
            writer.close()

    async def _done(self) -> int:
        committed = await retry(
            lambda: read_progress(self._admin, f"{APPLICATION}-router", "events", range(PARTITIONS)), "progress"
        )
        return sum(entry.offset or 0 for entry in committed.values())


@contextlib.asynccontextmanager
async def _meanwhile(requests: Sequence[Coroutine[None, None, None]]) -> AsyncIterator[None]:
    """Runs these, which go on until they are cancelled; SystemExit if one has ended."""
    tasks = [asyncio.create_task(request) for request in requests]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            if not isinstance(outcome, asyncio.CancelledError):
                raise SystemExit(f"a request failed: {outcome!r}")


async def _request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> None:
    """Sends a request and reads all of the answer; ConnectionError if it isn't 200."""
    writer.write(request)
    head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
    length = next(line for line in head.splitlines() if line.startswith("content-length:"))
    body = await reader.readexactly(int(length.partition(":")[2]))
    if not head.startswith("http/1.1 200"):
        raise ConnectionError(f"{head.splitlines()[0]}: {body.decode()}")


@contextlib.asynccontextmanager
async def running_router(servers: str, options: argparse.Namespace, **settings: str) -> AsyncIterator[RouterUnderTest]:
    """Starts a router, with settings of its environment; ends it at the end."""
    (port,) = free_ports(1)
    environment = router_environment(servers, APPLICATION, COUNT, options)
    environment |= {"KEYGROUPING_HTTP_PORT": str(port)} | settings
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "keygrouping_router"), env={**os.environ, **environment}
    )
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    try:
        yield RouterUnderTest(process, port, admin)
    finally:
        await admin.close()
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def benchmark(servers: str, options: argparse.Namespace) -> None:
    """Measures, and prints the table."""
    await create_topics(servers, PARTITIONS)
    await preload(servers, PARTITIONS, options)
    size = options.records // (2 * options.rounds + 2)
    quiet: list[Part] = []
    asked: list[Part] = []
    times: list[float] = []
    trials: list[float] = []
    async with running_router(servers, options) as router:
        await router.reach(size)
        for number in range(2 * options.rounds):
            target = size * (number + 2)
            if number % 4 in (0, 3):
                quiet.append(await router.part(target))
            else:
                async with router.asked(options.rate, times):
                    asked.append(await router.part(target))
        async with router.tried(trials):
            await router.reach(options.records)
        idle = await router.cores(options.idle_seconds)
        async with router.asked(options.rate, []):
            busy = await router.cores(options.idle_seconds)
        cost = await router.trial_cost(_TRIALS)
    print_table(quiet, asked, busy - idle, options)
    print_times("GET /keyspace meanwhile", times)
    print_times("PUT /workers?dry_run=true meanwhile", trials)
    print(f"a dry run takes {cost:.2f} s of CPU, with nothing else to do")


def print_table(quiet: list[Part], asked: list[Part], cores: float, options: argparse.Namespace) -> None:
    """Rates and costs of both, and their ratios."""
    print(f"{options.records:,} records of {options.value_bytes} bytes, {PARTITIONS} partitions, {WORKERS} workers")
    for name, parts in (("left alone", quiet), ("asked", asked)):
        rates = "  ".join(f"{part.per_second:>9,.0f}" for part in parts)
        print(f"{name:<10} {rate_of(parts):>9,.0f} records/s  {cost_of(parts):5.2f} µs of CPU each   parts: {rates}")
    print(f"routing rate lost      {1 - rate_of(asked) / rate_of(quiet):7.1%}")
    print(f"CPU per record gained  {cost_of(asked) / cost_of(quiet) - 1:7.1%}")
    print(f"{options.rate:g} requests per second take {cores:.1%} of a core when nothing is routed")


def print_times(name: str, times: list[float]) -> None:
    """Percentiles of the requests' times."""
    ranked = sorted(times)
    points = "  ".join(f"p{point} {1000 * ranked[len(ranked) * point // 100]:.1f} ms" for point in (50, 90, 99))
    print(f"{name}: {points}  worst {1000 * ranked[-1]:.1f} ms  ({len(ranked)} requests)")


def rate_of(parts: list[Part]) -> float:
    """Median of the records per second."""
    return statistics.median(part.per_second for part in parts)


def cost_of(parts: list[Part]) -> float:
    """Median of the CPU time per record in microseconds."""
    return statistics.median(part.cpu_microseconds for part in parts)


def main() -> None:
    """Parses the command line and runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=6_000_000)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--rate", type=float, default=20, help="requests per second")
    parser.add_argument("--idle-seconds", type=float, default=5)
    parser.add_argument("--grouping", default="level-fill")
    parser.add_argument("--delivery", default="exactly_once")
    parser.add_argument("--compression", default="none")
    parser.add_argument("--max-batch", type=int, help="of the router, if not its own default")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(Path(folder)) as broker:
        asyncio.run(benchmark(broker.bootstrap_servers, options))


if __name__ == "__main__":
    main()
