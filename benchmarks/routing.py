"""Decisions per second of every grouping on one core, side by side with plain Python in one run.

    python benchmarks/routing.py [--events 1000000] [--workers 10] [--grouping pkg --grouping dkg ...] [--json]

Rates are of CPU time, the best of some rounds: batches of hashes that are there already, lists of `bytes` keys through
hash and kernel, and `route()` one event at a time. Before that a grouping sees each stream once within ten virtual
minutes, so that kernels are compiled and hot keys are spread; then time goes by at a million events per second.

`plain-pkg` is Partial Key Grouping as one writes it in Python. Peers that route one key at a time: `aiokafka`, that
client's partitioner, for `key`; `uhashring`, a consistent hash ring, for `consistent` (if it is installed). The
package index has none for the others.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import platform
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path

import mmh3
import numpy as np
from aiokafka.partitioner import DefaultPartitioner
from keygrouping.grouping import Offline, create, names
from keygrouping.hashing import SECOND_SEED, SEED, hash_keys
from keygrouping.workload import workload
from numpy.typing import NDArray

BATCH = 10_000
WARM_UP = 600.0
RATE = 1e6
STREAMS = {
    "uniform": ("zipf", {"z": 0, "keys": 10_000}),
    "country 80": ("country-skew-80", {}),
    "zipf 1": ("zipf", {"z": 1, "keys": 10_000}),
}
PLAIN = "plain-pkg"
TARGETS = (
    ("hashed", "key", 100e6),
    ("hashed", "pkg", 40e6),
    ("hashed", "dkg", 10e6),
    ("hashed", "w-choices", 10e6),
    ("bytes", "key", 4e6),
    ("bytes", "pkg", 4e6),
    ("single", "pkg", 0.5e6),
)
"""Least decisions per second, where they are promised."""

Batches = list[NDArray[np.int64]]


@dataclass
class Rates:
    """Decisions per second of one contestant by stream; a way that it doesn't have is left out."""

    hashed: dict[str, float] = field(default_factory=dict)
    bytes: dict[str, float] = field(default_factory=dict)
    single: dict[str, float] = field(default_factory=dict)


class PlainPkg:
    """Partial Key Grouping without any help but that of the hash function."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.loads = [0.0] * workers

    def route_hashed(self, first: int, second: int) -> int:
        one, other = abs(first) % self.workers, abs(second) % self.workers
        if one == other:
            other = (other + 1) % self.workers
        worker = other if self.loads[one] > self.loads[other] else one
        self.loads[worker] += 1.0
        return worker

    def route(self, key: bytes) -> int:
        return self.route_hashed(mmh3.hash64(key, SEED)[0], mmh3.hash64(key, SECOND_SEED)[0])


class Stream:
    """One workload as positions of keys, batch by batch."""

    def __init__(self, title: str, events: int) -> None:
        name, settings = STREAMS[title]
        self.source = workload(name, events, settings=settings)
        keys = np.concatenate([chunk.keys for chunk in self.source.chunks()])
        self.batches: Batches = [keys[start : start + BATCH] for start in range(0, len(keys), BATCH)]
        self.names = [self.source.table.name(index) for index in range(len(self.source.table))]

    def hashes(self, seeds: tuple[int, ...]) -> Batches:
        table = self.source.table.hashes(seeds)
        return [table[batch] for batch in self.batches]

    def keys(self) -> list[list[bytes]]:
        return [[self.names[index] for index in batch] for batch in self.batches]

    def counts(self) -> NDArray[np.float64]:
        return np.bincount(np.concatenate(self.batches), minlength=len(self.names)).astype(float)


def rate(events: int, rounds: int, task: Callable[[], object]) -> float:
    """Events per second of CPU time, the best of some rounds."""
    spent = []
    for _ in range(rounds):
        started = time.thread_time()
        task()
        spent.append(time.thread_time() - started)
    return events / min(spent)


def measure(name: str, stream: Stream, options: argparse.Namespace) -> tuple[float, float, float]:
    """The rates of a grouping: pre-hashed, from bytes, one by one."""
    grouping = create(name, options.workers)
    if isinstance(grouping, Offline):
        grouping.learn(stream.source.table.hashes(grouping.seeds), stream.counts())
    hashes, keys = stream.hashes(grouping.seeds), stream.keys()
    for step, batch in enumerate(hashes):
        grouping.route_batch(batch, None, step * WARM_UP / len(hashes))
    clock = ticks(WARM_UP)

    def hashed() -> None:
        for batch in hashes:
            grouping.route_batch(batch, None, next(clock))

    def from_bytes() -> None:
        for batch in keys:
            grouping.route_batch(hash_keys(batch, grouping.seeds), None, next(clock))

    events = sum(map(len, keys))
    return (
        rate(events, options.rounds, hashed),
        rate(events, options.rounds, from_bytes),
        rate(len(keys[0]), options.rounds, partial(route_all, grouping.route, keys[0])),
    )


def route_all(route: Callable[[bytes], object], keys: list[bytes]) -> None:
    """One event at a time."""
    for key in keys:
        route(key)


def ticks(start: float) -> Iterator[float]:
    """The time of each further batch."""
    while True:
        start += BATCH / RATE
        yield start


def measure_plain(stream: Stream, options: argparse.Namespace) -> tuple[float, float]:
    """The rates of plain Python: pre-hashed, one by one (a list of keys is no more than that)."""
    keys = stream.keys()[0]
    pairs = stream.hashes((SEED, SECOND_SEED))[0].tolist()
    plain = PlainPkg(options.workers)
    return (
        rate(len(keys), options.rounds, lambda: [plain.route_hashed(first, second) for first, second in pairs]),
        rate(len(keys), options.rounds, partial(route_all, plain.route, keys)),
    )


def peers(workers: int) -> dict[str, Callable[[bytes], object]]:
    """What other packages have, as a function of the key."""
    partitions, partition = list(range(workers)), DefaultPartitioner()
    found: dict[str, Callable[[bytes], object]] = {"aiokafka": lambda key: partition(key, partitions, partitions)}
    if importlib.util.find_spec("uhashring"):
        ring = importlib.import_module("uhashring").HashRing
        found["uhashring"] = ring([f"worker-{number}" for number in partitions]).get_node
    return found


def contest(options: argparse.Namespace) -> dict[str, Rates]:
    """The rates of all contestants."""
    others = peers(options.workers)
    rates = {name: Rates() for name in (*options.grouping, PLAIN, *others)}
    for title in STREAMS:
        stream = Stream(title, options.events)
        for name in options.grouping:
            show_progress(f"{title}: {name}")
            ours = rates[name]
            ours.hashed[title], ours.bytes[title], ours.single[title] = measure(name, stream, options)
        plain = rates[PLAIN]
        plain.hashed[title], plain.single[title] = measure_plain(stream, options)
        plain.bytes[title] = plain.single[title]
        for name, choose in others.items():
            keys = stream.keys()[0]
            rates[name].single[title] = rate(len(keys), options.rounds, partial(route_all, choose, keys))
            rates[name].bytes[title] = rates[name].single[title]
    show_progress("")
    return rates


def show_progress(text: str) -> None:
    """One line that is overwritten, for people only."""
    if sys.stderr.isatty():
        print(f"\r{text:<60}", end="\r", file=sys.stderr, flush=True)


def verdicts(rates: dict[str, Rates]) -> list[dict[str, object]]:
    """The promised rates against those of the slowest stream."""
    found: list[dict[str, object]] = []
    for way, name, target in TARGETS:
        if name in rates:
            slowest = min(getattr(rates[name], way).values())
            found.append({"way": way, "grouping": name, "target": target, "slowest": slowest, "met": slowest >= target})
    return found


def processor() -> str:
    """The processor's name, where the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


def print_table(rates: dict[str, Rates], options: argparse.Namespace) -> None:
    """All rates, and what is promised of them."""
    print(
        f"{options.events:,} events, {options.workers} workers, batches of {BATCH:,}, best of {options.rounds} rounds"
    )
    print(f"one core of {processor()}, Python {platform.python_version()}\n")
    ways = ("pre-hashed, M/s", "from bytes, M/s", "route(), µs")
    print(" " * 20 + "".join(f"{way:>{12 * len(STREAMS)}}" for way in ways))
    print(f"{'grouping':<20}" + "".join(f"{title:>12}" for _ in ways for title in STREAMS))
    for name, measured in rates.items():
        cells = [*row(measured.hashed, millions), *row(measured.bytes, millions), *row(measured.single, microseconds)]
        print(f"{name:<20}" + "".join(f"{cell:>12}" for cell in cells))
    print()
    for verdict in verdicts(rates):
        met = "met" if verdict["met"] else "NOT met"
        print(f"{verdict['grouping']:<12} {verdict['way']:<8} {verdict['slowest']:>15,.0f}/s"
              f" of {verdict['target']:>13,.0f}/s: {met}")  # fmt: skip


def row(per_second: dict[str, float], show: Callable[[float], str]) -> list[str]:
    """One way's cells, by stream."""
    return [show(per_second[title]) if title in per_second else "-" for title in STREAMS]


def millions(per_second: float) -> str:
    """Decisions per microsecond."""
    return f"{per_second / 1e6:.1f}"


def microseconds(per_second: float) -> str:
    """Time per decision."""
    return f"{1e6 / per_second:.2f}"


def main() -> None:
    """Parses the command line and runs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--workers", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--grouping", action="append", choices=names(), help="only this one; may be repeated")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of tables")
    options = parser.parse_args()
    options.grouping = options.grouping or list(names())
    rates = contest(options)
    if options.json:
        given = {"events": options.events, "workers": options.workers, "rounds": options.rounds, "batch": BATCH}
        found = {name: asdict(measured) for name, measured in rates.items()}
        print(json.dumps({**given, "processor": processor(), "rates": found, "targets": verdicts(rates)}, indent=2))
    else:
        print_table(rates, options)


if __name__ == "__main__":
    main()
