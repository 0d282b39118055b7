"""A plan of a routing table by itself, for owners of keys that are routed by something else."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

import numpy as np

from keygrouping.grouping.table import planning
from keygrouping.grouping.table.interval import Interval
from keygrouping.grouping.table.mixed import MixedSettings

Planner: TypeAlias = Literal["llfd", "mintable", "minmig", "mixed"]


def planned_workers(
    planner: Planner,
    *,
    cost: Sequence[float],
    state: Sequence[float],
    home: Sequence[int],
    worker: Sequence[int],
    background: Sequence[float],
    capacity: Sequence[float],
) -> list[int]:
    """The worker of each key by a planner with its default settings, see `planning`.

    `cost`, `state`, `home` and `worker` are of each key: its load, what has to be migrated if it moves, its first
    worker and its present one; `background`: the load of each worker by keys that can't be moved; `capacity`: the load
    that each worker is able to take, above 0. The planners know of workers that are alike only. So one that is able to
    less than the mean gets background load for it, and one that is able to more gets less than none: none of them is
    overloaded then as long as each has at most (1 + theta_max) times its capacity's part of all load.
    """
    chosen = MixedSettings()
    able = np.array(capacity, np.float64)
    level = (sum(cost) + sum(background)) / able.sum()
    interval = Interval(
        np.array(cost, np.float64),
        np.array(state, np.float64),
        np.array(home, np.int64),
        np.array(worker, np.int64),
        np.array(background, np.float64) + (1 + chosen.theta_max) * level * (able.mean() - able),
    )
    match planner:
        case "llfd":
            outcome = planning.llfd(interval, chosen.theta_max)
        case "mintable":
            outcome = planning.mintable(interval, chosen.theta_max)
        case "minmig":
            outcome = planning.minmig(interval, chosen.theta_max, chosen.beta)
        case "mixed":
            outcome = planning.mixed(interval, chosen.theta_max, chosen.beta, chosen.table_size)
    found: list[int] = outcome.worker.tolist()
    return found
