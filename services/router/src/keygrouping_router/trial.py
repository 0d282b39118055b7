"""Tries other settings on the last of the sampled traffic, beside the present ones; nothing in force changes."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np
from keygrouping.grouping import Grouping, Overrides, create
from keygrouping.hashing import hash_keys
from numpy.typing import NDArray

from keygrouping_router.balance import Spread
from keygrouping_router.control import Control, Values
from keygrouping_router.models import Change, Changes, ShadowResult, WidthChange
from keygrouping_router.naming import named
from keygrouping_router.overriding import diverted, orders_of
from keygrouping_router.sampling import Slice
from keygrouping_router.steering import widths_with

PASSES = 8
"""How often the sample is played; what the last time brings is measured."""

LEAST_SECONDS = 150.0
"""Time that the passes take at least on the groupings' clock, so that what depends on time comes about."""

_MOST_WIDTHS = 100


@dataclass(frozen=True)
class _Outcome:
    """What one grouping has made of the sample: its spread in the last pass, and how wide which keys are."""

    spread: Spread
    widths: dict[int, int]
    cold_width: int


def compare(before: Control, after: Control, slices: Sequence[Slice]) -> Changes:
    """What the settings after give for the sample, and what those before do.

    Both begin from nothing, play the sample `PASSES` times, and decide alone. Takes up to seconds: not for the event
    loop.
    """
    events = sum(len(taken.keys) for taken in slices)
    if not events:
        nothing = Change(before=None, after=None)
        return Changes(hot_keys=nothing, widths=[], lambda_=nothing, dist_cost=nothing, sampled_events=0)
    both_observe = before.observe_only and after.observe_only
    old, new = (_play(control, *_decides(control, both_observe), slices) for control in (before, after))
    return Changes(
        hot_keys=Change(before=len(old.widths), after=len(new.widths)),
        widths=_width_changes(old, new, slices),
        lambda_=Change(before=old.spread.lambda_, after=new.spread.lambda_),
        dist_cost=Change(before=old.spread.dist_cost, after=new.spread.dist_cost),
        sampled_events=events,
    )


def side_by_side(control: Control, slices: Sequence[Slice]) -> list[ShadowResult]:
    """What the grouping in force and those to compare with give for the sample; nothing without a sample."""
    if not slices:
        return []
    settings = {} if control.observe_only else control.settings
    decides = (control.routed_by, settings, _decides(control, observing=False)[1])
    return [
        _result(name, shown, _play(control, name, used, slices), in_force=number == 0)
        for number, (name, shown, used) in enumerate((decides, *control.compared))
    ]


def _decides(control: Control, observing: bool) -> tuple[str, Values]:
    """Name and settings of the grouping that decides, or with `observing` of the one that is only observed."""
    if control.observe_only and not observing:
        return control.routed_by, {}
    return control.grouping, control.alone_settings


def _result(name: str, settings: Values, outcome: _Outcome, *, in_force: bool) -> ShadowResult:
    spread = outcome.spread
    return ShadowResult(
        name=name,
        settings=settings,
        in_force=in_force,
        lambda_=spread.lambda_,
        std_dev=spread.std_dev,
        dist_cost=spread.dist_cost,
        hot_keys=len(outcome.widths),
        events=spread.events,
    )


def _play(control: Control, name: str, settings: Values, slices: Sequence[Slice]) -> _Outcome:
    grouping = create(name, control.grouped, settings)
    overrides = Overrides(orders_of(control.overrides), control.workers)
    slices = _without(diverted(control.overrides), slices)
    batches = [(taken, hash_keys(taken.keys, grouping.seeds)) for taken in slices]
    length = max(slices[-1].now - slices[0].now, 0.0)
    stretch = max(1.0, LEAST_SECONDS / (PASSES * length)) if length else 1.0
    step = max(length * stretch, LEAST_SECONDS / PASSES)
    for number in range(PASSES):
        spread = Spread(control.workers)
        for taken, hashes in batches:
            now = number * step + (taken.now - slices[0].now) * stretch
            workers = overrides.route_batch(grouping, taken.keys, hashes, taken.weights, now)
            spread.add(taken.hashes, workers, taken.weights)
    return _Outcome(spread, widths_with(overrides, grouping), _cold_width(grouping))


def _without(keys: Collection[bytes], slices: Sequence[Slice]) -> list[Slice]:
    """The sample without the events of these keys."""
    if not keys:
        return list(slices)
    found = []
    for taken in slices:
        at = [position for position, key in enumerate(taken.keys) if key not in keys]
        weights = None if taken.weights is None else taken.weights[at]
        kept = [taken.keys[position] for position in at]
        found.append(Slice(kept, taken.hashes[at], weights, taken.workers[at], taken.now))
    return [taken for taken in found if taken.keys]


def _cold_width(grouping: Grouping) -> int:
    return min(grouping.cold_width, grouping.workers)


def _width_changes(old: _Outcome, new: _Outcome, slices: Sequence[Slice]) -> list[WidthChange]:
    """Keys whose width differs, the heaviest first."""
    weight: dict[int, float] = {}
    names: dict[int, bytes] = {}
    differing = {
        hashed for hashed in old.widths.keys() | new.widths.keys() if _width(old, hashed) != _width(new, hashed)
    }
    for taken in slices:
        for position in np.flatnonzero(np.isin(taken.hashes, list(differing))).tolist():
            hashed = int(taken.hashes[position])
            names[hashed] = taken.keys[position]
            weight[hashed] = weight.get(hashed, 0.0) + _weight(taken.weights, position)
    heaviest = sorted(differing, key=lambda hashed: (-weight.get(hashed, 0.0), hashed))[:_MOST_WIDTHS]
    return [
        WidthChange(**named(names.get(hashed), hashed), before=_width(old, hashed), after=_width(new, hashed))
        for hashed in heaviest
    ]


def _width(outcome: _Outcome, hashed: int) -> int:
    return outcome.widths.get(hashed, outcome.cold_width)


def _weight(weights: NDArray[np.float64] | None, position: int) -> float:
    return 1.0 if weights is None else float(weights[position])
