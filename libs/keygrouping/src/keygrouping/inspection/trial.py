"""One grouping for one number of workers, fed with the events that are read."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from keygrouping import grouping
from keygrouping.grouping import Grouping, Offline, Planned, create
from keygrouping.grouping.level_fill import VARIANTS
from keygrouping.grouping.protocol import UrgentlyPlanned
from keygrouping.inspection.batch import InspectionError
from keygrouping.measure import MOST_PAIRS, KeySample, lambda_, std_dev
from keygrouping.simulate import create_sources

USUAL = ("key", "pkg", "w-choices", "dkg", "level-fill", "shuffle")
"""What is compared unless other groupings are named."""

ALL = "all"
_BALANCE_FIRST = "balance-first"

Weights = NDArray[np.float64]


def groupings(wanted: Sequence[str]) -> list[tuple[str, Mapping[str, object]]]:
    """Names and settings of the groupings to compare, key grouping first; InspectionError names the choices.

    Level-fill is tried for balance first, too. Groupings that have to know the stream beforehand can't be tried on one
    that goes by.
    """
    choices = [name for name in grouping.names() if not isinstance(create(name, 1, {}), Offline)]
    unknown = next((name for name in wanted if name not in (*choices, ALL)), None)
    if unknown is not None:
        raise InspectionError(f"--groupings {unknown}: choose from {', '.join(choices)}, or {ALL}")
    chosen = choices if ALL in wanted else list(dict.fromkeys(wanted))
    found: list[tuple[str, Mapping[str, object]]] = [("key", {})]
    for name in chosen:
        found += [(name, {})] if name != "key" else []
        found += [(name, VARIANTS[_BALANCE_FIRST])] if name == "level-fill" else []
    return found


class Figures(NamedTuple):
    """Measures of an interval, or of several on average."""

    lambda_: float
    std_dev: float
    dist_cost: float


class _Part:
    """Loads, and a sample of who got which keys, since some begin."""

    def __init__(self, workers: int) -> None:
        self.loads: Weights = np.zeros(workers)
        self.pairs = KeySample(max(MOST_PAIRS, 4 * workers))

    def add(self, loads: Weights, keys: NDArray[np.int64], workers: NDArray[np.int32]) -> None:
        self.loads += loads
        self.pairs.add(keys, workers)

    def figures(self) -> Figures:
        return Figures(lambda_(self.loads), std_dev(self.loads), self.pairs.dist_cost)

    def weighed(self) -> NDArray[np.float64]:
        """The weight, and the figures times the weight."""
        return float(self.loads.sum()) * np.array((1.0, *self.figures()))


class Trial:
    """The grouping, and what it gives.

    One source decides alone; groupings that plan make their plan at the end of each interval.
    """

    def __init__(self, name: str, workers: int, settings: Mapping[str, object]) -> None:
        self.name = name
        self.settings = settings
        self.workers = workers
        (self._grouping,) = create_sources(name, workers, 1, settings)
        self.seeds = self._grouping.seeds
        self._run = _Part(workers)
        self._interval = _Part(workers)
        self._weighed = np.zeros(1 + len(Figures._fields))
        """Sums of weight and weighed figures over the intervals that have ended."""

    def route(self, hashes: NDArray[np.int64], keys: NDArray[np.int64], weights: Weights | None, now: float) -> None:
        """Events by the hashes of `seeds` (n, seeds), and by those that name their keys (n,)."""
        workers = self._grouping.route_batch(hashes, weights, now)
        loads = np.bincount(workers, weights, self.workers).astype(np.float64)
        for part in (self._run, self._interval):
            part.add(loads, keys, workers)

    def check(self) -> None:
        """Inside of an interval: plan if that is urgent."""
        made = self._grouping
        if isinstance(made, UrgentlyPlanned) and made.shared and made.urgent:
            _apply(made, made.interim_statistics())

    def end_interval(self) -> Weights:
        """Plan where that is left to the owner, and begin a new interval; gives the loads of the one that is over."""
        made = self._grouping
        if isinstance(made, Planned) and made.shared:
            _apply(made, made.statistics())
        self._weighed += self._interval.weighed()
        loads, self._interval = self._interval.loads, _Part(self.workers)
        return loads

    @property
    def grouping(self) -> Grouping:
        """The grouping itself."""
        return self._grouping

    @property
    def keys(self) -> int:
        """Distinct keys so far, an estimate where there are thousands."""
        return self._run.pairs.keys

    @property
    def interval_loads(self) -> Weights:
        """Weight of each worker since the interval's begin."""
        return self._interval.loads

    def average(self) -> Figures:
        """Measures of the intervals on average, by their weight; of the open one, too."""
        weight, *figures = (self._weighed + self._interval.weighed()).tolist()
        return Figures(*(figure / weight for figure in figures)) if weight else self._interval.figures()

    def run(self) -> Figures:
        """Measures since the begin."""
        return self._run.figures()

    def label(self) -> str:
        """Its name, and what it aims for if that is not the usual."""
        variant = next((aim for aim, settings in VARIANTS.items() if settings == self.settings), None)
        return f"{self.name} ({variant})" if self.settings and variant else self.name

    def settings_data(self) -> dict[str, Any]:
        """Its settings as plain JSON data."""
        return dict(self.settings)


def _apply(grouping: Planned, statistics: dict[str, Any]) -> None:
    plan = grouping.plan([statistics])
    if plan["changed"]:
        grouping.apply(plan)
