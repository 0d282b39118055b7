"""What the API shows of the control document: settings, groupings and workers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

from keygrouping.grouping import Description, Filling, create, describe, live_names
from keygrouping.measure import lambda_

from keygrouping_router.api.shapes import (
    AvailableGrouping,
    FillingReport,
    GroupingReport,
    OverridesReport,
    PlannedKey,
    PlannedMember,
    PlannedWorker,
    Setting,
    SettingDescription,
    Thresholds,
    WorkerReport,
    WorkersReport,
)
from keygrouping_router.control.overrides import report_of
from keygrouping_router.control.state import INTERVAL, Control
from keygrouping_router.knowledge.balance import Loads, capacities_of
from keygrouping_router.naming import named


def thresholds_of(control: Control, version: int, interval: float) -> Thresholds:
    """The settings of the configured grouping; `interval`: seconds between two plans unless it is set."""
    return Thresholds(grouping=control.grouping, version=version, settings=settings_of(control, interval))


def settings_of(control: Control, interval: float) -> list[Setting]:
    """All settings that may be set now, with their values."""
    described = [
        entry._replace(default=interval) if control.planned_in_rounds and entry.name == INTERVAL else entry
        for entry in control.tunable
    ]
    return [
        Setting(**_described(entry), value=_plain(control.settings.get(entry.name, entry.default)))
        for entry in described
    ]


def grouping_of(control: Control, version: int, epoch: int) -> GroupingReport:
    """The configured grouping and all others."""
    return GroupingReport(
        name=control.grouping,
        settings=control.settings,
        version=version,
        epoch=epoch,
        sharing=control.sharing,
        observe_only=control.observe_only,
        available=list(available()),
    )


@cache
def available() -> tuple[AvailableGrouping, ...]:
    """All groupings, each with its meaning in one line."""
    return tuple(
        AvailableGrouping(
            name=name,
            meaning=_meaning(name),
            settings=[SettingDescription(**_described(entry)) for entry in describe(name)],
        )
        for name in live_names()
    )


def workers_of(
    control: Control, version: int, epoch: int, loads: Loads, lags: Mapping[int, int] | None, most: int
) -> WorkersReport:
    """All workers: `loads` are those in use, `lags` None if they are not known."""
    capacities = capacities_of(control.capacity_by_worker, most)
    due = float(capacities[: control.workers].sum())
    total = float(loads.sum())
    items = []
    for worker in range(most):
        load = float(loads[worker]) if worker < len(loads) else 0.0
        capacity = float(capacities[worker])
        ideal = total * capacity / due
        lag = None if lags is None else lags.get(worker, 0)
        active = worker < control.workers
        items.append(
            WorkerReport(
                worker=worker,
                state="active" if active else "draining" if lag else "unused",
                load=load,
                share=load / total if total else 0.0,
                load_of_ideal=load / ideal if ideal and active else 0.0,
                capacity=capacity,
                lag=lag,
            )
        )
    return WorkersReport(
        workers=control.workers,
        mode="auto" if control.auto else "fixed",
        max_workers=most,
        total_lag=None if lags is None else sum(lags.values()),
        items=items,
        lambda_=lambda_(loads, capacities_of(control.capacity_by_worker, len(loads))),
        epoch=epoch,
        version=version,
    )


def overrides_of(control: Control, version: int, epoch: int) -> OverridesReport:
    """All overrides of keys."""
    items = [report_of(entry, control.layout) for entry in control.overrides]
    return OverridesReport(items=items, version=version, epoch=epoch)


def filling_of(filling: Filling, name: Callable[[int], bytes | None], numbers: Sequence[int]) -> FillingReport:
    """How a plan fills the workers; `name` knows keys by their hashes, `numbers` those of the grouping's workers."""
    columns = (filling.fair, filling.light, filling.hot, filling.room, filling.filled)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return FillingReport(
        level=filling.level,
        workers=[
            PlannedWorker(worker=numbers[worker], fair=fair, light=light, hot=hot, room=room, filled=filled)
            for worker, (fair, light, hot, room, filled) in enumerate(rows)
        ],
        hot_keys=filling.hot_keys,
        keys=[
            PlannedKey(
                **named(name(key.hash), key.hash),
                share=key.share,
                members=[PlannedMember(worker=numbers[worker], share=share) for worker, share in key.members],
            )
            for key in filling.keys
        ],
    )


def _described(entry: Description) -> dict[str, Any]:
    return {**entry._asdict(), "default": _plain(entry.default)}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _meaning(name: str) -> str:
    """The first line of the module that the grouping stands in, which says what it does."""
    text = sys.modules[type(create(name, 1)).__module__].__doc__ or ""
    return text.strip().splitlines()[0]
