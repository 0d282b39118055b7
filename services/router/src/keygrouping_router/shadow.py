"""Other groupings beside the one in force, fed with the same sampled traffic: what each of them would give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from keygrouping.grouping import Grouping, Overrides, create
from keygrouping.hashing import hash_keys
from keygrouping_service import metrics

from keygrouping_router.balance import Balance, Spread
from keygrouping_router.control import Control, Values
from keygrouping_router.models import ShadowResult
from keygrouping_router.overriding import orders_of
from keygrouping_router.sampling import Slice, Workers
from keygrouping_router.steering import hot_widths


class Candidate(NamedTuple):
    """A grouping that only looks on: `settings` are those that were set, `used` has the capacities too."""

    name: str
    settings: Values
    used: Values
    grouping: Grouping


def candidates(control: Control, before: Sequence[Candidate]) -> list[Candidate]:
    """The groupings to compare, with their kernels compiled; takes seconds at worst, so not for the event loop.

    Those of before that are as they should be are kept, with all that they have learned.
    """
    kept = list(before)
    made = []
    for name, settings, used in control.compared:
        same = (known for known in kept if (known.name, known.used) == (name, used))
        known = next((known for known in same if known.grouping.workers == control.grouped), None)
        if known is None:
            trial = create(name, control.grouped, used)
            trial.route_batch(hash_keys([b"key"], trial.seeds), None, 0.0)
            known = Candidate(name, settings, used, create(name, control.grouped, used))
        else:
            kept.remove(known)
        made.append(known)
    return made


class _Measured:
    """What one grouping gives: interval by interval, and since the comparison began."""

    def __init__(self, workers: int) -> None:
        self.balance = Balance(workers)
        self.run = Spread(workers)

    def add(self, taken: Slice, workers: Workers) -> None:
        for spread in (self.balance.current, self.run):
            spread.add(taken.hashes, workers, taken.weights)


class Shadow:
    """The comparison under one control document; another one begins a new comparison.

    The loads are those of the sample, for the grouping in force too, so that all are measured by the same events.
    Memory: that of the groupings and of two spreads each.
    """

    def __init__(self, control: Control, made: Sequence[Candidate]) -> None:
        self._control = control
        self.candidates = made
        self._in_force = _Measured(control.workers)
        self._measured = [_Measured(control.workers) for _ in made]
        self._overrides = [Overrides(orders_of(control.overrides), control.workers) for _ in made]
        self._labels = _labels([candidate.name for candidate in made])
        self._hot_in_force = 0
        metrics.SHADOW_IMBALANCE.clear()

    @property
    def events(self) -> int:
        """Sampled events since the comparison began."""
        return self._in_force.run.events

    def feed(self, taken: Slice) -> None:
        """Shows all of them a slice of the traffic."""
        self._in_force.add(taken, taken.workers)
        for candidate, overrides, measured in zip(self.candidates, self._overrides, self._measured, strict=True):
            grouping = candidate.grouping
            hashes = hash_keys(taken.keys, grouping.seeds)
            measured.add(taken, overrides.route_batch(grouping, taken.keys, hashes, taken.weights, taken.now))

    def end_interval(self, hot_in_force: int) -> None:
        """Begins a new interval; so many keys are hot in the grouping in force."""
        self._hot_in_force = hot_in_force
        self._in_force.balance.end_interval()
        for label, measured in zip(self._labels, self._measured, strict=True):
            measured.balance.end_interval()
            metrics.SHADOW_IMBALANCE.labels(label).set(measured.balance.recent.lambda_)

    def recent(self) -> list[ShadowResult]:
        """Measures of the last whole interval, the grouping in force first."""
        return self._results([measured.balance.recent for measured in (self._in_force, *self._measured)])

    def run(self) -> list[ShadowResult]:
        """Measures since the comparison began, likewise."""
        return self._results([measured.run for measured in (self._in_force, *self._measured)])

    def _results(self, spreads: Sequence[Spread]) -> list[ShadowResult]:
        control = self._control
        settings = {} if control.observe_only else control.settings
        found = [_result(control.routed_by, settings, spreads[0], self._hot_in_force, in_force=True)]
        for candidate, spread in zip(self.candidates, spreads[1:], strict=True):
            hot = len(hot_widths(candidate.grouping))
            found.append(_result(candidate.name, candidate.settings, spread, hot, in_force=False))
        return found


def _labels(names: Sequence[str]) -> list[str]:
    """A label for each, by its name; further ones of the same name are numbered, from 2 on."""
    earlier: Counter[str] = Counter()
    labels = []
    for name in names:
        earlier[name] += 1
        labels.append(name if earlier[name] == 1 else f"{name}-{earlier[name]}")
    return labels


def _result(name: str, settings: Values, spread: Spread, hot_keys: int, *, in_force: bool) -> ShadowResult:
    return ShadowResult(
        name=name,
        settings=settings,
        in_force=in_force,
        lambda_=spread.lambda_,
        std_dev=spread.std_dev,
        dist_cost=spread.dist_cost,
        hot_keys=hot_keys,
        events=spread.events,
    )
