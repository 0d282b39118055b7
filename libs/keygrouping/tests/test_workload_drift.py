"""Drifting workloads change what they say, when they say it."""

from itertools import pairwise

import numpy as np
import pytest
from keygrouping.hashing import hash_key, worker_of
from keygrouping.workload import workload
from numpy.typing import NDArray


def shares(name: str, part: int, parts: int, **settings: object) -> NDArray[np.float64]:
    """Share of every key by its number in each part of the stream, shape (parts, numbers)."""
    stream = workload(name, part * parts, 2, settings)
    keys = np.concatenate([chunk.keys for chunk in stream.chunks()])
    numbers = np.array([int(stream.table.name(i).removeprefix(b"key-")) for i in range(len(stream.table))])
    found = [np.bincount(numbers[piece], minlength=numbers.max() + 1) for piece in np.split(keys, parts)]
    return np.array(found) / part


def test_a_step_changes_the_hot_keys_share_once() -> None:
    found = shares("step", 30_000, 4, before=0.2, after=0.7, at=0.25)
    assert found[:, 0] == pytest.approx([0.2, 0.7, 0.7, 0.7], abs=0.015)
    assert np.count_nonzero(found.sum(axis=0)) == 204
    assert found[1:, 1:].max() < 2 * 0.3 / 203


def test_a_step_is_half_skew_by_default() -> None:
    assert shares("step", 50_000, 2)[:, 0] == pytest.approx([0.8, 0], abs=0.01)


def test_the_hot_key_moves_every_interval() -> None:
    found = shares("moving-hot-key", 30_000, 6, interval=30_000, keys=1_000, share=0.4)
    hot = found.argmax(axis=1)
    assert len(set(hot.tolist())) == 6
    assert found.max(axis=1) == pytest.approx(0.4 + 0.6 / 1_000, abs=0.015)
    assert np.sort(found, axis=1)[:, -2].max() < 0.003


def test_all_keys_are_hot_before_one_is_so_again() -> None:
    found = shares("moving-hot-key", 2_000, 10, interval=2_000, keys=5, share=0.9)
    hot = found.argmax(axis=1).tolist()
    assert sorted(hot[:5]) == [1, 2, 3, 4, 5] and hot[5:] == hot[:5]


def test_a_burst_is_at_the_end_of_its_interval() -> None:
    found = shares("burst", 10_000, 12, interval=40_000, length=10_000, share=0.5, keys=500, z=0.5)
    calm = found[[0, 1, 2, 4, 5, 6, 8, 9, 10]]
    assert calm.max() < 0.05
    assert found[[3, 7, 11]].max(axis=1) == pytest.approx(0.5, abs=0.05)
    assert len(set(found[[3, 7, 11]].argmax(axis=1).tolist())) == 3


def test_swaps_exchange_the_hottest_keys() -> None:
    found = shares("swap", 40_000, 5, interval=40_000, keys=200, swaps=2, z=1.0)
    ranked = np.argsort(-found, axis=1)
    for before, after in pairwise(ranked[:, :2].tolist()):
        assert not set(before) & set(after), "both are replaced"
    assert len(set(ranked[:, 2].tolist())) == 1, "the third stays"
    assert (found[:, 1:] > 0).all(), "none is lost"
    assert np.sort(found, axis=1)[:, -4:] == pytest.approx(np.sort(found, axis=1)[[0] * 5, -4:], abs=0.01)


def test_the_head_rotates() -> None:
    found = shares("rotating-head", 40_000, 8, interval=40_000, head=4, keys=2_000, z=1.0)
    assert found.argmax(axis=1).tolist() == [1, 2, 3, 4, 1, 2, 3, 4]
    assert found[1, 1] == pytest.approx(found[0, 4], abs=0.006), "the first has become the last of the head"
    assert found[:, 5] == pytest.approx(found[0, 5], abs=0.006)


def instance_loads(found: NDArray[np.float64], instances: int) -> NDArray[np.float64]:
    homes = np.array([worker_of(hash_key(b"key-%d" % number), instances) for number in range(found.shape[1])])
    return np.array([np.bincount(homes, interval, instances) for interval in found]) * instances


@pytest.mark.parametrize(("fluctuation", "instances"), [(0.3, 4), (1.0, 15)])
def test_an_instances_load_fluctuates_as_much_as_asked(fluctuation: float, instances: int) -> None:
    interval = 200_000
    found = shares(
        "fluctuation", interval, 6, interval=interval, fluctuation=fluctuation, instances=instances, keys=2_000
    )
    changes = np.diff(instance_loads(found, instances), axis=0).max(axis=1)
    noise = 4 * instances * np.sqrt(2 / instances / interval)
    assert (changes > fluctuation - noise).all()
    assert (changes < fluctuation + 1).all()
    ranked = -np.sort(-found, axis=1)[:, :20]
    assert ranked == pytest.approx(ranked[[0] * 6], abs=0.003), "keys only exchange their frequencies"


def test_without_fluctuation_nothing_moves() -> None:
    found = shares("fluctuation", 100_000, 3, interval=100_000, fluctuation=0.0, keys=2_000)
    assert found == pytest.approx(found[[0] * 3], abs=0.003)


@pytest.mark.parametrize("settings", [{"z": 0.0}, {"keys": 2}, {"fluctuation": 10.0, "instances": 2}])
def test_a_fluctuation_out_of_reach_ends(settings: dict[str, object]) -> None:
    chunks = workload("fluctuation", 30_000, 1, {"interval": 10_000, "keys": 500, **settings}).chunks()
    assert sum(map(len, chunks)) == 30_000
