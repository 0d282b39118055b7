"""The hash is a fixed function of the bytes, whichever way it is computed."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.hashing import SECOND_SEED, SEED, hash_key, hash_keys, worker_of

GOLDEN = {
    "Turkey": (-427684801386502345, 7979424307051361886, 5, 6),
    "key1": (-7181174809767792892, 8336732113958081839, 2, 9),
    "": (-6841345300810786470, -4666168469225958328, 0, 8),
    "a": (-1386432361844448426, 7079672679099236332, 6, 2),
    "Afghanistan": (5846224766063328213, -5462568596507215696, 3, 6),
    "çığ": (8933876112606838027, 7073738119793764974, 7, 4),
}


@pytest.mark.parametrize(("key", "golden"), GOLDEN.items())
def test_golden_hashes_and_workers(key: str, golden: tuple[int, int, int, int]) -> None:
    hashes = [hash_key(key, seed) for seed in (SEED, SECOND_SEED)]
    assert (*hashes, *(worker_of(hashed, 10) for hashed in hashes)) == golden
    assert hash_key(key.encode()) == hashes[0]


@given(st.lists(st.binary(max_size=70), max_size=20), st.lists(st.integers(0, 2**32 - 1), max_size=3).map(tuple))
def test_many_keys_hash_as_each_alone(keys: list[bytes], seeds: tuple[int, ...]) -> None:
    hashes = hash_keys(keys, seeds)
    assert hashes.shape == (len(keys), len(seeds)) and hashes.dtype == np.int64
    assert hashes.tolist() == [[hash_key(key, seed) for seed in seeds] for key in keys]


@given(st.integers(-(2**63), 2**63 - 1), st.integers(1, 1000))
def test_every_hash_has_a_worker(hashed: int, workers: int) -> None:
    assert 0 <= worker_of(hashed, workers) < workers
