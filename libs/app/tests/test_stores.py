"""What every store of states does, and that its memory is bounded where it is on disk."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping_app.kept import Kept, UnusableStateError
from keygrouping_app.stores import ALL, DiskStore, MemoryStore, Store


def length(key: bytes) -> int:
    """In place of an input that has the key."""
    return len(key)


STORES: list[Callable[[], Store]] = [lambda: MemoryStore(timed=True), DiskStore]
OF_SEVERAL: list[Callable[[], Store]] = [
    lambda: MemoryStore(timed=True, source_of=length),
    lambda: DiskStore(source_of=length),
]


@pytest.fixture(params=STORES, ids=["memory", "disk"])
def store(request: pytest.FixtureRequest) -> Iterator[Store]:
    made: Store = request.param()
    yield made
    made.close()


keys = st.sampled_from([b"", b"a", b"b", b"\x00\xff", b"long" * 50])
kepts = st.none() | st.builds(Kept, st.binary(max_size=20), st.integers(0, 50), st.integers(1, 3))
steps = st.lists(st.tuples(keys, kepts) | st.tuples(st.integers(0, 55), st.integers(1, 4)))


@pytest.mark.parametrize("count", [0, 1, 9, 10, 11, 19, 1000])
def test_a_sample_is_of_all_that_is_there(store: Store, count: int) -> None:
    there = [b"%d" % number for number in range(count)]
    for key in there:
        store.put(key, Kept(b"", 0, 1))
    found = store.sample(10)
    assert len(found) == len(set(found)) == min(10, count)
    assert set(found) <= set(there)
    if count == 1000:
        assert max(map(int, found)) >= 900, "those that were changed first are no sample"


@pytest.mark.parametrize("make", STORES, ids=["memory", "disk"])
@given(steps)
def test_it_is_a_dictionary_that_knows_its_size_and_its_oldest(
    make: Callable[[], Store], steps: list[tuple[bytes, Kept | None] | tuple[int, int]]
) -> None:
    store, model = make(), dict[bytes, Kept]()
    for first, second in steps:
        if isinstance(first, bytes):
            assert second is None or isinstance(second, Kept)
            store.put(first, second)
            model.pop(first, None)
            if second is not None:
                model[first] = second
        else:
            assert isinstance(second, int)
            old = sorted((kept.time, key) for key, kept in model.items() if kept.time < first)
            found = store.before(first, second)
            assert [model[key].time for key in found] == [time for time, _ in old][:second]
            assert len(set(found)) == len(found)
        assert dict(store.items()) == model
        assert len(store) == len(model)
        assert store.size == sum(len(key) + len(kept.data) for key, kept in model.items())
        assert [store.get(key) for key in model] == list(model.values())
        assert sorted(store.keys()) == sorted(model)
        assert {key: store.length(key) for key in [*model, b"nobody"]} == {
            **{key: len(kept.data) for key, kept in model.items()},
            b"nobody": None,
        }
    store.close()


@pytest.mark.parametrize("make", OF_SEVERAL, ids=["memory", "disk"])
@given(st.lists(st.tuples(keys, kepts)), st.integers(0, 55), st.integers(1, 4))
def test_the_oldest_of_each_source_are_known(
    make: Callable[[], Store], puts: list[tuple[bytes, Kept | None]], time: int, most: int
) -> None:
    store = make()
    for key, kept in puts:
        store.put(key, kept)
    for _ in range(2):
        for source in {0, 1, 2, 200, 7}:
            old = sorted(kept.time for key, kept in store.items() if len(key) == source and kept.time < time)
            found = store.before(time, most, source)
            assert {len(key) for key in found} <= {source}
            times = {key: kept.time for key, kept in store.items()}
            assert [times[key] for key in found] == old[:most]
    store.close()


def test_those_that_were_changed_first_come_first(store: Store) -> None:
    for key, time in ((b"a", 0), (b"a", 1), (b"b", 0)):
        store.put(key, Kept(b"", time, 1))
    assert store.before(2, 1) == [b"b"]
    assert store.before(2, 2) == [b"b", b"a"]


def test_what_is_not_there_is_none(store: Store) -> None:
    assert store.get(b"k") is None
    store.put(b"k", None)
    assert len(store) == store.size == 0
    assert store.before(100, 10) == []


def test_a_key_that_comes_and_goes_takes_no_memory() -> None:
    store = MemoryStore(timed=True)
    for time in range(1000):
        store.put(b"k", Kept(b"1", time, 1))
        store.put(b"k", None)
    assert store._entries == len(store._times[ALL]) == 1


def resident() -> int:
    """Bytes of this process in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_keys_that_are_gone_take_no_memory_where_nobody_asks_for_the_oldest() -> None:
    """As in a standby copy, which ends no state by its age."""
    store = MemoryStore(timed=True)
    for number in range(100_000):
        store.put(b"%d" % number, Kept(b"", number, 1))
        if number >= 60:
            store.put(b"%d" % (number - 60), None)
    assert len(store) == 60
    assert store._entries <= 2000 and len(store._queued) <= 2000
    assert len(store._times[ALL]) == store._entries
    assert store.before(99_950, 100) == [b"%d" % number for number in range(99_940, 99_950)]


def test_the_oldest_are_known_while_entries_in_vain_are_forgotten() -> None:
    store = MemoryStore(timed=True)
    for number in range(3000):
        store.put(b"%d" % number, Kept(b"", number, 1))
    for number in range(5):
        store.put(b"%d" % number, Kept(b"", 10 + number, 1))
    for number in range(5, 3000):
        store.put(b"%d" % number, None)
    assert store.before(2900, 500) == [b"%d" % number for number in range(5)]
    assert store._entries == sum(map(len, store._times.values())) <= 10


def test_states_on_disk_take_little_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And their file is gone as soon as it is open: nothing is left behind by a crash."""
    monkeypatch.setenv("SQLITE_TMPDIR", str(tmp_path))
    store = DiskStore()
    data = os.urandom(10_000)
    before = resident()
    for number in range(6000):
        store.put(b"%d" % number, Kept(data, number, 1))
    assert store.size > 60_000_000
    assert resident() - before < 30 << 20
    assert list(tmp_path.iterdir()) == []
    assert store.get(b"0") == Kept(data, 0, 1)
    assert store.get(b"5999") == Kept(data, 5999, 1)
    store.close()
    assert list(tmp_path.iterdir()) == []


def test_a_disk_without_room_says_what_to_do() -> None:
    store = DiskStore()
    store._base.execute("PRAGMA max_page_count=4")
    with pytest.raises(UnusableStateError, match=r"full.*SQLITE_TMPDIR"):
        for number in range(100):
            store.put(b"%d" % number, Kept(os.urandom(10_000), 0, 1))
    store.close()
