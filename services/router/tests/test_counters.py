"""Counters of the router begin at 0 for all that they will ever count: an alert sees the first increase."""

import importlib
import pkgutil

import keygrouping_router
from keygrouping_router import metrics
from keygrouping_router.control.watched_store import Shape
from keygrouping_service.store.memory import MemoryStore
from prometheus_client import REGISTRY

from .planes import FakeTime, new_plane


def routed(worker: int) -> float | None:
    return REGISTRY.get_sample_value("keygrouping_router_routed_total", {"worker": str(worker)})


async def test_each_worker_has_a_count_before_its_first_event() -> None:
    before = next(worker for worker in range(200, 250) if routed(worker) is None)
    await new_plane(MemoryStore(), FakeTime(), workers=before + 1, most_workers=256).replica.start()
    assert routed(before) == 0


def test_all_kinds_of_values_in_the_store_are_known() -> None:
    modules = [module.name for module in pkgutil.walk_packages(keygrouping_router.__path__, "keygrouping_router.")]
    shapes = [
        value
        for name in modules
        if not name.endswith("__main__")
        for value in vars(importlib.import_module(name)).values()
        if isinstance(value, Shape)
    ]
    assert {shape.kind for shape in shapes} == set(metrics.STORED_KINDS)
