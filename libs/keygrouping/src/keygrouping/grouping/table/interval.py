"""What an interval tells the planners of routing tables, and what they answer."""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from keygrouping.grouping.protocol import Weights

Numbers = NDArray[np.int64]

ROUNDING = 1e-9
"""Loads are sums of floats: they may exceed a limit by this part of it."""


@dataclass(frozen=True, slots=True)
class Interval:
    """What is known at the end of an interval; the keys are in an order that is the same for all planners."""

    cost: Weights
    """Load of each key in this interval."""
    state: Weights
    """What has to be migrated if the key moves."""
    home: Numbers
    """The worker that the hash points to."""
    worker: Numbers
    """The worker at present: other than home if the key is in the routing table."""
    background: Weights
    """Load of each worker by keys that can't be moved."""

    @property
    def total(self) -> float:
        """All load."""
        return float(self.cost.sum() + self.background.sum())

    @property
    def mean(self) -> float:
        """The load of a worker if all had the same."""
        return self.total / len(self.background)

    def loads(self, worker: Numbers) -> Weights:
        """The load of each worker if the keys were at these."""
        return self.background + np.bincount(worker, self.cost, len(self.background))

    def overload(self, worker: Numbers) -> float:
        """The largest load over the mean, less 1; 0 if there is no load.

        The paper's theta of a worker takes underload for imbalance too, but nothing in its algorithms acts on that.
        """
        mean = self.mean
        return max(0.0, float(self.loads(worker).max()) / mean - 1) if mean else 0.0

    @staticmethod
    def limit(theta_max: float, mean: float) -> float:
        """The largest load that is no overload."""
        return (1 + theta_max) * mean * (1 + ROUNDING)

    def balanced(self, worker: Numbers, theta_max: float) -> bool:
        """Whether no load exceeds (1 + theta_max) times the mean."""
        return bool(self.loads(worker).max() <= self.limit(theta_max, self.mean))

    def table_size(self, worker: Numbers) -> int:
        """The number of keys that are not at home."""
        return int(np.count_nonzero(worker != self.home))

    def moved_state(self, worker: Numbers) -> float:
        """The migration cost M: the state of all keys that change their worker."""
        return float(self.state[worker != self.worker].sum())


class Outcome(NamedTuple):
    """A new worker for every key."""

    worker: Numbers
    refused: int
    """How many keys had to go to a worker that is overloaded by them."""


def limited(interval: Interval, outcome: Outcome, table_size: int) -> Outcome:
    """The outcome with the least costly keys that are not at home sent there until the table is small enough."""
    away = np.flatnonzero(outcome.worker != interval.home)
    if len(away) <= table_size:
        return outcome
    cheapest = away[np.argsort(interval.cost[away], kind="stable")][: len(away) - table_size]
    worker = outcome.worker.copy()
    worker[cheapest] = interval.home[cheapest]
    return Outcome(worker, outcome.refused)
