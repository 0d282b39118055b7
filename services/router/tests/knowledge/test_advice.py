"""What the router advises is what happens: dry runs and shadows beside what the change then does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from keygrouping.hashing import hash_key
from keygrouping_router.api.control_plane import ControlPlane
from keygrouping_router.api.shapes import (
    Changes,
    DryRun,
    GroupingChange,
    OverrideChange,
    ShadowChange,
    ShadowGrouping,
    WorkersChange,
)
from keygrouping_router.knowledge.keyspace import KeyQuery
from keygrouping_service.store.memory import MemoryStore
from numpy.typing import NDArray

from ..planes import FakeTime, end_interval, new_plane, route

EVENTS = 12_000
SECONDS = 10.0
TURNS = 20
"""Times in an interval that each partition is read."""
PARTITIONS = 6
STEADY = 14
"""Intervals by which is judged what has happened: twice those for which keys keep their workers after strain."""


def heavy(keys: int, part: float, others: int) -> NDArray[np.float64]:
    weights: NDArray[np.float64] = np.r_[np.full(keys, part / keys), np.full(others, (1 - part) / others)]
    return weights


def zipf(exponent: float, keys: int) -> NDArray[np.float64]:
    weights: NDArray[np.float64] = 1 / np.arange(1, keys + 1) ** exponent
    weights /= weights.sum()
    return weights


STREAMS = {
    "fifteen heavy keys": heavy(15, 0.9, 600),
    "a key with two thirds": heavy(1, 0.68, 1000),
    "country-skew-80": np.r_[0.8 + 0.2 / 204, np.full(203, 0.2 / 204)],
    "three heavy keys": np.r_[0.3, 0.2, 0.1, np.full(1000, 0.4 / 1000)],
    "halves of halves": np.r_[0.5 ** np.arange(1, 12), 0.5**11],
    "no heavy key": np.full(2000, 1 / 2000),
    "a moderate law": zipf(0.8, 3000),
    "Zipf's law": zipf(1.0, 1500),
    "a steep law": zipf(1.4, 1500),
    "a very steep law": zipf(2.0, 400),
}
CLEAR = {"a key with two thirds", "country-skew-80", "three heavy keys", "no heavy key"}
"""Streams without a key that is hot in one interval and not in the next by chance alone."""
SHADOWS = ("key", "pkg", "w-choices", "level-fill")
HEAVIEST = b"key-0"
CHANGES: dict[str, tuple[str, int, Any]] = {
    "W of level-fill": ("level-fill", 16, WorkersChange(workers=6)),
    "W of w-choices": ("w-choices", 5, WorkersChange(workers=9)),
    "W of key": ("key", 12, WorkersChange(workers=5)),
    "capacities": ("level-fill", 8, WorkersChange(workers=8, capacities={"0": 4.0})),
    "a grouping that splits": ("key", 8, GroupingChange(name="level-fill")),
    "a grouping that splits otherwise": ("level-fill", 8, GroupingChange(name="pkg")),
    "thresholds of level-fill": ("level-fill", 8, {"eps": 0.2}),
    "thresholds of w-choices": ("w-choices", 8, {"threshold": 1.5}),
    "a key pinned": ("level-fill", 6, OverrideChange(action="pin", worker=1, seconds=1e6)),
    "a key split": ("key", 6, OverrideChange(action="split", width=3, seconds=1e6)),
}
"""What is changed: the grouping in force, its workers, and the order; that of an override is for the heaviest key."""


class Traffic:
    """Keys drawn by their shares, and read from the partitions in turns."""

    def __init__(self, shares: NDArray[np.float64], seed: int = 1) -> None:
        self._shares = shares
        self._names = [b"key-%d" % number for number in range(len(shares))]
        self._partition = np.array([hash_key(b"p" + name) % PARTITIONS for name in self._names])
        self._random = np.random.default_rng(seed)

    def batches(self) -> Iterator[list[bytes]]:
        """An interval, batch by batch: each of one partition, which may have most of the events or next to none."""
        keys = self._random.choice(len(self._shares), EVENTS, p=self._shares)
        for turn in np.array_split(keys, TURNS):
            for partition in self._random.permutation(PARTITIONS).tolist():
                yield [self._names[key] for key in turn[self._partition[turn] == partition].tolist()]


class Running:
    """A router under this traffic, on a clock that is turned here."""

    def __init__(self, plane: ControlPlane, time: FakeTime, stream: str) -> None:
        self.plane = plane
        self.stream = stream
        self._time = time
        self._traffic = Traffic(STREAMS[stream])
        self.lambdas: list[float] = []
        self.widths: list[Mapping[int, int]] = []

    async def go_on(self, intervals: int) -> None:
        """Routes for so many intervals, as routers do."""
        for _ in range(intervals):
            began = self._time.passed
            for number, batch in enumerate(self._traffic.batches()):
                part = number / (TURNS * PARTITIONS)
                self._time.passed = began + SECONDS * part
                route(self.plane, batch, self._time.passed)
                if number % 4 == 3:
                    await self.plane.replica.check(part)
            self._time.passed = began + SECONDS
            self.widths.append(self.plane.replica.active.widths())
            await end_interval([self.plane], self._time)
            self.lambdas.append((await self.plane.keyspace(KeyQuery(limit=0))).lambda_ or 1.0)

    async def try_(self, order: Any) -> DryRun:
        """Asks what a change would do."""
        match order:
            case WorkersChange():
                return await self.plane.try_workers(order)
            case GroupingChange():
                return await self.plane.try_grouping(order)
            case OverrideChange():
                return await self.plane.try_override(HEAVIEST, order)
        return await self.plane.try_thresholds(order, partial=True)

    async def change(self, order: Any) -> None:
        """Makes the change."""
        match order:
            case WorkersChange():
                await self.plane.set_workers(order, expected=None, by="api")
            case GroupingChange():
                await self.plane.set_grouping(order, expected=None, by="api")
            case OverrideChange():
                await self.plane.set_override(HEAVIEST, order, expected=None, by="api")
            case _:
                await self.plane.set_thresholds(order, partial=True, expected=None, by="api")

    @property
    def lambda_(self) -> float:
        """What λ was on average of the last intervals."""
        return fmean(self.lambdas[-STEADY:])

    def hot_keys(self) -> set[int]:
        """How many were hot in the last intervals: mostly one number, but chance may lie between two."""
        return {len(widths) for widths in self.widths[-STEADY:]}

    @property
    def chance(self) -> int:
        """By how much that can differ from what was to be expected by chance alone."""
        return 0 if self.stream in CLEAR else 1

    def widths_of(self, hashed: int) -> range:
        """How wide a key was in the last intervals: from the least to the most."""
        cold = self.plane.replica.active.cold_width
        widths = [widths.get(hashed, cold) for widths in self.widths[-STEADY:]]
        return range(min(widths), max(widths) + 1)

    def was_hot(self, hashed: int) -> bool:
        """Whether a key was hot in all of the last intervals."""
        return all(hashed in widths for widths in self.widths[-STEADY:])


async def running(stream: str, **settings: Any) -> Running:
    time = FakeTime()
    plane = new_plane(MemoryStore(), time, interval=SECONDS, **settings)
    await plane.replica.start()
    return Running(plane, time, stream)


def changed_width(changes: Changes, hashed: int, was: range, now: range, *, hot: bool) -> None:
    """What is told of a key's width is what it was, before and after; what is not told of did not change.

    How wide keys are that are not `hot`, before or after, is told for all of them. A width that was one of several by
    chance alone may be the next one to these, too.
    """
    told = {hash_key(change.key or ""): change for change in changes.widths}.get(hashed)
    was, now = (range(seen[0] - 1, seen[-1] + 2) if len(seen) > 1 else seen for seen in (was, now))
    cold = changes.cold_width
    if told is not None:
        assert told.before in was and told.after in now, (told, was, now)
    elif hot or not (cold.before in was and cold.after in now):
        assert set(was) & set(now), (was, now)


def is_near(told: float | None, seen: set[int], chance: int) -> bool:
    return told is not None and min(seen) - chance <= told <= max(seen) + chance


@pytest.mark.parametrize("stream", STREAMS)
@pytest.mark.parametrize("change", CHANGES)
async def test_a_dry_run_tells_what_the_change_then_does(change: str, stream: str) -> None:
    grouping, workers, order = CHANGES[change]
    router = await running(stream, grouping=grouping, workers=workers)
    await router.go_on(17)
    hot_before, seen = router.hot_keys(), {hashed for widths in router.widths for hashed in widths}
    changes = (await router.try_(order)).changes
    assert changes.lambda_.before == pytest.approx(router.lambda_, rel=0.03)
    assert is_near(changes.hot_keys.before, hot_before, router.chance)
    was = {hashed: router.widths_of(hashed) for hashed in seen}
    hot = {hashed for hashed in seen if router.was_hot(hashed)}
    await router.change(order)
    await router.go_on(18)
    assert changes.lambda_.after == pytest.approx(router.lambda_, rel=0.03)
    assert is_near(changes.hot_keys.after, router.hot_keys(), router.chance)
    for hashed, width in was.items():
        is_hot = hashed in hot or router.was_hot(hashed)
        changed_width(changes, hashed, width, router.widths_of(hashed), hot=is_hot)


@pytest.mark.parametrize("stream", STREAMS)
async def test_a_dry_run_of_a_shadow_tells_what_the_groupings_then_do(stream: str) -> None:
    router = await running(stream, grouping="shuffle", workers=6)
    await router.go_on(17)
    shadows = [ShadowGrouping(name=name) for name in SHADOWS]
    in_force, *compared = (await router.plane.try_shadow(ShadowChange(groupings=shadows))).groupings
    assert in_force.lambda_ == pytest.approx(router.lambda_, rel=0.03)
    for result in compared:
        await router.change(GroupingChange(name=result.name))
        await router.go_on(17)
        assert result.lambda_ == pytest.approx(router.lambda_, rel=0.03), result.name
        assert is_near(result.hot_keys, router.hot_keys(), router.chance), result.name


@pytest.mark.parametrize("stream", STREAMS)
async def test_a_shadow_tells_what_the_grouping_then_does(stream: str) -> None:
    router = await running(stream, grouping="shuffle", workers=6)
    shadows = [ShadowGrouping(name=name) for name in SHADOWS]
    await router.plane.set_shadow(ShadowChange(groupings=shadows), expected=None, by="api")
    await router.go_on(17)
    report = await router.plane.shadow()
    assert report.groupings[0].lambda_ == router.lambdas[-1]
    in_force, *compared = report.run
    assert in_force.events == 17 * EVENTS
    for result in compared:
        await router.change(GroupingChange(name=result.name))
        await router.go_on(17)
        assert result.lambda_ == pytest.approx(router.lambda_, rel=0.03), result.name
        assert is_near(result.hot_keys, router.hot_keys(), router.chance), result.name
