"""Laws of the producers' partitioner."""

import itertools
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keygrouping.grouping import GroupingError, create, live_names
from keygrouping.partitioner import Partitioner

keys = st.lists(st.binary(max_size=3), max_size=50)


@pytest.mark.parametrize("name", ["pkg", "w-choices", "level-fill"])
@given(keys, st.lists(st.integers(0, 99), min_size=1, max_size=8, unique=True))
@settings(max_examples=20, deadline=None)
def test_it_decides_as_its_grouping_among_the_partitions_there_are(
    name: str, keys: list[bytes], partitions: list[int]
) -> None:
    clock, now = itertools.count(7), itertools.count(7)
    choose, grouping = Partitioner(name, clock=lambda: next(clock)), create(name, len(partitions))
    chosen = [choose(key, partitions, partitions[:1]) for key in keys]
    assert chosen == [partitions[grouping.route(key, now=next(now))] for key in keys]


def test_its_grouping_is_told_the_time_every_millisecond() -> None:
    now = iter([5.0, 5.0004, 5.0015, 5.002, 5.003])
    choose, grouping = Partitioner("level-fill", clock=lambda: next(now)), create("level-fill", 3)
    chosen = [choose(b"key", range(3)) for _ in range(5)]
    assert chosen == [grouping.route(b"key", now=told) for told in (5.0, 5.0, 5.0015, 5.0015, 5.003)]
    (choice,) = choose._choices.values()
    assert choice.grouping.snapshot() == grouping.snapshot()


@pytest.mark.parametrize("name", live_names())
def test_a_record_takes_a_fraction_of_what_route_takes(name: str) -> None:
    """2 µs or less, where `route` takes up to 19; here only that it is not that."""
    choose, grouping = Partitioner(name, clock=lambda: 0.0), create(name, 10)
    sent, partitions = [b"%d" % (n * n % 1009) for n in range(5000)], range(10)

    def per_record(route: Callable[[bytes], object]) -> float:
        spent = []
        for _ in range(4):
            began = time.thread_time()
            for key in sent:
                route(key)
            spent.append(time.thread_time() - began)
        return min(spent) / len(sent)

    most = max(5e-6, per_record(grouping.route) / 2)
    assert per_record(lambda key: choose(key, partitions)) < most


def test_it_is_there_before_its_kernels_are(tmp_path: Path) -> None:
    code = (
        "import time; from keygrouping.partitioner import Partitioner; began = time.perf_counter();"
        "choose = Partitioner('dkg'); there = time.perf_counter() - began;"
        "choose(b'key', range(3)); ready = time.perf_counter() - began; print(there, ready)"
    )
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}
    out = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    there, ready = map(float, out.stdout.split())
    assert there < ready / 2


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
