"""How even whole keys become that are handed over by plan: live, beside the simulator on the same stream.

    python benchmarks/moved_keys.py [--members 12] [--rate 300] [--call 0.017] [--seconds 120] [--slow 1] [--seed 1]

An embedded broker, a topic of a partition per member, keys of Zipf 1 over 10,000 keys, and members of an app, each a
process with one lane, whose handler waits and counts in a state of 0.1 to 4 kB, by its key. A key is in the partition
that is its worker's in the simulator before anything is planned, so both begin alike. Told is λ, the largest load of
a member over the mean, by seconds of calls in intervals of 10 s: at first, while every key is where its partition is,
and in the second half, with how many keys were handed over, and how many bytes of states. Simulated are the same keys
at the same rate: by the library's grouping, whose table forgets a key without events, and by its planner where such a
key stays where it is, as it does live. A lane can't do more than a second of calls in a second. Where the busiest one
is close to that, its queue grows, what it has to do is more than what it does, and λ is told too low: so the rate has
to leave it some time, and how busy it was is told, too. Nor is anything planned while no lane is busy for half of its
time. With `--slow` one member's calls take so many times longer; that is not simulated.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import statistics
import sys
import tempfile
import time
import zlib
from asyncio.subprocess import Process
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from asked import is_ready, metric
from keygrouping.app import App, Event, State
from keygrouping.grouping import create_shared
from keygrouping.grouping.table.placing import planned_workers
from keygrouping.hashing import hash_key
from keygrouping_app.costs import WINDOW
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.ports import free_ports
from keygrouping_service.testing import until

_KEYS = 10_000
_INTERVAL_SECONDS = 10.0
_TICK_SECONDS = 0.01
_WINDOW = round(WINDOW / _INTERVAL_SECONDS)
"""Intervals: members plan by what keys cost in this window and in the one before, so the simulator does, too."""
_COMMIT_INTERVAL = 0.5
"""Seconds: with the usual one, twelve members and their broker fill two cores, and calls take longer than they wait."""
_LEAST_BYTES, _MORE_BYTES = 100, 3_900
"""Of states."""
_BUSY = 0.95
"""Of a lane's time: above it, events wait that λ doesn't count."""
_LONGEST = 300.0


def member(brokers: str, name: str, port: int, call: float, planner: Any) -> None:
    """A member of the app, until it is ended."""
    app = App(name, brokers=brokers, dead_letters=f"{name}.dead", port=port, commit_interval=_COMMIT_INTERVAL)

    @app.on(f"{name}.in", state=State(dict, moves=planner), concurrency=1)
    async def count(event: Event, counts: dict[str, Any]) -> None:
        counts.setdefault("more", "x" * _bytes_of(int(event.key[1:])))
        counts["n"] = counts.get("n", 0) + 1
        await asyncio.sleep(call)

    app.run()


def _bytes_of(number: int) -> int:
    """Of the state of a key."""
    return _LEAST_BYTES + zlib.crc32(b"%d" % number) % _MORE_BYTES


class Moved(NamedTuple):
    """Keys that were handed over, and the bytes of their states."""

    keys: float
    bytes: float


class Run:
    """One app and all its members."""

    def __init__(self, arguments: argparse.Namespace, brokers: str) -> None:
        self._arguments, self._brokers = arguments, brokers
        self._ports = free_ports(arguments.members)
        chance = np.random.default_rng(arguments.seed)
        weights = 1 / np.arange(1, _KEYS + 1)
        self._drawn = chance.choice(_KEYS, int(arguments.rate * arguments.seconds), p=weights / weights.sum())
        self._hashes = np.array([[hash_key(b"k%d" % number)] for number in range(_KEYS)], np.int64)
        self._homes = self._grouping().route_batch(self._hashes, None, 0.0).tolist()

    async def measure(self) -> None:
        """Prints λ of the live run, and of the simulated one."""
        admin = AIOKafkaAdminClient(bootstrap_servers=self._brokers)
        await admin.start()
        await admin.create_topics([NewTopic("moved.in", self._arguments.members, 1), NewTopic("moved.dead", 1, 1)])
        await admin.close()
        members = [await self._begin(port) for port in self._ports]
        for port in self._ports:
            await until(lambda port=port: asyncio.to_thread(is_ready, port), timeout=_LONGEST)  # type: ignore[misc]
        async with AIOKafkaProducer(bootstrap_servers=self._brokers, linger_ms=2) as producer:
            writing = asyncio.create_task(self._write(producer))
            loads, moved, times = [await self._loads()], [await self._moved()], [time.monotonic()]
            while not writing.done():
                await asyncio.sleep(_INTERVAL_SECONDS)
                times.append(time.monotonic())
                loads.append(await self._loads())
                moved.append(await self._moved())
            await writing
        for each in members:
            each.terminate()
        assert [await each.wait() for each in members] == [0] * len(members)
        seconds = [after - before for before, after in itertools.pairwise(times)]
        busy = [
            (after - before) / took for (before, after), took in zip(itertools.pairwise(loads), seconds, strict=True)
        ]
        self._tell(busy, moved)

    async def _begin(self, port: int) -> Process:
        slow = self._arguments.slow if port == self._ports[0] else 1.0
        given = (self._brokers, "moved", port, self._arguments.call * slow, self._arguments.planner)
        return await asyncio.create_subprocess_exec(sys.executable, __file__, "member", *map(str, given))

    async def _write(self, producer: AIOKafkaProducer) -> None:
        began, written = time.monotonic(), 0
        while written < len(self._drawn):
            due = min(len(self._drawn), int((time.monotonic() - began) * self._arguments.rate))
            for number in self._drawn[written:due]:
                await producer.send("moved.in", b"1", b"k%d" % number, partition=self._homes[number])
            written = due
            await asyncio.sleep(_TICK_SECONDS)

    async def _loads(self) -> np.ndarray[Any, np.dtype[np.float64]]:
        """Seconds of calls of each member until now."""
        names = [asyncio.to_thread(metric, port, "handler_seconds_sum") for port in self._ports]
        return np.array(await asyncio.gather(*names))

    async def _moved(self) -> Moved:
        """Keys and bytes until now."""
        return Moved(*[await self._sum(name) for name in ("moves_total", "moved_bytes_total")])

    async def _sum(self, name: str) -> float:
        return sum(await asyncio.gather(*(asyncio.to_thread(metric, port, name) for port in self._ports)))

    def _tell(self, busy: list[np.ndarray[Any, np.dtype[np.float64]]], moved: list[Moved]) -> None:
        busy, moved = busy[:-1], moved[:-1]  # in the last interval events come to an end
        half = len(busy) // 2
        by_interval = [
            Moved(after.keys - before.keys, after.bytes - before.bytes) for before, after in itertools.pairwise(moved)
        ]
        live = _told("live", [_imbalance(each) for each in busy], by_interval)
        most = max(float(each.max()) for each in busy[half:])
        print(f"the busiest lane had calls for {most:.2f} of its time then{', too much for λ' * (most > _BUSY)}")
        if self._arguments.slow != 1:
            return
        print(f"no whole keys can do better than {self._least():.3f}, the load of the hottest key over the mean")
        for what, simulated in (
            ("simulated by the library's grouping", self._by_grouping(len(busy))),
            ("simulated as keys stay", self._as_keys_stay(len(busy))),
        ):
            ratios = [f"{a / b:.3f}" if b else "-" for a, b in zip(live, _told(what, *simulated), strict=True)]
            print("live over that: λ {}, keys {}, of them then {}, bytes {}, of them then {}".format(*ratios))

    def _grouping(self) -> Any:
        return create_shared(self._arguments.planner, self._arguments.members)

    def _least(self) -> float:
        return float(max(1.0, np.bincount(self._drawn).max() / len(self._drawn) * self._arguments.members))

    def _by_grouping(self, intervals: int) -> tuple[list[float], list[Moved]]:
        """λ of each interval by the library's grouping on the same stream, and how many keys each plan moved.

        Its table has the keys of late only: a key that has had no event for a while is at home again, and moves once
        more when it is back. Nor does it know of states in bytes.
        """
        grouping = self._grouping()
        each = int(self._arguments.rate * _INTERVAL_SECONDS)
        imbalances, moved, told = [], list[Moved](), list[Any]()
        for number in range(intervals):
            drawn = self._drawn[number * each : (number + 1) * each]
            routed = grouping.route_batch(self._hashes[drawn], None, number * _INTERVAL_SECONDS)
            imbalances.append(self._imbalance_of(routed))
            told.append(grouping.statistics())
            plan = grouping.plan(told[_window_from(number) :])
            moved.append(Moved(plan["moved_keys"], 0))
            grouping.apply(plan)
        return imbalances, moved

    def _as_keys_stay(self, intervals: int) -> tuple[list[float], list[Moved]]:
        """The same by the same planner, but a key stays where it was until a plan moves it, as its state does."""
        each = int(self._arguments.rate * _INTERVAL_SECONDS)
        homes, workers = np.array(self._homes), np.array(self._homes)
        sizes = np.array([_bytes_of(number) for number in range(_KEYS)])
        imbalances, moved, counts = [], list[Moved](), list[Any]()
        for number in range(intervals):
            drawn = self._drawn[number * each : (number + 1) * each]
            imbalances.append(self._imbalance_of(workers[drawn]))
            counts.append(np.bincount(drawn, minlength=_KEYS))
            costs = sum(counts[_window_from(number) :])
            known = np.flatnonzero(costs)
            planned = planned_workers(
                self._arguments.planner,
                cost=costs[known].astype(float).tolist(),
                state=sizes[known].astype(float).tolist(),
                home=homes[known].tolist(),
                worker=workers[known].tolist(),
                background=[0.0] * self._arguments.members,
                capacity=[1.0] * self._arguments.members,
            )
            gone = known[workers[known] != planned]
            moved.append(Moved(len(gone), int(sizes[gone].sum())))
            workers[known] = planned
        return imbalances, moved

    def _imbalance_of(self, workers: Any) -> float:
        return _imbalance(np.bincount(workers, minlength=self._arguments.members).astype(np.float64))


def _told(what: str, imbalances: list[float], moved: list[Moved]) -> list[float]:
    """Prints what came in each interval; gives λ of the second half, and keys and bytes, in all and then."""
    half = len(imbalances) // 2
    late, then = statistics.mean(imbalances[half:]), moved[half:]
    sums = [sum(each.keys for each in moved), sum(each.keys for each in then)]
    sums += [sum(each.bytes for each in moved), sum(each.bytes for each in then)]
    print(f"{what}, by interval: λ " + ", ".join(f"{each:.3f}" for each in imbalances))
    print("  keys " + ", ".join(f"{each.keys:.0f}" for each in moved))
    print("  kB " + ", ".join(f"{each.bytes / 1000:.0f}" for each in moved))
    keys, then_keys, size, then_size = sums
    print(f"  second half: λ {late:.3f}; {keys:.0f} keys moved, {then_keys:.0f} of them then")
    print(f"  {size / 1000:.0f} kB, {then_size / 1000:.0f} of them then", flush=True)
    return [late, *sums]


def _window_from(interval: int) -> int:
    """The first one of which a plan behind this one knows."""
    return max(0, (interval // _WINDOW - 1) * _WINDOW)


def _imbalance(loads: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    return float(loads.max() / loads.mean()) if loads.sum() else 1.0


async def _measure_all(arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory() as folder, EmbeddedBroker(Path(folder)) as broker:
        await Run(arguments, broker.bootstrap_servers).measure()


def main() -> None:
    """Run the benchmark, or one of its members."""
    if sys.argv[1:2] == ["member"]:
        brokers, name, port, call, planner = sys.argv[2:]
        member(brokers, name, int(port), float(call), planner)
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--members", type=int, default=12)
    parser.add_argument("--rate", type=int, default=300, help="events per second")
    parser.add_argument("--call", type=float, default=0.017, help="seconds of a call")
    parser.add_argument("--slow", type=float, default=1.0, help="how many times longer the first member's calls take")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--seed", type=int, default=1, help="of the stream")
    parser.add_argument("--planner", choices=("llfd", "mintable", "minmig", "mixed"), default="mixed")
    asyncio.run(_measure_all(parser.parse_args()))


if __name__ == "__main__":
    main()
