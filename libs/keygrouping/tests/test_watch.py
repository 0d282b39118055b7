"""A stream that goes on for good: what is advised is what then happens, and what is old is forgotten."""

import tracemalloc
import zlib
from collections.abc import Sequence

import numpy as np
import pytest
from keygrouping.grouping import Planned
from keygrouping.hashing import SEED, hash_keys
from keygrouping.inspection import Batch, Ceiling, KeyNaming, Split, Tried, Watch
from keygrouping.inspection.scaling import useful_consumers, work_of, works_like
from keygrouping.inspection.top_keys import HeavyKey
from keygrouping.measure import lambda_
from keygrouping.simulate import create_sources
from numpy.typing import NDArray

PARTITIONS = 12
RATE = 2000
"""Events a second."""


def skewed(seed: int, count: int, hot: dict[bytes, float]) -> list[bytes]:
    """Keys of which some have these shares, the others being alike."""
    chance = np.random.default_rng(seed)
    names = [*hot, *(b"key-%d" % number for number in range(2000))]
    shares = [*hot.values(), *((1 - sum(hot.values())) / 2000 for _ in range(2000))]
    return [names[place] for place in chance.choice(len(names), count, p=shares)]


def partition_of(key: bytes, partitions: int) -> int:
    return zlib.crc32(key) % partitions


def batch(keys: Sequence[bytes], partitions: int = PARTITIONS) -> tuple[Batch, NDArray[np.int64]]:
    placed = np.array([partition_of(key, partitions) for key in keys], np.int64)
    return Batch(keys, None, placed), np.bincount(placed, minlength=partitions)


def followed(watch: Watch, seconds: Sequence[Sequence[bytes]], begin: float = 0.0, scale: float = 1.0) -> float:
    """One batch a second; gives the time after it."""
    now = begin
    for keys in seconds:
        watch.advance(now)
        watch.add(*batch(keys), scale)
        now += 1
    watch.advance(now)
    return now


def watched(partitions: int = PARTITIONS, window: float = 60, *, hashed: bool = False) -> Watch:
    watch = Watch([4], KeyNaming(hashed=hashed), window, 5)
    watch.set_partitions(partitions)
    return watch


def stream(seconds: int, hot: dict[bytes, float], seed: int = 1) -> list[list[bytes]]:
    keys = skewed(seed, seconds * RATE, hot)
    return [keys[second * RATE : (second + 1) * RATE] for second in range(seconds)]


@pytest.mark.parametrize("hot", [{b"acme": 0.3}, {b"acme": 0.4, b"beta": 0.15}, {b"k": 0.002}])
def test_what_is_advised_is_what_then_happens(hot: dict[bytes, float]) -> None:
    watch = watched()
    followed(watch, stream(60, hot))
    found = watch.ceiling(20)
    here = found.here
    assert here is not None and here.by_key is not None and here.split is not None
    later = [key for second in stream(60, hot, seed=2) for key in second]
    hashes = hash_keys(later, (SEED,))

    placed = np.bincount([partition_of(key, PARTITIONS) for key in later], minlength=PARTITIONS)
    assert found.works_like == pytest.approx(works_like(placed), rel=0.03)
    for tried in found.tried:
        (by_key,), (splitting,) = (create_sources(name, tried.workers, 1) for name in ("key", "level-fill"))
        loads = np.bincount(by_key.route_batch(hashes, None, 0.0), minlength=tried.workers)
        assert tried.by_key == pytest.approx(lambda_(loads), rel=0.03)
        assert isinstance(splitting, Planned)
        routed = np.zeros(tried.workers)
        for begin in range(0, len(later), 5 * RATE):
            part = hashes[begin : begin + 5 * RATE]
            workers = splitting.route_batch(part, None, begin / RATE)
            if begin:
                routed += np.bincount(workers, minlength=tried.workers)
            splitting.apply(splitting.plan([splitting.statistics()]))
        width = {name: splitting.explain(name).width for name in hot}
        assert tried.split == pytest.approx(lambda_(routed), rel=0.03)
        wide = {name.decode(): found for name, found in width.items() if found > 1}
        assert {split.name: split.width for split in tried.splits} == wide


def test_a_hot_key_of_the_last_hour_is_forgotten() -> None:
    watch = watched(window=60)
    now = followed(watch, stream(60, {b"morning": 0.4}))
    assert watch.ceiling(3).keys[0].name == "morning"
    followed(watch, stream(75, {b"evening": 0.4}, seed=3), now)
    found = watch.ceiling(2000)
    assert found.keys[0].name == "evening" and found.keys[0].share == pytest.approx(0.4, rel=0.03)
    assert "morning" not in {key.name for key in found.keys}
    assert found.here is not None and [each.name for each in found.here.splits] == ["evening"]


def test_when_nothing_comes_any_more_there_is_nothing_to_say() -> None:
    watch = watched(window=60)
    assert watch.ceiling(3).sentences() == ["Nothing came lately: there is nothing to say."]
    now = followed(watch, stream(30, {b"acme": 0.3}))
    watch.advance(now + 1000)
    found = watch.ceiling(3)
    assert (found.events, found.partition_lambda, found.works_like, found.useful_consumers) == (0, None, None, None)
    assert not found.keys and {(each.by_key, each.split) for each in found.tried} == {(None, None)}
    assert found.sentences() == ["Nothing came lately: there is nothing to say."]


def test_partitions_that_are_added_are_tried_as_workers() -> None:
    watch = watched(4)
    assert [each.workers for each in watch.ceiling(3).tried] == [4]
    watch.advance(0)
    watch.add(*batch([b"a", b"b"], 4))
    watch.set_partitions(6)
    watch.add(*batch([b"c"] * 6, 6))
    found = watch.ceiling(3)
    assert [each.workers for each in found.tried] == [4, 6]
    assert sum(found.partitions) == 8 and len(found.partitions) == 6
    assert found.here is not None and found.here.workers == 6


def test_another_topic_of_the_name_begins_with_nothing() -> None:
    watch = watched(12)
    now = followed(watch, stream(23, {b"old": 0.5}))
    watch.forget()
    watch.set_partitions(3)
    watch.add(*batch([b"new"] * 9, 3))
    watch.advance(now + 5)
    found = watch.ceiling(3)
    assert [key.name for key in found.keys] == ["new"] and sum(found.partitions) == 9 and found.events == 9
    assert {each.workers: each.by_key for each in found.tried} == {3: 3, 4: 4}


def test_the_seconds_in_which_keys_are_learned_do_not_count() -> None:
    watch = watched()
    now = followed(watch, stream(5, {b"acme": 0.3}))
    first = watch.ceiling(3).here
    assert first is not None and first.by_key is not None and first.split is None
    assert watch.ceiling(3).sentences()[-1] == "What splitting keys would do is not known yet."
    followed(watch, stream(5, {b"acme": 0.3}, seed=2), now)
    then = watch.ceiling(3).here
    assert then is not None and then.split is not None and then.split < 1.1


def test_records_without_a_key_burden_their_partition_all_the_same() -> None:
    watch = watched(2)
    watch.advance(0)
    weights = np.array([2.0, 4.0])
    watch.add(Batch([b"a", b"b"], weights, np.array([0, 0], np.int64)), np.array([2, 5]))
    found = watch.ceiling(3)
    assert found.partitions == [6.0, 15.0] and found.events == 7
    watch.add(Batch([], None, None), np.array([0, 3]))
    assert watch.ceiling(3).partitions == [6.0, 18.0]


def test_a_topic_without_keys_is_told() -> None:
    watch = watched(2)
    watch.advance(0)
    watch.add(Batch([]), np.array([1, 9]))
    assert watch.ceiling(3).sentences()[-1] == "No key can be seen: the load is spread unevenly by whoever writes it."


def test_each_event_that_was_read_stands_for_those_that_were_not() -> None:
    watch, sampled = watched(), watched()
    now = followed(watch, stream(20, {b"acme": 0.3}))
    followed(sampled, stream(20, {b"acme": 0.3}))
    followed(sampled, [keys[:200] for keys in stream(20, {b"acme": 0.9}, seed=5)], now, scale=10)
    followed(watch, stream(20, {b"acme": 0.9}, seed=6), now)
    whole, part = watch.ceiling(3), sampled.ceiling(3)
    assert part.events == whole.events
    assert part.keys[0].share == pytest.approx(whole.keys[0].share, rel=0.03)
    assert part.works_like == pytest.approx(whole.works_like, rel=0.03)


def test_memory_does_not_grow_with_a_day_of_new_keys() -> None:
    watch = watched()
    chance = np.random.default_rng(7)
    most = []
    tracemalloc.start()
    try:
        now = 0.0
        for _ in range(4):
            for _ in range(20):
                watch.advance(now)
                watch.add(*batch([b"%d" % each for each in chance.integers(1 << 60, size=5000).tolist()]))
                now += 5
            watch.ceiling(20)
            most.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert most[3] < 1.1 * most[1]


def test_consumers_with_whole_partitions_do_what_the_worse_of_the_assignors_lets_them() -> None:
    loads = [6.0, 1, 1, 1, 1, 1, 1]
    assert work_of(loads, 1) == 1
    assert work_of(loads, 2) == pytest.approx(12 / 9)  # ranges: 6+1+1+1; in turn: 6+1+1+1
    assert work_of(loads, 4) == pytest.approx(12 / 7)
    assert work_of(loads, 7) == work_of(loads, 70) == 2
    assert useful_consumers(loads) == 7
    assert useful_consumers([1.0] * 12) == 12
    assert useful_consumers([0, 0, 5.0, 0]) == 1
    assert useful_consumers([50.0, *[0.5] * 99]) == 17  # six partitions each: 52.5 of 99.5


@pytest.mark.parametrize("partitions", [1, 2, 5, 12, 31])
def test_each_partition_has_one_consumer(partitions: int) -> None:
    loads = [1.0] * partitions
    for consumers in range(1, partitions + 1):
        assert work_of(loads, consumers) == pytest.approx(partitions / -(-partitions // consumers))


def test_what_it_says() -> None:
    tried = Tried(12, 3.9, 1.02, "level-fill", [Split("acme", 0.3, 5), Split("beta", 0.1, 2)])
    found = Ceiling(1e6, [30.0, *[6.4] * 11], [HeavyKey("acme", 1, 0.299, 0.301)], [tried])
    assert found.sentences() == [
        "This topic works like 3.3 of 12 workers, one a partition.",
        "Partition 0 has 29.9% of the load: more pods do nothing.",
        "acme alone has 30.0%: unless it is split, any number of workers does the work of 3.3 at most.",
        "Splitting acme 5 wide, beta 2 wide makes it 11.8 of 12 (level-fill), hashing keys 3.1.",
    ]
    wide = Ceiling(1e6, [50.0, *[0.5] * 99], [], [])
    assert wide.sentences()[1] == "Partition 0 has 50.3% of the load: pods beyond 17 do next to nothing."
    even = Ceiling(1e6, [1.0] * 12, [], [])
    assert even.sentences()[1] == "Its partitions are even: more pods do more, up to 12."


def test_names_are_hashes_where_they_are_nobodys_business() -> None:
    watch = watched(hashed=True)
    followed(watch, stream(20, {b"acme": 0.5}))
    found = watch.ceiling(5)
    assert all(key.name.startswith("hash:") for key in found.keys)
    assert "acme" not in str(found)
