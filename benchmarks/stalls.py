"""For how long routing waits for what else a router does between batches: ends of intervals with plans, and settings.

    python benchmarks/stalls.py [--replicas 3] [--rounds 8]

Routers share counts and plans through a Redis server of their own. Everything that runs on the event loop between two
of its turns keeps records waiting; the longest such part is told in ms, as median and worst of the rounds. That is time
on the clock, with what the loop waits for the interpreter while a plan is made in a thread: run it alone. It also tells
what the exchange of loads costs each router in an interval: processor time, and bytes to and from Redis.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import statistics
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import redis
from keygrouping.grouping import EXCHANGES
from keygrouping_local.redis_server import MISSING, RedisServer, installed
from keygrouping_router.api.control_plane import ControlPlane
from keygrouping_router.api.shapes import WorkersChange
from keygrouping_router.data.usable import Usable
from keygrouping_router.replica import new_replica
from keygrouping_router.settings import RouterSettings
from keygrouping_router.times import Times
from keygrouping_service.records.columns import Columns
from keygrouping_service.run import collect_rarely
from keygrouping_service.store import open_store

EVENTS = 300_000
BATCH = 2_000
INTERVAL = 10.0
Stream = tuple[int, float]
"""How many keys, and the exponent of Zipf's law."""
STREAMS: dict[str, Stream] = {
    "10,000 keys, Zipf 1": (10_000, 1.0),
    "1,000 equal keys": (1_000, 0.0),
    "4,800 equal keys": (4_800, 0.0),
}


class Turns:
    """The longest part of the event loop's work since it was last asked, in ms."""

    def __init__(self) -> None:
        self._longest = 0.0

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Looks at each callback of the loop meanwhile."""
        handle: Any = asyncio.Handle
        run = handle._run

        def timed(this: Any) -> None:
            began = time.perf_counter()
            run(this)
            self._longest = max(self._longest, time.perf_counter() - began)

        handle._run = timed
        try:
            yield
        finally:
            handle._run = run

    async def longest(self) -> float:
        """Since the last call."""
        await asyncio.sleep(0)
        longest, self._longest = self._longest, 0.0
        return 1e3 * longest


class Clock:
    """Stands still until it is turned."""

    def __init__(self) -> None:
        self.passed = 0.0

    def times(self) -> Times:
        return Times(lambda: self.passed, lambda: 1_700_000_000.0 + self.passed)


def router(replica: int, workers: int, store: Mapping[str, str], clock: Clock) -> ControlPlane:
    settings = RouterSettings.model_validate(
        {
            "bootstrap_servers": "unused:9092",
            **store,
            "job": '{"aggregates": [{"name": "events", "op": "count"}]}',
            "workers": workers,
            "replica": f"router-{replica}",
            "sharing": "shared",
            "interval": INTERVAL,
        }
    )
    return ControlPlane(new_replica(settings, open_store(settings), workers, times=clock.times()), BATCH)


def traffic(keys: int, z: float, seed: int) -> list[bytes]:
    weights = np.arange(1.0, keys + 1) ** -z
    chosen = np.random.default_rng(seed).choice(keys, EVENTS, p=weights / weights.sum())
    names = [b"key-%d" % key for key in range(keys)]
    return [names[key] for key in chosen.tolist()]


def route(planes: list[ControlPlane], keys: list[bytes], now: float) -> None:
    nothing = Columns.of("e", 0, ())
    for number, at in enumerate(range(0, len(keys), BATCH)):
        batch = keys[at : at + BATCH]
        usable = Usable(nothing, batch, np.zeros(len(batch), np.int64))
        replica = planes[number % len(planes)].replica
        replica.traffic.record(usable, replica.active.route(usable, now), now)


class Cost:
    """What the exchange of loads costs a router in an interval."""

    def __init__(self, address: str) -> None:
        self._server = redis.Redis.from_url(f"redis://{address}")
        self.milliseconds: list[float] = []
        """Of processor time, in each round."""
        self.kilobytes: list[float] = []
        """To and from Redis."""

    async def pay(self, planes: list[ControlPlane]) -> None:
        """All tell each other what they have brought, as often as in an interval."""
        began, before = time.process_time(), self._bytes()
        for _ in range(EXCHANGES - 1):
            await asyncio.gather(*(plane.replica.tell_loads() for plane in planes))
        self.milliseconds.append(1e3 * (time.process_time() - began) / len(planes))
        self.kilobytes.append((self._bytes() - before) / 1e3 / len(planes))

    def _bytes(self) -> int:
        told: Any = self._server.info("stats")
        return int(told["total_net_input_bytes"] + told["total_net_output_bytes"])


async def measure(
    planes: list[ControlPlane], clock: Clock, stream: Stream, rounds: int, cost: Cost
) -> dict[str, list[float]]:
    """The longest waits of each round, by what the routers did meanwhile."""
    turns, workers = Turns(), planes[0].replica.active.control.workers
    for plane in planes:
        await plane.replica.start()
    what = ("exchange", "end of an interval", "PATCH eps", "PATCH counters", "PUT workers")
    waits: dict[str, list[float]] = {each: [] for each in what}

    async def follow(what: str) -> None:
        await asyncio.gather(*(plane.replica.follow() for plane in planes))
        waits[what].append(await turns.longest())

    collect_rarely()
    with turns.watched():
        for number in range(rounds):
            route(planes, traffic(*stream, number), clock.passed)
            clock.passed += INTERVAL
            await asyncio.gather(*(plane.replica.follow() for plane in planes))
            await turns.longest()
            await cost.pay(planes)
            waits["exchange"].append(await turns.longest())
            interval = math.floor(clock.times().wall() / INTERVAL)
            await asyncio.gather(*(plane.replica.end_interval(interval) for plane in planes))
            waits["end of an interval"].append(await turns.longest())
            for setting, value in (("eps", 0.021 + 0.001 * number), ("counters", 33 - number % 2)):
                await planes[0].set_thresholds({setting: value}, partial=True, expected=None, by="benchmark")
                await follow(f"PATCH {setting}")
            change = WorkersChange(workers=workers - (number % 2 == 0))
            await planes[0].set_workers(change, expected=None, by="benchmark")
            await follow("PUT workers")
    for plane in planes:
        await plane.replica.store.close()
    return waits


async def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replicas", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--workers", type=int, nargs="+", default=[10, 50, 200])
    given = parser.parse_args()
    if not installed():
        raise SystemExit(MISSING)
    print(f"{given.replicas} routers; longest wait in ms, median (worst) of {given.rounds} rounds")
    for name, stream in STREAMS.items():
        for workers in given.workers:
            with tempfile.TemporaryDirectory() as folder, RedisServer(Path(folder)) as server:
                store, clock = {"store_url": f"redis://{server.address}/0"}, Clock()
                planes = [router(number, workers, store, clock) for number in range(given.replicas)]
                cost = Cost(server.address)
                waits = await measure(planes, clock, stream, given.rounds, cost)
            told = (f"{what} {statistics.median(each):.1f} ({max(each):.1f})" for what, each in waits.items())
            paid = f"{statistics.median(cost.milliseconds):.0f} ms and {statistics.median(cost.kilobytes):.0f} kB"
            print(f"{name}, W={workers}: {', '.join(told)}; exchange: {paid} per router and interval", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
