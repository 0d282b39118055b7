"""Streams through a grouping by a routing table, interval by interval, with what its plans move and take."""

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from keygrouping.grouping import Planned
from keygrouping.simulate import create_sources
from numpy.typing import NDArray

from keygrouping_experiments.lab import Lab

PAPER = (
    'Fang, Zhang, Fu, Zhang, Zhou and Zhu, "Parallel Stream Processing Against Workload Skewness and Variance" '
    "(HPDC 2017, arXiv 1610.05121)"
)
SETUP = (
    "The paper's fluctuating Zipf stream (z = 0.85, fluctuation 1, 10 k keys, 15 instances, 50 intervals), tolerance "
    "0.08, beta 1.5, table of 3,000 entries, unless a figure varies them. A plan is made at the end of each interval."
)

INTERVALS = 50
KEYS = 10_000
INSTANCES = 15
THETA_MAX = 0.08


@dataclass(frozen=True)
class Adjustment:
    """An interval, and the plan made at its end."""

    loads: NDArray[np.float64]
    """Events of each instance."""
    moved: float
    """State that the plan migrates, as a part of all state."""
    entries: int
    """In the routing table of the plan."""
    skewness: float
    """Largest over mean load, had the interval been routed by the plan."""
    feasible: bool
    seconds: float
    """The time it took to make the plan."""


def adjustments(
    lab: Lab,
    grouping: str,
    settings: Mapping[str, object],
    instances: int = INSTANCES,
    keys: int = KEYS,
    fluctuation: float = 1.0,
    intervals: int | None = None,
) -> list[Adjustment]:
    """Run the fluctuation stream through one instance of a grouping; plans are made at the end of each interval.

    An interval has a fiftieth of the lab's events, and there are fifty unless told otherwise.
    """
    size = max(1, lab.events // INTERVALS)
    chosen = {"fluctuation": fluctuation, "keys": keys, "instances": instances, "interval": size}
    stream = lab.workload("fluctuation", size * (intervals or INTERVALS), chosen)
    (router,) = create_sources(grouping, instances, 1, {"tracked_keys": max(keys, 100_000), **settings})
    assert isinstance(router, Planned)
    window = int(str(settings.get("window", 5)))
    made: list[Adjustment] = []
    loads = np.zeros(instances)
    for chunk in stream.chunks():
        hashes = np.take(stream.table.hashes(router.seeds), chunk.keys, axis=0)
        loads += np.bincount(router.route_batch(hashes, None, 0.0), minlength=instances)
        if loads.sum() >= size:
            made.append(_adjust(router, loads, size * min(window, len(made) + 1)))
            loads = np.zeros(instances)
    return made


def _adjust(router: Planned, loads: NDArray[np.float64], state: float) -> Adjustment:
    statistics = [router.statistics()]
    began = perf_counter()
    plan = router.plan(statistics)
    seconds = perf_counter() - began
    if plan["changed"]:
        router.apply(plan)
    return Adjustment(
        loads, plan["moved_state"] / state, len(plan["table"]), 1 + plan["max_overload"], plan["feasible"], seconds
    )


def mean(made: list[Adjustment], what: str) -> float:
    """A figure's mean over the adjustments, the first tenth of them left out."""
    return float(np.mean([getattr(each, what) for each in made[len(made) // 10 :]]))


def figures(made: list[Adjustment]) -> dict[str, float]:
    """Means over the adjustments, for a row."""
    return {
        "migration cost (%)": 100 * mean(made, "moved"),
        "entries": mean(made, "entries"),
        "largest over mean load": mean(made, "skewness"),
        "feasible (%)": 100 * mean(made, "feasible"),
        "plan time (s)": mean(made, "seconds"),
    }
