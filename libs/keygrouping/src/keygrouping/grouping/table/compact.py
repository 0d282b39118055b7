"""Compact statistics: keys that are alike, once their costs and states are rounded, are planned as one.

Source: Fang et al., "Parallel Stream Processing Against Workload Skewness and Variance" (HPDC 2017, arXiv
1610.05121), section 4.
"""

from dataclasses import dataclass

import numpy as np

from keygrouping.grouping.protocol import Weights
from keygrouping.grouping.table.interval import Numbers

MAX_EXPONENT = 8


def discretised(values: Weights, parts: Numbers, exponent: int) -> Weights:
    """The values rounded to half-linear-half-exponential (HLHE) representatives of degree R = 2**exponent.

    Representatives are the multiples of R and the powers of two below R. Each part (all values with the same number
    in `parts`) is rounded by itself, from the largest value down: values between two representatives take the upper
    one while the sum of those before is too low, else the lower one. So no sum of a part's largest values is off by
    more than R. Zeros stay. If the smallest other value is below 1, R counts in units of it.
    """
    from keygrouping.grouping.table.compact_kernel import discretise

    positive = np.flatnonzero(values > 0)
    unit = min(1.0, float(values[positive].min())) if len(positive) else 1.0
    falling = positive[np.lexsort((-values[positive], parts[positive]))]
    rounded = np.zeros(len(values))
    rounded[falling] = unit * discretise(np.maximum(values[falling] / unit, 1.0), parts[falling], 2**exponent)
    return rounded


@dataclass(frozen=True, slots=True)
class Groups:
    """Keys that are alike: one row each of cost, state, home, present worker and number of keys."""

    cost: Weights
    state: Weights
    home: Numbers
    worker: Numbers
    number: Numbers
    members: Numbers
    """The keys of all groups, one group after the other."""

    @classmethod
    def single(cls, cost: Weights, state: Weights, home: Numbers, worker: Numbers) -> "Groups":
        """A group for every key."""
        keys = len(cost)
        return cls(cost, state, home, worker, np.ones(keys, np.int64), np.arange(keys))

    @classmethod
    def compact(cls, cost: Weights, state: Weights, home: Numbers, worker: Numbers, exponent: int) -> "Groups":
        """One group for all keys with the same home and worker and equal rounded cost and state."""
        cost, state = discretised(cost, worker, exponent), discretised(state, worker, exponent)
        members = np.lexsort((state, cost, home, worker))
        first = np.ones(len(members), bool)
        ordered = [column[members] for column in (cost, state, home, worker)]
        first[1:] = np.any([column[1:] != column[:-1] for column in ordered], axis=0)
        starts = np.flatnonzero(first)
        row = members[starts]
        number = np.diff(np.append(starts, len(members)))
        return cls(cost[row], state[row], home[row], worker[row], number, members)
