"""The groupings that a control document asks for: made, tried before they route, and followed by others."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
from keygrouping.grouping import Grouping, Overrides, Planned, create
from keygrouping.hashing import hash_key, hash_keys

from keygrouping_router.control.state import Control
from keygrouping_router.errors import Refused

_HOTTEST = 1000
_ENOUGH = 64
"""Events by which a key is hot for every grouping, so that plans with hot keys are compiled, too."""
_TRIAL_TIMES = (0.0, 100.0, 1e9)
"""Seconds on the clock of a trial: a time in the settings that is too short for it shows in the last one."""


def successor(
    grouping: Grouping, before: Control, after: Control, prepared: Grouping | None = None
) -> tuple[Grouping, bool]:
    """The grouping that follows one when the control document changes, and whether it keeps what that has learned.

    `prepared` is a new grouping made for the document after; the one before is used up.
    """
    if before.routed_by == after.routed_by:
        for workers in after.sizes_after(before.base):
            grouping.resize(workers)
    if after.groups_like(before):
        return grouping, True
    fresh = prepared or new_grouping(after)
    return fresh, fresh.name == grouping.name and fresh.adopt(grouping)


def hot_widths(grouping: Grouping) -> dict[int, int]:
    """The width of each hot key, by its hash; the widest and heaviest of them if they are very many."""
    cold = grouping.cold_width
    return {key.hash: key.width for key in grouping.hot(_HOTTEST) if key.width > cold}


def widths_with(overrides: Overrides, grouping: Grouping) -> dict[int, int]:
    """The same, where keys with an override are as wide as that says."""
    widths = hot_widths(grouping)
    for key, places in overrides.layout.places.items():
        widths.pop(hash_key(key), None)
        if len(places) > grouping.cold_width:
            widths[hash_key(key)] = len(places)
    return widths


def new_grouping(control: Control) -> Grouping:
    """The grouping that routes under this control document."""
    return create(control.routed_by, control.grouped, control.routing_settings)


def prepared(control: Control) -> Grouping:
    """A new grouping, after another one like it has routed, planned and explained; `Refused` if it couldn't.

    Takes seconds at worst, so not for the event loop: all kernels are compiled by it. Otherwise the first batch, or the
    first change, would block the heartbeats for that long.
    """
    try:
        trial = new_grouping(control)
        try_out(trial)
        if isinstance(trial, Planned) and trial.shared:
            statistics = _through_the_store(trial.statistics(_TRIAL_TIMES[-1]))
            trial.apply(_through_the_store(trial.plan([statistics])))
            try_out(trial)
        trial.explain(b"key")  # as each interval's hottest keys are
        new_grouping(control).adopt(trial)
        trial.resize(trial.workers - 1 or 2)
        return new_grouping(control)
    except Exception as error:  # Whatever the grouping raises, it can't be used.
        raise _refused(control.routed_by, error) from error


def try_out(trial: Grouping) -> None:
    """Routes some events of one hot and several light keys; raises if it can't."""
    keys = [b"key"] * _ENOUGH + [b"%d" % number for number in range(_ENOUGH)]
    for now in _TRIAL_TIMES:
        routed = trial.route_batch(hash_keys(keys, trial.seeds), None, now)
        if len(routed) != len(keys) or routed.min() < 0 or routed.max() >= trial.workers:
            raise ValueError(f"it routes to workers that are none of {trial.workers}")


def _through_the_store(value: Mapping[str, Any]) -> dict[str, Any]:
    """As others would read it."""
    read: dict[str, Any] = orjson.loads(orjson.dumps(value))
    return read


def _refused(grouping: str, error: Exception) -> Refused:
    reason = " ".join(f"{type(error).__name__}: {error}".split())
    return Refused(f"{grouping} can't route and plan with these settings: {reason}")


def try_compared(control: Control) -> None:
    """Lets each grouping that is to be compared route some events; `Refused` if one of them can't."""
    for compared in control.compared:
        try:
            try_out(create(compared.name, control.grouped, compared.used))
        except Exception as error:  # Whatever the grouping raises, it can't be used.
            raise _refused(compared.name, error) from error
