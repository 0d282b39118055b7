"""What the router's parts are given of the store: each document once, as long as it stands there."""

from __future__ import annotations

from typing import Any

from keygrouping_router import metrics
from keygrouping_router.control.watched_store import Found, Shape, WatchedStore
from keygrouping_service.store.memory import MemoryStore, State


class Reader:
    """Makes a number of a value, and counts how often it is asked to."""

    def __init__(self) -> None:
        self.asked = 0

    def __call__(self, data: Any) -> int:
        self.asked += 1
        return int(data["n"])


def counted() -> float:
    return float(metrics.BAD_STORE_VALUES.labels("plan")._value.get())


async def test_a_document_is_read_once_however_often_it_is_asked_for() -> None:
    store, read = MemoryStore(), Reader()
    watched, shape = WatchedStore(store, lambda: 0.0), Shape("plan", read)
    assert await watched.get("plan", shape) is None
    for version in (1, 2):
        await store.put("plan", {"n": 10 * version}, expected=version - 1)
        found = [await watched.get("plan", shape) for _ in range(20)]
        assert found == [Found(10 * version, version)] * 20
        assert read.asked == version
    assert await watched.get("plan-r1", shape) is None, "each by its own name"
    store._state = State()
    assert await watched.get("plan", shape) is None
    for version in (1, 2):
        await store.put("plan", {"n": -version}, expected=version - 1)
    assert await watched.get("plan", shape) == Found(-2, 2), "the store was emptied, and has got as far again"


async def test_what_is_of_no_use_is_told_each_time() -> None:
    store, read = MemoryStore(), Reader()
    watched, shape = WatchedStore(store, lambda: 0.0), Shape("plan", read, 1000)
    await store.put("plan", {"n": 1}, expected=0)
    await watched.get("plan", shape)
    before = counted()
    for version, bad in enumerate((None, {"n": "x" * 2000}, {}), 1):
        await store.put("plan", bad, expected=version)
        for _ in range(3):
            assert await watched.get("plan", shape) == Found(None, version + 1)
    assert counted() - before == 9
