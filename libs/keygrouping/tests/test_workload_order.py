"""Workloads whose order, weights or hashes are what is hard about them."""

import numpy as np
import pytest
from keygrouping.hashing import hash_key, kafka_hashes, kafka_partitions
from keygrouping.workload import workload
from numpy.typing import NDArray


def keys_of(name: str, events: int, seed: int = 1, **settings: object) -> tuple[NDArray[np.int64], list[bytes]]:
    """Positions of all events, and the names of all keys."""
    stream = workload(name, events, seed, settings)
    keys = np.concatenate([chunk.keys for chunk in stream.chunks()])
    return keys, list(stream.table.names(0, len(stream.table)))


def runs(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    """The lengths of the runs of equal keys, the last one left out, as it may be cut."""
    return np.diff(np.concatenate([[0], np.flatnonzero(np.diff(keys)) + 1]))


def test_sessions_come_in_a_row_and_never_again() -> None:
    keys, names = keys_of("sessions", 200_000)
    assert (np.diff(keys) >= 0).all() and len(names) == len(np.unique(keys))
    assert np.bincount(runs(keys))[1:] / len(runs(keys)) == pytest.approx([0.2] * 5, abs=0.01)


def test_sessions_of_one_event_are_all_new_keys() -> None:
    keys, names = keys_of("sessions", 70_000, longest=1)
    assert len(names) == len(keys) == len(set(names))


def test_runs_are_of_their_length() -> None:
    keys, _ = keys_of("runs", 100_000, length=500, z=0.0)
    assert set((runs(keys) % 500).tolist()) == {0}


def test_batches_are_sorted_and_the_order_is_not_that_of_frequency() -> None:
    keys, names = keys_of("sorted", 30_000, batch=10_000)
    numbers = np.array([int(name.removeprefix(b"key-")) for name in names])[keys]
    for batch in np.split(numbers, 3):
        assert (np.diff(batch) >= 0).all()
    counts = np.bincount(numbers)
    assert counts.max() / len(numbers) == pytest.approx(0.102, abs=0.01)
    assert counts.argmax() != 1


def test_a_backlog_comes_partition_by_partition() -> None:
    keys, names = keys_of("backlog", 40_000, partitions=4, fetch=5_000)
    partitions = kafka_partitions(kafka_hashes(names), 4)[keys]
    for block in np.split(partitions, 2):
        assert (np.diff(block) >= 0).all() and set(block.tolist()) == {0, 1, 2, 3}


def test_a_text_is_one_and_begins_again() -> None:
    keys, names = keys_of("text", 60_000)
    text = [names[key] for key in keys]
    words = 26_667
    assert text[:20_000] == text[words : words + 20_000] and len(names) == 2_631
    assert b" alice was beginning to get very tired of sitting by her sister " in b" ".join(text)


def test_a_seed_is_a_place_of_the_text() -> None:
    (one, names), (other, others) = (keys_of("text", 60_000, seed) for seed in (1, 2))
    assert sorted(names) == sorted(others)
    assert [names[key] for key in one[:50]] != [others[key] for key in other[:50]]


def test_weights_are_of_keys_and_have_a_heavy_tail() -> None:
    stream = workload("pareto-weights", 100_000, 1, {"keys": 1_000})
    chunks = list(stream.chunks())
    keys = np.concatenate([chunk.keys for chunk in chunks])
    weights = np.concatenate([chunk.weights for chunk in chunks if chunk.weights is not None])
    of_keys = weights[np.unique(keys, return_index=True)[1]]
    assert np.array_equal(of_keys[keys], weights)
    assert of_keys.min() >= 1
    assert np.mean(of_keys > 10) == pytest.approx(10**-1.2, abs=0.025)


def test_the_hashes_of_chosen_keys_agree() -> None:
    keys, names = keys_of("colliding", 20_000)
    hashes = np.array([hash_key(name) for name in names]).view(np.uint64)
    bits = hashes & np.uint64(0xFF_0000_0FFF)
    assert len(names) == 20 and len(set(bits.tolist())) == 1
    assert np.bincount(keys) / 20_000 == pytest.approx([0.05] * 20, abs=0.01)
    _, mixed = keys_of("colliding", 20_000, share=0.5, keys=100)
    assert len(mixed) == 120


def test_regions_are_active_one_after_the_other() -> None:
    stream = workload("diurnal", 80_000, 1, {"day": 80_000, "regions": 4, "keys": 10, "amplitude": 1.0})
    keys = np.concatenate([chunk.keys for chunk in stream.chunks()])
    numbers = np.array([int(name.removeprefix(b"key-")) for name in stream.table.names(0, 40)])[keys]
    regions = (numbers - 1) // 10
    counts = np.array([np.bincount(part, minlength=4) for part in np.split(regions, 8)]) / 10_000
    assert len(set(counts[::2].argmax(axis=1).tolist())) == 4
    assert counts.max() > 0.35 and counts.min() < 0.1
    assert np.bincount(regions) / 80_000 == pytest.approx([0.25] * 4, abs=0.01)


def test_the_hot_auction_has_half_of_the_bids_and_changes() -> None:
    keys, names = keys_of("nexmark-bids", 100_000)
    numbers = np.array([int(name.removeprefix(b"auction-")) for name in names])[keys]
    assert np.mean(numbers % 100 == 0) == pytest.approx(0.5 + 0.5 / 100, abs=0.01)
    hot = numbers[numbers % 100 == 0]
    assert len(np.unique(hot)) == pytest.approx(100_000 * 3 / 46 / 100, abs=3)


def test_the_newest_record_is_read_most() -> None:
    keys, names = keys_of("ycsb-latest", 100_000, records=1_000)
    numbers = np.array([int(name.removeprefix(b"record-")) for name in names])
    assert numbers.max() - numbers.min() == pytest.approx(5_000 + 1_000, abs=250)
    assert np.bincount(keys).max() < 0.01 * len(keys)


def test_items_are_those_of_tpcc() -> None:
    keys, names = keys_of("tpcc-items", 200_000)
    numbers = np.array([int(name.removeprefix(b"item-")) for name in names])
    assert numbers.min() >= 1 and numbers.max() <= 100_000
    counts = np.sort(np.bincount(keys))[::-1]
    assert counts[: len(counts) // 10].sum() / counts.sum() > 0.3, "NURand is not uniform"
