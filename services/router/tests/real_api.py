"""The API of a control plane that has seen some traffic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from fastapi import FastAPI
from keygrouping_router.api import router_app
from keygrouping_service.store.memory import MemoryStore

from .planes import FakeTime, end_interval, new_plane, route, settings_of, skewed

_STRANGE = [b"\xff\xfe", b"", b"\x00\n", "ü".encode()]


class CaughtUp:
    """Input partitions without a backlog."""

    ready = True
    lags: ClassVar[Mapping[int, int]] = {0: 0}


async def real_app(**given: Any) -> FastAPI:
    """The app of a router after two intervals of skewed traffic, in which there are keys that are no text."""
    time = FakeTime()
    plane = new_plane(MemoryStore(), time, grouping="level-fill")
    plane.watch(CaughtUp())
    await plane.replica.start()
    for _ in range(2):
        route(plane, skewed(2000, 0.3, 1) + _STRANGE * 20, time.passed)
        time.passed += 10
        await end_interval([plane], time)
    return router_app(plane, settings_of(api_rate=0, **given))
