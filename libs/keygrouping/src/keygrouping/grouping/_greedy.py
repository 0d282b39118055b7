"""The greedy schedule that several groupings build their plans by."""

import heapq

import numpy as np
from numpy.typing import NDArray


def heaviest_first(weights: NDArray[np.float64], workers: int) -> NDArray[np.int32]:
    """The worker of each item: in this order, the heaviest first, each goes to the least loaded worker by then.

    A tie of loads goes to the lowest worker. The largest load is at most 4/3 - 1/(3 workers) times that of the best
    schedule there is: Graham, "Bounds on Multiprocessing Timing Anomalies" (SIAM J. Appl. Math. 1969), theorem 2.
    Raises ValueError if the weights don't descend.
    """
    if np.any(np.diff(weights) > 0):
        raise ValueError("weights must descend")
    heap = [(0.0, worker) for worker in range(workers)]
    assigned = np.empty(len(weights), np.int32)
    for item, weight in enumerate(weights.tolist()):
        load, worker = heap[0]
        assigned[item] = worker
        heapq.heapreplace(heap, (load + weight, worker))
    return assigned
