"""Laws of the producers' partitioner."""

import itertools
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.grouping import GroupingError, create
from keygrouping.partitioner import Partitioner

keys = st.lists(st.binary(max_size=3), max_size=50)


@given(keys, st.lists(st.integers(0, 99), min_size=1, max_size=8, unique=True))
def test_it_decides_as_its_grouping_among_the_partitions_there_are(keys: list[bytes], partitions: list[int]) -> None:
    choose, grouping = Partitioner("pkg", clock=lambda: 7.0), create("pkg", len(partitions))
    chosen = [choose(key, partitions, partitions[:1]) for key in keys]
    assert chosen == [partitions[grouping.route(key, now=7.0)] for key in keys]


def test_a_hot_key_is_spread_and_others_stay() -> None:
    now = iter(range(10_000))
    choose = Partitioner(clock=lambda: next(now) / 100)
    seen = Counter((key, choose(key, range(4))) for n in range(4000) for key in (b"hot", b"cold-%d" % (n % 40)))
    workers = Counter(key for key, _ in seen)
    assert workers[b"hot"] >= 2
    loads = Counter(partition for (_, partition) in seen.elements())
    assert max(loads.values()) <= 1.1 * 8000 / 4


def test_records_without_key_go_round_robin_over_the_available_partitions() -> None:
    choose = Partitioner("key")
    assert [choose(None, [0, 1, 2, 3], [1, 3]) for _ in range(4)] == [1, 3, 1, 3]
    assert {choose(None, [0, 1, 2, 3], []) for _ in range(4)} == {0, 1, 2, 3}


def test_topics_with_other_numbers_of_partitions_do_not_disturb_each_other() -> None:
    mixed, alone = Partitioner("pkg", clock=lambda: 0.0), Partitioner("pkg", clock=lambda: 0.0)
    sent = [b"%d" % (n % 7) for n in range(200)]
    both = [(mixed(key, range(5)), mixed(key, range(2))) for key in sent]
    assert [five for five, _ in both] == [alone(key, range(5)) for key in sent]


def test_threads_may_share_one() -> None:
    choose = Partitioner("pkg", clock=lambda: 0.0)
    with ThreadPoolExecutor(4) as pool:
        chosen = list(pool.map(lambda _: [choose(b"hot", range(2)) for _ in range(500)], range(4)))
    assert Counter(itertools.chain(*chosen)) == {0: 1000, 1: 1000}


def test_wrong_names_and_settings_are_told_at_once() -> None:
    with pytest.raises(GroupingError, match="unknown grouping 'nope'"):
        Partitioner("nope")
    with pytest.raises(GroupingError, match="choices"):
        Partitioner("pkg", {"choices": 0})
