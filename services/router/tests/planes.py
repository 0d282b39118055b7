"""Control planes without Kafka, on a clock that tests turn, and traffic for them."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
from keygrouping_router.api.control_plane import ControlPlane
from keygrouping_router.data.usable import Routed, Usable
from keygrouping_router.replica import new_replica
from keygrouping_router.settings import RouterSettings
from keygrouping_router.times import Times
from keygrouping_service.records.columns import Columns
from keygrouping_service.store import MOST_BYTES, Entry, LogRecord, Store, Unavailable
from keygrouping_service.store.memory import MemoryStore

START = 1_700_000_000.0


class FakeTime:
    """A steady and a wall clock that stand still until they are turned."""

    def __init__(self) -> None:
        self.passed = 0.0

    def times(self) -> Times:
        return Times(lambda: self.passed, lambda: START + self.passed)


class Unsteady(MemoryStore):
    """A store that can be taken away, and be slow on the way."""

    def __init__(self, time: FakeTime) -> None:
        super().__init__(clock=lambda: time.passed)
        self.away = False

    async def tail(self, log: str, limit: int, most: int = MOST_BYTES) -> list[Any]:
        await self._check()
        return await super().tail(log, limit, most)

    async def _check(self) -> None:
        if self.away:
            await asyncio.sleep(0.01)
            raise Unavailable("it is away")

    async def get(self, document: str, most: int = MOST_BYTES, newer_than: Entry | None = None) -> Entry | None:
        await self._check()
        return await super().get(document, most, newer_than)

    async def put(self, document: str, value: Any, *, expected: int, record: LogRecord | None = None) -> Entry:
        await self._check()
        return await super().put(document, value, expected=expected, record=record)

    async def publish(self, presence: str, member: str, value: Any, ttl: float) -> None:
        await self._check()
        await super().publish(presence, member, value, ttl)

    async def published(self, presence: str, most: int = MOST_BYTES) -> dict[str, Any]:
        await self._check()
        return await super().published(presence, most)

    async def lease(self, name: str, owner: str, ttl: float) -> bool:
        await self._check()
        return await super().lease(name, owner, ttl)


def settings_of(**changes: Any) -> RouterSettings:
    values: dict[str, Any] = {
        "bootstrap_servers": "unused:9092",
        "job": '{"aggregates": [{"name": "events", "op": "count"}]}',
        "workers": 10,
        "replica": "r0",
        **changes,
    }
    values["grouping_settings"] = json.dumps(values.get("grouping_settings", {}))
    return RouterSettings(**values)


def new_plane(store: Store, time: FakeTime, most_workers: int = 64, **settings: Any) -> ControlPlane:
    given = settings_of(**settings)
    return ControlPlane(new_replica(given, store, most_workers, times=time.times()), given.max_batch)


def usable_of(keys: Sequence[bytes]) -> Usable:
    return Usable(Columns.of("e", 0, ()), list(keys), np.zeros(len(keys), np.int64))


def route(plane: ControlPlane, keys: Sequence[bytes], now: float) -> Routed:
    return route_batch(plane, usable_of(keys), now)


def route_batch(plane: ControlPlane, usable: Usable, now: float) -> Routed:
    """As the data path does."""
    routed = plane.replica.active.route(usable, now)
    plane.replica.traffic.record(usable, routed, now)
    return routed


async def end_interval(planes: Sequence[ControlPlane], time: FakeTime) -> None:
    """All of them follow the control document until they know of each other, and then end an interval together."""
    for _ in range(2):
        await asyncio.gather(*(plane.replica.follow() for plane in planes))
    number = math.floor((START + time.passed) / planes[0].replica.interval)
    await asyncio.gather(*(plane.replica.end_interval(number) for plane in planes))


@cache
def skewed(events: int, hot: float, seed: int, keys: int = 1000) -> list[bytes]:
    """Events of which this part has one key, and the others keys by a Zipf law."""
    random = np.random.default_rng(seed)
    weights = 1 / np.arange(1, keys + 1)
    numbers = random.choice(keys, events, p=weights / weights.sum())
    numbers[random.random(events) < hot] = keys
    names = [b"key-%d" % number for number in range(keys + 1)]
    return [names[number] for number in numbers.tolist()]
