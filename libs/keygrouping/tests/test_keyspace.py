"""The KeySpace keeps the paper's order of keys in bounded memory."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.keyspace import BABY, ITEM, OLD, TEENAGE, KeySpace


def space_of(items: list[tuple[int, float, int]], distinct_keys: int = 20) -> KeySpace:
    """A KeySpace that holds (hash, count, space) items."""
    keys = KeySpace(distinct_keys)
    keys.replace(np.array([(h, count, 0.0, float(count), 0.0, 0.0, 2, space) for h, count, space in items], ITEM))
    return keys


def spaces(keys: KeySpace) -> dict[int, set[int]]:
    known = keys.known()
    return {space: {int(h) for h in known["hash"][known["space"] == space]} for space in (BABY, TEENAGE, OLD)}


@dataclass
class PaperSpaces:
    """Algorithms 1 to 3 to the letter, on lists of (hash, count), and the fill of a target that is not full."""

    source: list[tuple[int, float]]
    target: list[tuple[int, float]]

    def promote(self, capacity: int) -> None:
        self.source.sort(key=lambda item: (-item[1], item[0]))
        while len(self.target) < capacity and self.source:
            self.target.append(self.source.pop(0))
        self.target.sort(key=lambda item: (-item[1], -item[0]))
        for _ in range(len(self.target)):
            if not self.source or self.target[-1][1] > self.source[0][1]:
                break
            self.target.insert(0, self.source.pop(0))
            self.source.append(self.target.pop())


counts = st.lists(st.integers(0, 12).map(float), max_size=12)


@given(counts, st.lists(st.integers(0, 12).map(float), max_size=8))
def test_promotion_keeps_what_the_papers_exchange_keeps(young: list[float], grown: list[float]) -> None:
    babies = [(i, count) for i, count in enumerate(young)]
    teenagers = [(100 + i, count) for i, count in enumerate(grown)]
    keys = space_of([(h, c, BABY) for h, c in babies] + [(h, c, TEENAGE) for h, c in teenagers])
    keys.promote_to_teenage()
    heaviest = sorted(babies, key=lambda item: (-item[1], item[0]))[: keys.baby_capacity]
    paper = PaperSpaces(heaviest, teenagers)
    paper.promote(keys.teenage_capacity)
    kept = spaces(keys)
    assert sorted(c for _, c in paper.target) == sorted(keys.known()["count"][keys.known()["space"] == TEENAGE])
    assert kept[BABY] | kept[TEENAGE] == {h for h, _ in paper.source} | {h for h, _ in paper.target}


def test_newcomers_win_ties() -> None:
    keys = space_of([(1, 5.0, OLD), (2, 4.0, OLD), (3, 4.0, TEENAGE), (4, 3.0, TEENAGE)])
    keys.promote_to_old()
    assert spaces(keys) == {OLD: {1, 3}, TEENAGE: {2, 4}, BABY: set()}


def test_capacities_are_10_40_and_50_per_cent() -> None:
    keys = space_of([(h, float(h), BABY) for h in range(1, 200)], 100)
    for expected in ({BABY: 10, TEENAGE: 40, OLD: 0}, {BABY: 0, TEENAGE: 40, OLD: 10}):
        keys.promote_to_teenage()
        assert {space: len(hashes) for space, hashes in spaces(keys).items()} == expected
        keys.promote_to_old()
    assert spaces(keys)[OLD] == set(range(190, 200))


def test_the_unseen_are_forgotten_whatever_their_space() -> None:
    keys = space_of([(1, 5.0, OLD), (2, 4.0, TEENAGE), (3, 3.0, BABY), (4, 9.0, BABY)])
    keys.forget_unseen(4.5)
    assert spaces(keys) == {OLD: {1}, TEENAGE: set(), BABY: {4}}


@given(st.sets(st.integers(-(2**63), 2**63 - 1).map(lambda h: h & ~0xFFF), max_size=60))
def test_every_key_is_found_even_when_all_want_the_same_slot(hashes: set[int]) -> None:
    keys = space_of([(h, 1.0, BABY) for h in hashes])
    assert len(keys) == len(hashes)
    found = [keys.find(h) for h in hashes]
    assert [int(item["hash"]) for item in found if item is not None] == list(hashes)
    assert keys.find(1) is None


@pytest.mark.parametrize("distinct_keys", [10, 100, 100_000])
def test_memory_stays_within_its_bound(distinct_keys: int) -> None:
    keys = KeySpace(distinct_keys)
    assert keys.items.nbytes <= 56 * 4 * (distinct_keys / 2 + max(4096, 2 * distinct_keys))
    assert len(keys.items) >= 2 * keys.limit


@pytest.mark.parametrize(
    "data",
    [
        [[1, 1.0, 0.0, 0.0, 0.0, 0.0, 2, 7]],
        [[1, 1.0, 0.0, 0.0, 0.0, 0.0, 0, 1]],
        [[1, 1.0, 0.0, 0.0, 0.0, 0.0, 2, 1]] * 2,
    ],
)
def test_items_that_cannot_be_are_refused(data: list[list[float]]) -> None:
    with pytest.raises(ValueError, match="key item"):
        KeySpace(10).checked(data, 0.0)
