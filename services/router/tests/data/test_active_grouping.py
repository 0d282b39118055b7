"""Laws of the change of routing in mid-stream, and of which plans are followed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from keygrouping.grouping.level_fill import LevelFill
from keygrouping_router.api.shapes import GroupingChange
from keygrouping_router.control.groupings import prepared
from keygrouping_router.control.state import Control
from keygrouping_router.data.active_grouping import ActiveGrouping
from keygrouping_router.planning.format import plan_from_data, plan_to_data
from keygrouping_router.planning.rounds import DOCUMENT
from keygrouping_service.store.memory import MemoryStore

from ..planes import FakeTime, end_interval, new_plane, route, skewed, usable_of


def active(**changes: Any) -> ActiveGrouping:
    return ActiveGrouping(Control(**{"grouping": "w-choices", "workers": 10, **changes}))


def spread(by: ActiveGrouping, seed: int = 1) -> int:
    """Routes skewed traffic; the number of workers that its hottest key is spread over."""
    by.route(usable_of(skewed(4000, 0.5, seed)), float(seed))
    return by.grouping.explain(b"key-1000").width


def test_what_was_learned_is_kept_by_the_same_grouping_and_not_by_another() -> None:
    by = active()
    assert spread(by) == 10
    for changes in ({"workers": 20}, {"settings": {"threshold": 0.5}, "generation": 1}):
        by.follow(replace(by.control, **changes))
        assert by.grouping.explain(b"key-1000").width == 20
    by.follow(replace(by.control, grouping="dkg", settings={}, generation=2))
    assert by.grouping.explain(b"key-1000").width == 2


def test_a_grouping_made_ready_beforehand_is_the_one_that_routes() -> None:
    by, control = active(grouping="key"), Control(grouping="pkg", workers=3, generation=1)
    fresh = prepared(control)
    by.follow(control, fresh)
    assert by.grouping is fresh and by.grouping.workers == 3


def test_a_plan_with_a_hot_key_is_made_before_the_first_one_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    hot = []
    plan = LevelFill.plan

    def noted(self: LevelFill, statistics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        made = plan(self, statistics)
        hot.append(made["hot_keys"])
        return made

    monkeypatch.setattr(LevelFill, "plan", noted)
    prepared(Control(grouping="level-fill", workers=3))
    assert hot == [1]


def test_an_epoch_that_rose_after_it_was_told_of_does_not_go_back() -> None:
    by = active()
    for seed in range(5):
        spread(by, seed)
    before = by.epoch
    assert before > 1
    by.follow(replace(by.control, workers=5, base=1))
    assert by.epoch == before + 1
    by.follow(replace(by.control, workers=6, base=100))
    assert by.epoch == 100
    by.follow(replace(by.control, sample=0.5))
    assert by.epoch == 100, "nothing of the routing has changed"
    by.not_below(120)
    by.not_below(110)
    assert by.epoch == 120


def test_a_plan_that_is_not_above_the_one_before_it_is_ignored() -> None:
    by = active(sharing="shared", base=40)
    spread(by)
    statistics = by.statistics(1.0)
    assert statistics is not None and by.planned_in_rounds
    plan = by.grouping.plan([statistics])  # type: ignore[attr-defined]
    assert not by.apply(39, plan), "from before the change that brought this base"
    assert by.widths() == {}
    assert by.apply(50, plan)
    assert by.epoch == 50 and by.widths() != {}
    assert not by.apply(50, {**plan, "keys": []})
    assert by.widths() != {}


@pytest.mark.parametrize(("planned", "after"), [(49, 50), (50, 50), (51, 51)])
def test_a_plan_is_taken_whose_epoch_a_partition_has_brought_before(planned: int, after: int) -> None:
    by = active(sharing="shared")
    spread(by)
    plan = by.grouping.plan([by.statistics(1.0)])  # type: ignore[attr-defined]
    by.not_below(50)
    assert by.apply(planned, plan)
    assert by.epoch == after and by.widths() != {}


async def test_a_plan_for_another_grouping_is_not_followed() -> None:
    time, store = FakeTime(), MemoryStore()
    plane = new_plane(store, time, grouping="w-choices", sharing="shared")
    await plane.replica.start()
    route(plane, skewed(4000, 0.5, 1), 0.0)
    time.passed = 10.0
    await end_interval([plane], time)
    entry = await store.get(DOCUMENT)
    assert entry is not None
    plan = plan_from_data(entry.value)
    assert plane.replica.active.widths()
    await plane.set_grouping(GroupingChange(name="dkg"), expected=None, by="api")
    data = plan_to_data(plan)
    late = {**data, "content": dict(plan.content), "record": {**data["record"], "epoch": 1000}}
    await store.put(DOCUMENT, late, expected=entry.version)
    await plane.replica.rounds.adopt()
    assert plane.replica.epoch < 1000 and plane.replica.active.widths() == {}


async def test_time_passes_from_plan_to_plan() -> None:
    """A key may be widened once in each check interval: repeatedly, if that is shorter than the rounds."""
    time = FakeTime()
    settings = {"warm_up": 1.0, "teenage_interval": 5.0, "old_interval": 10.0, "check_interval": 5.0}
    plane = new_plane(MemoryStore(), time, grouping="dkg", sharing="shared", grouping_settings=settings, workers=20)
    await plane.replica.start()
    widths = []
    for _ in range(6):
        for _ in range(10):
            time.passed += 1
            route(plane, skewed(2000, 0.5, 1), time.passed)
        await end_interval([plane], time)
        widths.append(plane.replica.active.explain(b"key-1000").width)
    assert widths == sorted(widths) and widths[-1] >= widths[0] + 2, "one more in each of several rounds"


@pytest.mark.parametrize("grouping", ["key", "shuffle", "pkg", "dkg", "w-choices", "mixed"])
def test_all_events_go_to_the_workers_in_use_before_and_after_a_change(grouping: str) -> None:
    by = active(grouping=grouping)
    for workers in (10, 50, 7, 1):
        by.follow(replace(by.control, workers=workers))
        routed = by.route(usable_of(skewed(4000, 0.2, workers)), float(workers)).workers
        assert routed.min() >= 0 and routed.max() < workers
        assert len(np.unique(routed)) == workers
