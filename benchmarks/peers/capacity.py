"""Capacity curves: the events per second that some instances sustain, by how a skewed stream is spread over them.

    cd benchmarks && python -m peers.capacity [--events 200000]

As Theodolite and ShuffleBench ask: which rate does each number of instances sustain? An instance takes 1 ms per event,
and sources wait for the fullest one. Time is virtual, decisions are those of the library's groupings, so that more
instances than a machine has cores can be tried, and the figures are the same on every machine. `salting by hand`
spreads the hottest key over 8 keys of its own and hashes them: what a team does that knows its hot key.
"""

from __future__ import annotations

import argparse
import csv
import itertools
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from pathlib import Path

import numpy as np
from keygrouping.simulate import SimulatorSettings, create_sources, simulate
from keygrouping.workload import HOT_COUNTRY, Chunk, Workload, workload
from keygrouping.workload.table import FixedKeys

CURVES = Path(__file__).parents[2] / "docs" / "comparison" / "capacity.csv"
SERVICE_SECONDS = 0.001
SOURCES = 4
INSTANCES = (1, 2, 4, 8, 16, 32)
SKEWS = (0, 40, 80)
SALTS = 8
INTERVAL = 50_000
WAYS = {"hash": "key", "salting by hand": "key", "PKG": "pkg", "level-fill": "level-fill"}
"""Each way, and the grouping that is behind it."""


@dataclass(frozen=True)
class Point:
    """What some instances sustain."""

    skew: int
    way: str
    instances: int
    rate: float
    workers_per_key: float
    """Workers per key: what the partials of spread keys cost."""


class Salted:
    """A workload whose hottest key has a number behind it, of `SALTS` in turn."""

    def __init__(self, plain: Workload) -> None:
        self._plain = plain
        names = list(plain.table.names(0, len(plain.table)))
        self._hot, self._first = names.index(HOT_COUNTRY.encode()), len(names)
        self.table = FixedKeys([*names, *(b"%b#%d" % (HOT_COUNTRY.encode(), salt) for salt in range(SALTS))])

    @property
    def name(self) -> str:
        """What it is made of."""
        return f"{self._plain.name}, salted"

    @property
    def events(self) -> int | None:
        """As many as there are without salt."""
        return self._plain.events

    def chunks(self) -> Iterator[Chunk]:
        """The stream with other keys."""
        for chunk in self._plain.chunks():
            salted = self._first + np.arange(len(chunk)) % SALTS
            yield Chunk(np.where(chunk.keys == self._hot, salted, chunk.keys))


def measure(skew: int, way: str, instances: int, events: int) -> Point:
    """One point of a curve."""
    stream: Workload = workload(f"country-skew-{skew}", events)
    if way == "salting by hand":
        stream = Salted(stream)
    settings = SimulatorSettings(service_time=SERVICE_SECONDS)
    result = simulate(stream, create_sources(WAYS[way], instances, SOURCES), settings, interval=INTERVAL)
    return Point(skew, way, instances, result.performance.throughput, result.measures.dist_cost)


def main(options: argparse.Namespace) -> None:
    """Measures all curves and writes them down."""
    with options.output.open("w", newline="") as file:
        rows = csv.DictWriter(file, [field.name for field in fields(Point)])
        rows.writeheader()
        for skew, way, instances in itertools.product(SKEWS, WAYS, INSTANCES):
            point = measure(skew, way, instances, options.events)
            rows.writerow(asdict(point))
            print(f"skew {skew:2} %  {way:<16} {instances:3} instances  {point.rate:8,.0f} events/s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m peers.capacity", description=__doc__)
    parser.add_argument("--events", type=int, default=200_000)
    parser.add_argument("--output", type=Path, default=CURVES)
    main(parser.parse_args())
