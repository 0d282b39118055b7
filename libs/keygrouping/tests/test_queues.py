"""The simulated workers' queues do what queues of a plain program do."""

from collections import deque

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.simulate._queue_kernel import bucket_of, offer, saturate, serve
from keygrouping.simulate.latency import BUCKETS
from numpy.typing import NDArray

WORKERS = 3
EVENTS = st.lists(st.tuples(st.integers(0, WORKERS - 1), st.integers(1, 8), st.integers(0, 8)), max_size=60)
SERVICE = st.lists(st.sampled_from([0.25, 1.0, 1.5]), min_size=WORKERS, max_size=WORKERS)


def columns(events: list[tuple[int, int, int]]) -> tuple[NDArray[np.int32], NDArray[np.float64], NDArray[np.float64]]:
    """Worker, weight and time of each; a gap lies before each event."""
    workers, weights, gaps = (np.array([event[place] for event in events]) for place in range(3))
    return workers.astype(np.int32), weights.astype(float), np.cumsum(gaps.astype(float))


@given(EVENTS, SERVICE)
def test_a_worker_takes_its_events_one_after_another(events: list[tuple[int, int, int]], service: list[float]) -> None:
    workers, weights, times = columns(events)
    free, counts, sums = np.zeros(WORKERS), np.zeros(BUCKETS, np.int64), np.zeros(BUCKETS)
    serve(workers, weights, times, np.array(service), free, counts, sums)
    ends = [0.0] * WORKERS
    latencies = []
    for worker, weight, time in zip(workers.tolist(), weights.tolist(), times.tolist(), strict=True):
        ends[worker] = max(ends[worker], time) + weight * service[worker]
        latencies.append(ends[worker] - time)
    assert free.tolist() == ends
    assert counts.sum() == len(latencies) and sums.sum() == sum(latencies)
    assert all(counts[bucket_of(latency)] for latency in latencies)


@given(EVENTS, SERVICE)
def test_without_weights_each_event_is_one(events: list[tuple[int, int, int]], service: list[float]) -> None:
    workers, weights, times = columns(events)
    found = []
    for given_weights in (np.ones_like(weights), np.empty(0)):
        free, counts, sums = np.zeros(WORKERS), np.zeros(BUCKETS, np.int64), np.zeros(BUCKETS)
        serve(workers, given_weights, times, np.array(service), free, counts, sums)
        found.append((free.tolist(), counts.tolist(), sums.tolist()))
    assert found[0] == found[1]


@given(EVENTS, SERVICE, st.integers(1, 4))
def test_a_full_queue_holds_up_its_source(events: list[tuple[int, int, int]], service: list[float], size: int) -> None:
    workers, weights, _ = columns(events)
    free, places = np.zeros(WORKERS), np.zeros((WORKERS, size))
    following, released = np.zeros(WORKERS, np.int64), np.zeros(1)
    saturate(workers, weights, np.array(service), free, places, following, released)
    ends = [0.0] * WORKERS
    queues: list[deque[float]] = [deque(maxlen=size) for _ in range(WORKERS)]
    left = 0.0
    for worker, weight in zip(workers.tolist(), weights.tolist(), strict=True):
        queue = queues[worker]
        if len(queue) == size:
            left = max(left, queue[0])  # The event leaves its source, and all behind it, when a place is free.
        ends[worker] = max(ends[worker], left) + weight * service[worker]
        queue.append(ends[worker])
    assert free.tolist() == ends and released[0] == left


@given(st.lists(st.lists(st.integers(1, 9), max_size=20), max_size=4), st.sampled_from([0.5, 1.0, 3.0]))
def test_events_come_in_proportion_to_their_weights_through_all_batches(batches: list[list[int]], gap: float) -> None:
    offered, times = np.zeros(1), []
    for batch in batches:
        times += offer(np.array(batch, float), len(batch), gap, offered).tolist()
    weights = [weight for batch in batches for weight in batch]
    assert times == [gap * sum(weights[:number]) for number in range(len(weights))]
    assert offered[0] == sum(weights)


@given(st.floats(1e-9, 1e9), st.floats(1e-9, 1e9))
def test_a_longer_latency_is_in_no_earlier_bucket(one: float, other: float) -> None:
    shorter, longer = sorted((one, other))
    assert 0 <= bucket_of(shorter) <= bucket_of(longer) < BUCKETS
