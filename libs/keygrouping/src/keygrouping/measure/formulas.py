"""The measures as plain functions: the one place where each formula stands."""

from collections.abc import Hashable, Iterable

import numpy as np
from numpy.typing import ArrayLike


def lambda_(loads: ArrayLike) -> float:
    """Largest load over average load of all workers: 1 is perfect, W the worst; 1 if there is no load at all."""
    values = np.asarray(loads, np.float64)
    total = float(values.sum())
    return float(values.max()) * values.size / total if total else 1.0


def std_dev(loads: ArrayLike) -> float:
    """Population standard deviation of the workers' shares of the load in percentage points; 0 without load."""
    values = np.asarray(loads, np.float64)
    total = float(values.sum())
    return float(np.std(100.0 * values / total)) if total else 0.0


def dist_cost(pairs: Iterable[tuple[Hashable, int]]) -> float:
    """Distinct (key, worker) pairs over distinct keys: 1 is key grouping, W the worst; 1 without keys."""
    distinct = set(pairs)
    keys = {key for key, _ in distinct}
    return len(distinct) / len(keys) if keys else 1.0


def efficiency(throughput: float, workers: int, service_rate: float) -> float:
    """Throughput over what `workers` do at best, each `service_rate` (same unit): 1 is the physical limit."""
    if workers < 1 or service_rate <= 0:
        raise ValueError("efficiency needs a worker and a service rate above 0")
    return throughput / (workers * service_rate)
