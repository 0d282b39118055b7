"""The measures as plain functions: the one place where each formula stands."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray


def lambda_(loads: ArrayLike, capacities: ArrayLike | None = None) -> float:
    """Largest load over average load of all workers: 1 is perfect, W the worst; 1 if there is no load at all.

    With capacities (None: all are alike), each load is taken over what is the worker's due: 1 is perfect, too.
    """
    values = relative_loads(loads, capacities)
    total = float(np.sum(loads, dtype=np.float64))
    return float(values.max()) * values.size / total if total else 1.0


def relative_loads(loads: ArrayLike, capacities: ArrayLike | None = None) -> NDArray[np.float64]:
    """What the loads would be if workers of an average capacity were as busy: all alike if each has its due."""
    values = np.asarray(loads, np.float64)
    if capacities is None:
        return values
    given = np.asarray(capacities, np.float64)
    relative: NDArray[np.float64] = values * (given.mean() / given)
    return relative


def least_share(loads: ArrayLike, capacities: ArrayLike | None = None) -> float:
    """Least load over average load of all workers: 1 is perfect, 0 an idle worker; 1 if there is no load at all.

    With capacities (None: all are alike), each load is taken over what is the worker's due.
    """
    values = relative_loads(loads, capacities)
    total = float(np.sum(loads, dtype=np.float64))
    return float(values.min()) * values.size / total if total else 1.0


def imbalance(loads: ArrayLike) -> float:
    """I(t): largest load minus average load, in the unit of the loads (Partial Key Grouping, section 2)."""
    values = np.asarray(loads, np.float64)
    return float(values.max() - values.mean())


def imbalance_fraction(loads: ArrayLike) -> float:
    """I(t) as a part of all load, 0 to 1 - 1/W; 0 without load."""
    total = float(np.sum(loads, dtype=np.float64))
    return imbalance(loads) / total if total else 0.0


def std_dev(loads: ArrayLike, capacities: ArrayLike | None = None) -> float:
    """Population standard deviation of the workers' shares of the load in percentage points; 0 without load.

    With capacities (None: all are alike), that of the `relative_loads`' shares: 0 if each worker has its due.
    """
    values = relative_loads(loads, capacities)
    total = float(values.sum())
    return float(np.std(100.0 * values / total)) if total else 0.0


def cv(loads: ArrayLike) -> float:
    """Coefficient of variation, population standard deviation over average of the loads: unlike STD_DEV it can be
    compared between different W; 0 without load."""
    return std_dev(loads) * np.size(loads) / 100.0


def dist_cost(pairs: int, keys: int) -> float:
    """Distinct (key, worker) pairs over distinct keys: 1 is key grouping, W the worst; 1 without keys."""
    return pairs / keys if keys else 1.0


def efficiency(throughput: float, workers: float, service_rate: float) -> float:
    """Throughput over what `workers` do at best, each `service_rate` (same unit): 1 is the physical limit.

    A worker that is faster or slower than the others counts as more or less than 1. ValueError if there is none, or
    the rate is not above 0.
    """
    if workers <= 0 or service_rate <= 0:
        raise ValueError("efficiency needs a worker and a service rate above 0")
    return throughput / (workers * service_rate)


def adaptation(lambdas: Sequence[float], shift: int, bound: float) -> int | None:
    """Intervals until λ is back under a bound after the stream has changed.

    `lambdas` is λ by interval, `shift` the position of the interval with the change. 0: that interval itself is at or
    under the bound; None: none from it on is.
    """
    return next((passed for passed, value in enumerate(lambdas[shift:]) if value <= bound), None)
