"""Draws have exactly the probabilities that are asked for; tables give each key one place."""

import itertools
import math
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from keygrouping.hashing import hash_keys
from keygrouping.workload.popularity import Choice, Zipf, exponent, harmonic, power_sum
from keygrouping.workload.table import FixedKeys, NamedKeys, NumberedKeys


class Grid:
    """In place of a generator: numbers that are spread evenly over 0 to 1."""

    def random(self, size: int) -> Any:
        return (np.arange(size) + 0.5) / size


@given(st.lists(st.floats(0, 1e6) | st.integers(0, 3).map(float), min_size=1, max_size=60).filter(lambda w: sum(w) > 1))
@example([0.0, 0.0, 1.0, 1.0])
def test_a_choice_has_the_probabilities_of_its_weights(weights: list[float]) -> None:
    size = 1 << 14
    drawn = Choice(np.array(weights)).draw(cast(np.random.Generator, Grid()), size)
    counts = np.bincount(drawn, minlength=len(weights))
    assert len(counts) == len(weights)
    assert np.allclose(counts / size, np.array(weights) / sum(weights), atol=2 * len(weights) / size)


@pytest.mark.parametrize("z", [0.0, 0.5, 1.0, 1.0 + 1e-9, 1.5, 2.0])
@pytest.mark.parametrize("keys", [1, 1_000, 4_096, 100_000])
def test_harmonic_numbers_are_sums(z: float, keys: int) -> None:
    assert harmonic(keys, z) == pytest.approx(math.fsum(rank**-z for rank in range(1, keys + 1)), rel=1e-12)
    if keys > 1_000:
        assert power_sum(1_000, keys, z) == pytest.approx(math.fsum(r**-z for r in range(1_000, keys)), rel=1e-11)


@pytest.mark.parametrize("z", [0.0, 0.3, 0.8, 1.0, 1.4, 2.0])
@pytest.mark.parametrize("keys", [1, 10, 32_768, 32_769, 3_000_000])
def test_ranks_are_zipfs(z: float, keys: int) -> None:
    zipf, random, draws = Zipf(z, keys), np.random.default_rng(5), 400_000
    ranks = zipf.draw(random, draws)
    assert ranks.min() >= 1 and ranks.max() <= keys
    edges = np.unique(np.concatenate([np.arange(1, min(keys, 40) + 1), np.geomspace(1, keys, 60).astype(int), [keys]]))
    expected = []
    for low, high in zip(edges, [*edges[1:], keys + 1], strict=True):
        near = math.fsum(rank**-z for rank in range(low, min(high, 1_000)))
        expected.append(near + (power_sum(max(low, 1_000), high, z) if high > max(low, 1_000) else 0))
    probabilities = np.array(expected) / harmonic(keys, z)
    assert probabilities.sum() == pytest.approx(1)
    observed = np.bincount(np.searchsorted(edges, ranks, "right") - 1, minlength=len(edges))
    enough = probabilities * draws > 5
    deviations = (observed - probabilities * draws)[enough] / np.sqrt(probabilities * draws)[enough]
    assert (deviations**2).sum() < len(deviations) + 5 * math.sqrt(2 * len(deviations))
    assert float(zipf.share(1)) == pytest.approx(1 / harmonic(keys, z))


def test_far_ranks_are_zipfs_in_narrow_bins() -> None:
    keys, random, draws = 3_000_000, np.random.default_rng(1), 6_000_000
    zipf = Zipf(1.0, keys)
    ranks = np.concatenate([zipf.draw(random, 1_000_000) for _ in range(draws // 1_000_000)])
    edges = np.geomspace(32_769, keys, 450).astype(int)
    shares = [power_sum(low, high, 1.0) / harmonic(keys, 1.0) for low, high in itertools.pairwise(edges.tolist())]
    expected = draws * np.array(shares)
    observed = np.histogram(ranks, edges)[0]
    assert ((observed - expected) ** 2 / expected).sum() < len(expected) + 4 * math.sqrt(2 * len(expected))


@pytest.mark.parametrize(("keys", "share"), [(2, 0.5), (10, 0.9), (2_900, 0.1), (24_465_830, 0.0932), (1_000, 0.001)])
def test_the_exponent_gives_the_first_rank_its_share(keys: int, share: float) -> None:
    assert 1 / harmonic(keys, exponent(keys, share)) == pytest.approx(share, rel=1e-6)


@given(st.lists(st.lists(st.integers(0, 5_000), max_size=40), max_size=12))
def test_numbered_keys_are_placed_as_they_come(batches: list[list[int]]) -> None:
    table = NumberedKeys(b"n-")
    places: dict[int, int] = {}
    for batch in batches:
        positions = table.positions(np.array(batch, np.int64))
        for number in batch:
            places.setdefault(number, len(places))
        assert positions.tolist() == [places[number] for number in batch]
        assert len(table) == len(places)
    assert [table.name(i) for i in range(len(table))] == [b"n-%d" % number for number in places]


def test_numbered_keys_may_be_far_apart() -> None:
    table = NumberedKeys(b"")
    assert table.positions(np.array([3_000_000, 5, 3_000_000, 0])).tolist() == [0, 1, 0, 2]
    assert [table.name(i) for i in range(3)] == [b"3000000", b"5", b"0"]
    with pytest.raises(IndexError):
        table.name(3)


def test_hashes_grow_with_the_table() -> None:
    table = NamedKeys()
    assert table.hashes((13, 17)).shape == (0, 2)
    words = [b"w%d" % i for i in range(1_000)]
    for stop in (1, 2, 500, 1_000):
        table.positions(words[:stop])
        assert np.array_equal(table.hashes((13, 17)), hash_keys(words[:stop], (13, 17)))
        assert np.array_equal(table.hashes((17,)), hash_keys(words[:stop], (17,)))
    assert table.hashes(()).shape == (1_000, 0)
    assert table.hashes((13,)) is not None and table.positions([b"w7", b"new", b"w7"]).tolist() == [7, 1_000, 7]


def test_fixed_keys_are_there_from_the_begin() -> None:
    table = FixedKeys([b"a", b"b"])
    assert (len(table), table.name(1)) == (2, b"b")
    assert table.positions(np.array([1, 0, 1])).tolist() == [1, 0, 1]
    assert table.hashes((13,)).tolist() == hash_keys([b"a", b"b"]).tolist()
