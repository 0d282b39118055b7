"""The battery: streams that people have, through level-fill and its rivals, judged by the oracle."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from keygrouping.grouping import secret_setting
from keygrouping.simulate import Deal, create_sources
from keygrouping.workload import workload

from keygrouping_experiments.level_run import Drive
from keygrouping_experiments.model import Row
from keygrouping_experiments.oracle import Oracle


@dataclass(frozen=True)
class Stream:
    """A stream of the battery; settings in events are given as parts of an interval."""

    name: str
    workload: str
    settings: Mapping[str, object] = field(default_factory=dict)
    intervals: Mapping[str, float] = field(default_factory=dict)
    """Settings that are a number of events: so many intervals."""
    part: float = 1.0
    """Its interval, as a part of the battery's."""
    grows: tuple[int, ...] = ()
    """By how much W is multiplied in equal parts of the stream, after the first."""
    changes: tuple[float, ...] = ()
    """Parts of the stream after which its skew or W changes for good."""
    attack: bool = False
    """Its keys are chosen to collide, so level-fill has a secret seed, as its routers draw one."""


STREAMS = (
    Stream("40 % skew", "country-skew-40"),
    Stream("80 % skew", "country-skew-80"),
    Stream("uniform, 204 keys", "country-skew-0"),
    Stream("few keys", "zipf", {"z": 0.5, "keys": 16}),
    Stream("Zipf 1", "zipf"),
    Stream("Zipf 1.5", "zipf", {"z": 1.5}),
    Stream("Zipf 2", "zipf", {"z": 2.0}),
    Stream("Zipf 1, small intervals", "zipf", part=0.02),
    Stream("Pareto weights", "pareto-weights"),
    Stream("words of a text", "text"),
    Stream("words of a text, small intervals", "text", part=0.2),
    Stream("session ids", "sessions"),
    Stream("all keys new", "sessions", {"longest": 1}),
    Stream("sorted by key", "sorted", intervals={"batch": 1.0}),
    Stream("runs of 1,000", "runs"),
    Stream("backlog", "backlog"),
    Stream("skew that stops", "country-half-skew", changes=(0.5,)),
    Stream("W grows", "country-skew-80", grows=(2, 5), changes=(1 / 3, 2 / 3)),
    Stream("drift", "swap", {"swaps": 3}, {"interval": 1.0}),
    Stream("rotating head", "rotating-head", {}, {"interval": 1.0}),
    Stream("flash crowd of 90 %", "burst", {"share": 0.9}, {"interval": 3.0, "length": 1.5}),
    Stream("a new hot key each interval", "moving-hot-key", {}, {"interval": 1.0}),
    Stream("diurnal", "diurnal", {}, {"day": 10.0}),
    Stream("colliding hashes", "colliding", attack=True),
    Stream("Nexmark bids", "nexmark-bids"),
    Stream("YCSB latest", "ycsb-latest"),
    Stream("TPC-C items", "tpcc-items"),
    Stream("cashtags", "cashtags"),
)
PLANNED, UNPLANNED, KEY, W_CHOICES = "level-fill", "level-fill, no plan", "key", "w-choices"
RIVALS: Mapping[str, tuple[str, Mapping[str, object]]] = {
    PLANNED: ("level-fill", {}),
    UNPLANNED: ("level-fill", {"planned": False}),
    KEY: ("key", {}),
    W_CHOICES: ("w-choices", {}),
}
LAMBDA, WORST, COST, RUN_COST = "λ", "largest λ", "cost per window", "cost of the run"
LEAST, STEADY, EFFICIENCY = "min/avg", "steady min/avg", "efficiency"
_UNSTEADY = 2
"""Intervals after the begin or a change that are not counted as steady."""


@dataclass(frozen=True)
class Scope:
    """What of the battery is run."""

    streams: Sequence[Stream] = STREAMS
    sources: Sequence[int] = (1, 2, 5, 10, 20)
    workers: Sequence[int] = (10, 50, 200)
    groupings: Sequence[str] = tuple(RIVALS)
    seeds: Sequence[int] = (0, 1, 2, 3)
    deal: Deal = Deal.KEY
    interval: int = 100_000
    intervals: int = 12


QUICK = Scope(sources=(1, 5), workers=(10, 50), seeds=(0,), interval=40_000, intervals=8)
"""Less than two minutes on one core."""


def measure(scope: Scope, progress: Callable[[float], None] = lambda _: None) -> Iterator[Row]:
    """The figures of each run, the groupings one after the other on the same stream and seed."""
    cases = list(product(scope.streams, scope.seeds, scope.workers, scope.sources, scope.groupings))
    for number, (stream, seed, workers, sources, grouping) in enumerate(cases):
        progress(number / len(cases))
        yield _row(scope, stream, seed, workers, sources, grouping)
    progress(1.0)


def _row(scope: Scope, stream: Stream, seed: int, workers: int, sources: int, grouping: str) -> Row:
    interval = max(1, round(scope.interval * stream.part))
    count = scope.intervals
    resizes = {
        round(count * (step + 1) / (len(stream.grows) + 1)): workers * times for step, times in enumerate(stream.grows)
    }
    lengths = {name: round(intervals * interval) for name, intervals in stream.intervals.items()}
    events = workload(stream.workload, count * interval, seed, {**stream.settings, **lengths})
    name, settings = RIVALS[grouping]
    if stream.attack and (secret := secret_setting(name)):
        settings = {**settings, secret: seed + 1}
    oracle = Oracle()
    for chunk, chosen, size in Drive(
        events, create_sources(name, workers, sources, settings), resizes, interval, scope.deal
    ):
        oracle.take(chunk.keys, chunk.weights, chosen, size)
    verdicts = oracle.verdicts
    later = verdicts[count // 4 :]
    begins = [0, *(round(count * part) for part in stream.changes)]
    steady = [each.least for at, each in enumerate(verdicts) if all(not 0 <= at - b < _UNSTEADY for b in begins)]
    return {
        "stream": stream.name,
        "W": workers,
        "S": sources,
        "grouping": grouping,
        "seed": seed,
        LAMBDA: sum(each.lambda_ for each in later) / len(later),
        WORST: max(each.lambda_ for each in later),
        COST: sum(each.cost for each in later) / len(later),
        RUN_COST: oracle.run_cost,
        LEAST: sum(each.least for each in later) / len(later),
        STEADY: min(steady),
        EFFICIENCY: oracle.efficiency,
    }
