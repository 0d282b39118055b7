"""A secret seed: keys that were chosen to collide don't, and everything else is as without one."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.grouping import create, create_shared
from keygrouping.grouping.level_fill.scramble import restored, scrambled
from keygrouping.grouping.protocol import Filled
from keygrouping.hashing import hash_key, hash_keys
from keygrouping.measure import lambda_
from keygrouping.workload import workload

SEEDS = st.integers(0, 2**53 - 1)
UNEVEN = (7674395345045427, 8777083811791784, 5350085848771761, 1496010377310534)
"""Those of a hundred that put three keys of half a fair share on one worker, and one key or none on another."""


def loads_of(stream: str, seed: int, workers: int = 10) -> list[float]:
    """λ of each of eight intervals of 50,000 events."""
    source = workload(stream, 400_000)
    grouping = create("level-fill", workers, {"seed": seed})
    keys = np.concatenate([chunk.keys for chunk in source.chunks()])
    hashes = source.table.hashes(grouping.seeds)
    found = []
    for number, part in enumerate(np.split(keys, 8)):
        routed = np.concatenate(
            [
                grouping.route_batch(np.take(hashes, batch, axis=0), None, 10.0 * number + at)
                for at, batch in enumerate(np.split(part, 10))
            ]
        )
        found.append(lambda_(np.bincount(routed, minlength=workers)))
    return found


def test_twenty_keys_chosen_to_collide_are_even_under_a_seed_that_the_chooser_did_not_know() -> None:
    assert min(loads_of("colliding", 0)[1:]) > 2
    for seed in (*UNEVEN, *np.random.default_rng(7).integers(1, 2**53, 10).tolist()):
        assert max(loads_of("colliding", seed)[1:]) <= 1.1


@given(st.lists(st.integers(-(2**63), 2**63 - 1)), SEEDS)
def test_scrambling_is_one_to_one(hashes: list[int], seed: int) -> None:
    given = np.array(hashes, np.int64)
    assert restored(scrambled(given, seed), seed).tolist() == hashes
    assert seed or scrambled(given, seed) is given


def test_people_are_told_the_hashes_that_all_know() -> None:
    grouping, keys = create("level-fill", 4, {"seed": 12345}), [b"hot", b"b", b"hot", b"c"] * 500
    for now in range(12):
        grouping.route_batch(hash_keys(keys), None, float(now))
    told = {key.hash for key in grouping.hot(9)}
    assert told == set(hash_keys([b"hot", b"b", b"c"])[:, 0].tolist())
    in_spaces = {int(hashed) for space in grouping.spaces() if space.hashes is not None for hashed in space.hashes}
    assert in_spaces == told and "hot" in {grouping.explain(b"hot").space}
    assert isinstance(grouping, Filled)
    filling = grouping.filling(9)
    assert filling is not None and hash_key(b"hot") in {key.hash for key in filling.keys}


def test_what_was_learned_under_another_seed_is_of_no_use() -> None:
    one, other = (create_shared("level-fill", 4, {"seed": seed}) for seed in (1, 2))
    one.route_batch(hash_keys([b"a", b"b"] * 100), None, 1.0)
    statistics = one.statistics(10.0)
    plan = one.plan([statistics])
    with pytest.raises(ValueError, match="another seed"):
        other.plan([statistics])
    with pytest.raises(ValueError, match="another seed"):
        other.apply(plan)
    with pytest.raises(ValueError, match="another seed"):
        other.restore(one.snapshot())
    assert not other.adopt(one) and other.epoch > one.epoch
