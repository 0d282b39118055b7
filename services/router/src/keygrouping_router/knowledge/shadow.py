"""Other groupings beside the one in force, fed with the same sampled traffic: what each of them would give."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from keygrouping.grouping import create
from keygrouping.hashing import SEED, hash_keys

from keygrouping_router import metrics
from keygrouping_router.control.orders import Values
from keygrouping_router.control.state import Control
from keygrouping_router.knowledge.balance import Balance, Spread, capacities_of
from keygrouping_router.knowledge.rehearsal import Rehearsal
from keygrouping_router.knowledge.sampling import Slice


@dataclass(frozen=True)
class ShadowResult:
    """What a grouping gives, or would give, to the traffic."""

    name: str
    settings: Values
    in_force: bool
    lambda_: float
    std_dev: float
    dist_cost: float
    hot_keys: int
    events: int


class Candidate(NamedTuple):
    """A grouping that only looks on: `settings` are those that were set, `used` all that it goes by."""

    name: str
    settings: Values
    used: Values
    rehearsal: Rehearsal


def candidates(control: Control, before: Sequence[Candidate]) -> list[Candidate]:
    """The groupings to compare, with their kernels compiled; takes seconds at worst, so not for the event loop.

    Those of before that are as they should be are kept, with all that they have learned.
    """
    kept = list(before)
    made = []
    for name, settings, used in control.compared:
        same = (known for known in kept if (known.name, known.used) == (name, used))
        known = next((known for known in same if known.rehearsal.grouping.workers == control.grouped), None)
        if known is None:
            trial = create(name, control.grouped, used)
            trial.route_batch(hash_keys([b"key"], trial.seeds), None, 0.0)
            known = Candidate(name, settings, used, Rehearsal(create(name, control.grouped, used), control))
        else:
            kept.remove(known)
        made.append(known)
    return made


class Shadow:
    """The comparison under one control document; another one begins a new comparison.

    `in_force` is what the grouping in force gives, measured by all events; the others are by those of the sample.
    Memory: that of the groupings and of three spreads each.
    """

    def __init__(self, control: Control, made: Sequence[Candidate], in_force: Balance) -> None:
        self._control = control
        self.candidates = made
        self.events = 0
        """Sampled events since the comparison began."""
        self._in_force = in_force
        for candidate in made:  # Not when they are made ready: until now another comparison may have gone on with them.
            candidate.rehearsal.follow(control)
        self._balances = [Balance(capacities_of(control.capacity_by_worker, control.workers)) for _ in made]
        self._labels = _labels([candidate.name for candidate in made])
        self._hot: list[int] = []
        """At the end of the last interval, of the grouping in force first."""
        metrics.SHADOW_IMBALANCE.clear()

    def feed(self, taken: Slice) -> None:
        """Shows all of them a slice of the traffic."""
        self.events += len(taken.keys)
        for candidate, balance in zip(self.candidates, self._balances, strict=True):
            seeds = candidate.rehearsal.grouping.seeds
            hashes = taken.hashes.reshape(-1, 1) if seeds == (SEED,) else hash_keys(taken.keys, seeds)
            workers = candidate.rehearsal.route(taken.keys, hashes, taken.weights, taken.now)
            balance.current.add(taken.hashes, workers, taken.traffic)

    def check(self, now: float, interval: float) -> None:
        """Inside of an interval of so many seconds: those that want to plan do."""
        for candidate in self.candidates:
            candidate.rehearsal.check(now, interval)

    def end_interval(self, now: float, hot_in_force: int) -> Iterator[None]:
        """Begins a new interval; so many keys are hot in the grouping in force. Yields after each grouping."""
        self._hot = [hot_in_force, *map(_hot_keys, self.candidates)]
        for label, candidate, balance in zip(self._labels, self.candidates, self._balances, strict=True):
            candidate.rehearsal.end_interval(now)
            balance.end_interval()
            metrics.SHADOW_IMBALANCE.labels(label).set(balance.recent.lambda_)
            yield

    def recent(self) -> list[ShadowResult]:
        """Measures of the last whole interval, the grouping in force first."""
        return self._results([balance.recent for balance in (self._in_force, *self._balances)])

    def run(self) -> list[ShadowResult]:
        """Measures since the comparison began, likewise."""
        return self._results([balance.run() for balance in (self._in_force, *self._balances)])

    def _results(self, spreads: Sequence[Spread]) -> list[ShadowResult]:
        control = self._control
        settings = {} if control.observe_only else control.settings
        hot_keys = self._hot or [0, *map(_hot_keys, self.candidates)]
        found = [_result(control.routed_by, settings, spreads[0], hot_keys[0], in_force=True)]
        for candidate, spread, hot in zip(self.candidates, spreads[1:], hot_keys[1:], strict=True):
            found.append(_result(candidate.name, candidate.settings, spread, hot, in_force=False))
        return found


def _hot_keys(candidate: Candidate) -> int:
    return len(candidate.rehearsal.widths())


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
