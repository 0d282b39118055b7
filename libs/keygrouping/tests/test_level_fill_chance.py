"""Level-fill moves nothing on what chance, or bursts of keys that never come again, put somewhere."""

import numpy as np
import pytest
from keygrouping.grouping import create
from keygrouping.grouping.level_fill import LevelFill
from keygrouping.measure import lambda_
from keygrouping.workload import workload
from numpy.typing import NDArray

INTERVAL = 20_000


def intervals_of(stream: str, routing: LevelFill, count: int = 8, **settings: object) -> list[NDArray[np.int64]]:
    """Loads of ten workers in each interval."""
    source = workload(stream, count * INTERVAL, 3, settings)
    keys = np.concatenate([chunk.keys for chunk in source.chunks()])
    hashes = source.table.hashes(routing.seeds)
    found = []
    for number, part in enumerate(np.split(keys, count)):
        batches = enumerate(np.split(part, 10))
        routed = [routing.route_batch(np.take(hashes, keys, axis=0), None, 10.0 * number + at) for at, keys in batches]
        found.append(np.bincount(np.concatenate(routed), minlength=10))
    return found


@pytest.mark.parametrize("longest", [1, 5, 20])
def test_keys_that_never_come_again_go_as_evenly_as_by_their_hashes(longest: int) -> None:
    filled, hashed = LevelFill(10), create("level-fill", 10, {"planned": False})
    assert isinstance(hashed, LevelFill)
    before = filled._arrays.owners.copy()
    loads, by_hash = (intervals_of("sessions", one, longest=longest) for one in (filled, hashed))
    assert np.mean(list(map(lambda_, loads[2:]))) <= 1.01 * np.mean(list(map(lambda_, by_hash[2:])))
    assert np.mean(filled._arrays.owners != before) < 0.01


def test_what_buckets_have_in_every_interval_is_leveled() -> None:
    """Hardly a key is tracked, with one counter per worker."""
    planned, hashed = (create("level-fill", 10, {"counters": 1, "planned": plans}) for plans in (True, False))
    assert isinstance(planned, LevelFill) and isinstance(hashed, LevelFill)
    loads, by_hash = (intervals_of("zipf", one, z=0.6, keys=3000) for one in (planned, hashed))
    assert np.mean(list(map(lambda_, loads[2:]))) - 1 <= 0.4 * (np.mean(list(map(lambda_, by_hash[2:]))) - 1)
