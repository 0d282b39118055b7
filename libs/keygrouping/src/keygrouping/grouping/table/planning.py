"""Planners of routing tables: which keys should move to which worker, given what they cost and what state they have.

Source: Fang et al., "Parallel Stream Processing Against Workload Skewness and Variance" (HPDC 2017, arXiv
1610.05121), section 3: algorithm 1 (Least-Load Fit Decreasing), 2 (MinTable), 3 (MinMig) and 4 (Mixed).

All of them go through the same phases. I: some keys of the routing table are moved back to their homes in thought.
II: overloaded workers give up keys, in an order of preference, until they are overloaded no more. III: these
candidates, the most costly first, go to the least loaded worker that can take them, if need be by displacing less
costly ones in the same order of preference (which become candidates in turn).

Algorithm 1 leaves open what becomes of a candidate that no worker can take. Here it goes where the keys that it
can't displace weigh least, displaces all others there, and is counted as refused. So the bound of theorem 1 on the
largest load holds under any tolerance, and the worker of a key that is heavier than a fair share gets nothing else.
Such a key stays where it is unless it would get there by more than the tolerance less company.
"""

import numpy as np

from keygrouping.grouping.protocol import Weights
from keygrouping.grouping.table.interval import Interval, Outcome, limited
from keygrouping.grouping.table.workspace import Preference, Workspace


def highest_cost(cost: Weights, state: Weights) -> Weights:  # noqa: ARG001
    """The order of LLFD and MinTable: as few keys as possible are moved."""
    return cost


def migration_priority(beta: float) -> Preference:
    """The order of MinMig and Mixed: gamma = cost**beta / state; a key that costs but has no state is the first."""

    def gamma(cost: Weights, state: Weights) -> Weights:
        stateless = np.where(cost > 0, np.inf, 0.0)
        return np.divide(cost**beta, state, out=stateless, where=state > 0)

    return gamma


def llfd(interval: Interval, theta_max: float, compact: int | None = None) -> Outcome:
    """Algorithm 1 by itself: nothing is moved back, the most costly keys move first."""
    space = Workspace(interval, highest_cost, theta_max, compact)
    return space.outcome(space.trial(0))


def mintable(interval: Interval, theta_max: float, compact: int | None = None) -> Outcome:
    """Algorithm 2: the whole table is moved back first, so that few keys need an entry; many may migrate."""
    space = Workspace(interval, highest_cost, theta_max, compact)
    return space.outcome(space.trial(space.table_size))


def minmig(interval: Interval, theta_max: float, beta: float, compact: int | None = None) -> Outcome:
    """Algorithm 3: nothing is moved back, and keys with much cost per state move first; the table may grow."""
    space = Workspace(interval, migration_priority(beta), theta_max, compact)
    return space.outcome(space.trial(0))


def mixed(interval: Interval, theta_max: float, beta: float, table_size: int, compact: int | None = None) -> Outcome:
    """Algorithm 4: as MinMig, but with as many keys moved back as the tables of the trials before were too large.

    If that does not do, see `_last_resort`.
    """
    space = Workspace(interval, migration_priority(beta), theta_max, compact)
    moved_back = 0
    while True:
        trial = space.trial(moved_back)
        if trial.table_size <= table_size:
            return space.outcome(trial)
        if moved_back == space.table_size:
            return _last_resort(interval, space, theta_max, table_size, compact)
        moved_back = min(space.table_size, moved_back + trial.table_size - table_size)


def mixed_bf(interval: Interval, theta_max: float, beta: float, table_size: int, compact: int | None = None) -> Outcome:
    """Mixed by brute force: every number of keys moved back is tried.

    The best plan is the one with the least moved state among those that fit the table size and balance (or only fit
    it, if none does both). If none fits and balances, `_last_resort` is tried too.
    """
    space = Workspace(interval, migration_priority(beta), theta_max, compact)
    trials = (space.trial(moved_back) for moved_back in range(space.table_size + 1))
    fitting = (trial for trial in trials if trial.table_size <= table_size)
    best = min(fitting, key=lambda trial: (not space.balanced(trial), trial.moved_state), default=None)
    if best is not None and space.balanced(best):
        return space.outcome(best)
    resort = _last_resort(interval, space, theta_max, table_size, compact)
    choices = [resort] if best is None else [space.outcome(best), resort]
    return min(choices, key=lambda choice: _badness(interval, choice, theta_max))


def _badness(interval: Interval, outcome: Outcome, theta_max: float) -> tuple[bool, float]:
    """Ranks outcomes: one that balances is better than one that doesn't, then one that migrates less."""
    return not interval.balanced(outcome.worker, theta_max), interval.moved_state(outcome.worker)


def _last_resort(
    interval: Interval, space: Workspace, theta_max: float, table_size: int, compact: int | None
) -> Outcome:
    """MinTable's outcome if its table fits (as in the paper); else the most costly keys of MinMig's table.

    A cut table of MinTable's would balance hardly better, and be another one every interval.
    """
    smallest = mintable(interval, theta_max, compact)
    if interval.table_size(smallest.worker) <= table_size:
        return smallest
    return limited(interval, space.outcome(space.trial(0)), table_size)


def readj(interval: Interval, theta_max: float, sigma: float) -> Outcome:
    """Keys with at least `sigma` of all load move or change places, always by the step that evens out loads most.

    Entries of lighter keys are moved back first. Source: Gedik, "Partitioning functions for stateful data
    parallelism in stream processing" (VLDB Journal 2014), as Fang et al. describe it in section 5.
    """
    from keygrouping.grouping.table.readj_kernel import readjust

    tracked = np.flatnonzero((interval.cost > 0) & (interval.cost >= sigma * interval.total))
    worker = interval.home.copy()
    worker[tracked] = interval.worker[tracked]
    loads = interval.loads(worker)
    limit = interval.limit(theta_max, interval.mean)
    worker[tracked] = readjust(interval.cost[tracked], interval.state[tracked], worker[tracked], loads, limit)
    return Outcome(worker, 0)
