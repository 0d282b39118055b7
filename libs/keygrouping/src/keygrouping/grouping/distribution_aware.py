"""Distribution-aware Key Grouping: no key is split, but heavy keys and buckets of light ones are put where they fit.

Source: Rivetti, Querzoni, Anceaume, Busnel, Sericola, "Efficient Key Grouping for Near-Optimal Load Balancing in Stream
Processing Systems" (DEBS 2015); its code, and the form that plans per batch, in modest-Hamilton/KeyGroupingOnStorm
(DKGrouping, OKGrouping).
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from keygrouping.grouping._greedy import heaviest_first
from keygrouping.grouping._placement import Placement, Seen
from keygrouping.grouping._ticks import Ticks
from keygrouping.grouping.base import NO_WEIGHTS, BaseGrouping, kernel_arrays
from keygrouping.grouping.protocol import Explanation, Hashes, HotKey, Space, Weights, Workers
from keygrouping.hashing import SEED, hash_key, worker_of
from keygrouping.settings import Settings, setting


@dataclass(frozen=True)
class DistributionAwareSettings(Settings):
    """Settings of `distribution-aware`."""

    theta: float = setting(
        0.01, "a key is heavy from this share of an interval's load on; others share buckets", least=1e-5, most=1
    )
    buckets: int = setting(10, "hash buckets per worker; 1 in the public code", least=1, most=10_000)
    interval: float | None = setting(
        10.0, "time between two plans; null: the owner plans and applies", unit="s", least=0.001
    )


class DistributionAware(BaseGrouping[DistributionAwareSettings]):
    """A heavy key to the worker that the plan has for it, any other to that of its bucket.

    A plan comes from the last interval: its heavy keys by SpaceSaving, and `buckets` hash buckets per worker of
    all others, the heaviest first, each onto the worker with least load by then. So whoever has more than a
    worker's fair share alone stays too much for it, and a plan may move anything; only buckets without events stay
    for sure. Before the first plan and after a change of W it is key grouping, and every event is routed, while the
    public code drops those it learns from.

    Memory: SpaceSaving of 2 / theta counters, at most 1 / theta keys of 12 bytes, 12 bytes per bucket.
    """

    name: ClassVar[str] = "distribution-aware"
    settings = DistributionAwareSettings
    seeds = (SEED,)
    shared_settings: ClassVar[Mapping[str, object] | None] = {"interval": None}

    def __init__(self, workers: int, settings: DistributionAwareSettings | None = None) -> None:
        super().__init__(workers, settings)
        interval = self._settings.interval
        self._intervals = None if interval is None else Ticks(interval)
        buckets = self._settings.buckets * workers
        self._placement = Placement.by_hash(workers, buckets)
        self._seen = Seen.nothing(self._settings.theta, buckets)

    @property
    def shared(self) -> bool:
        """Whether it leaves planning to its owner."""
        return self._settings.interval is None

    def route_batch(self, hashes: Hashes, weights: Weights | None, now: float) -> Workers:
        from keygrouping.grouping._distribution_aware_kernel import route_distribution_aware

        hashes, weights = kernel_arrays(hashes, weights, 1)
        if not len(hashes):
            return np.empty(0, np.int32)
        return route_distribution_aware(hashes, weights, self._arrays_at(now))

    def _decisions(self, event: Hashes, now: float) -> Iterator[int]:
        from keygrouping.grouping._distribution_aware_kernel import each_by_distribution

        return each_by_distribution(event, NO_WEIGHTS, self._arrays_at(now))

    def _arrays_at(self, now: float) -> Any:
        from keygrouping.grouping._distribution_aware_kernel import Arrays

        self._advance(now)
        placed, seen = self._placement, self._seen
        places = (placed.keys, placed.key_workers, placed.bucket_workers)
        return Arrays(*places, seen.buckets, seen.sketch.counters, seen.sketch.sketch)

    def statistics(self, now: float | None = None) -> dict[str, Any]:
        """`sketch`: counts of keys, see SpaceSaving.to_data; `buckets`: the weight of each bucket."""
        self._now = max(self._now, self._now if now is None else now)
        return self._end_interval().to_data()

    def plan(self, statistics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The next placement; raises ValueError if these are not statistics for as many buckets as there are now.

        `keys` (heavy, ascending by hash), `key_workers` and `bucket_workers` are the placement, `moved_keys` and
        `moved_buckets` how many heavy keys and buckets with events change their worker, `moved_state` the weight that
        these had in the interval, `max_overload` the largest load over the mean less 1, `feasible` whether no
        heavy key or bucket alone exceeds the mean.
        """
        theta, buckets = self._settings.theta, len(self._placement.bucket_workers)
        try:
            in_order = sorted(statistics, key=lambda source: json.dumps(source, sort_keys=True))
            parts = [Seen.parsed(source, theta, buckets) for source in in_order]
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not statistics for {buckets} buckets: {error}") from error
        merged = Seen.nothing(theta, buckets)
        for part in parts:
            merged.add(part)
        return self._compared(self._plan(merged))

    def apply(self, plan: Mapping[str, Any]) -> None:
        """Route by this plan; raises ValueError, and changes nothing, if it is none for the present workers."""
        try:
            changed = bool(plan["changed"])
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"not a plan: {error}") from error
        self._placement = Placement.parsed(plan, self._workers, len(self._placement.bucket_workers))
        self._epoch += changed

    def explain(self, key: bytes | str) -> Explanation:
        hashed = hash_key(key)
        home, worker = worker_of(hashed, self._workers), self._placement.worker_of(hashed)
        share = self._share(hashed) if self._seen.sketch.find(hashed) is not None else None
        bucket = worker_of(hashed, len(self._placement.bucket_workers))
        why = (
            "heavy in the last interval, so the plan has a worker for it"
            if self._placement.places(hashed)
            else f"not heavy in the last interval: to the worker of its bucket {bucket}"
        )
        space = "placed" if self._placement.places(hashed) else "buckets"
        return Explanation(home if worker == home else None, (worker,), 1, share, None, why, space)

    def spaces(self) -> tuple[Space, ...]:
        buckets, sketch, placed = len(self._placement.bucket_workers), self._seen.sketch, self._placement.keys
        every, most = "hash buckets, in one of which every key is that isn't heavy", int(1 / self._settings.theta)
        return (
            Space("sketch", len(sketch), 2 * sketch.capacity, "keys counted in this interval", sketch.hashes),
            Space("buckets", buckets, buckets, every, None),
            Space("placed", len(placed), most, "heavy keys with their own place", placed),
        )

    def hot(self, limit: int) -> list[HotKey]:
        heaviest = self._seen.sketch.known()[: max(0, limit)]["hash"].tolist()
        return [HotKey(hashed, 1, self._share(hashed)) for hashed in heaviest]

    def _share(self, hashed: int) -> float:
        """The guaranteed part of the load of this interval."""
        total = self._seen.sketch.total
        return self._seen.sketch.bounds(hashed).lower / total if total else 0.0

    def _advance(self, now: float) -> None:
        """Plan if the interval has passed and there were events in it."""
        self._now = max(now, self._now)
        if self._intervals is not None and self._intervals.passed(self._now):
            plan = self._compared(self._plan(self._end_interval()))
            if plan["changed"]:
                self.apply(plan)

    def _end_interval(self) -> Seen:
        seen = self._seen
        self._seen = Seen.nothing(self._settings.theta, len(seen.buckets))
        return seen

    def _plan(self, seen: Seen) -> dict[str, Any]:
        if not seen.sketch.total:
            return self._report(seen, self._placement, np.zeros(self._workers), 0.0)
        keys, weights = seen.heavy(self._settings.theta)
        rest = seen.apart(keys.tolist())
        items = np.concatenate([weights, rest])
        order = np.argsort(-items, kind="stable")
        placed = np.empty(len(items), np.int32)
        placed[order] = heaviest_first(items[order], self._workers)
        bucket_workers = np.where(rest > 0, placed[len(keys) :], self._placement.bucket_workers)
        placement = Placement(keys, placed[: len(keys)], bucket_workers)
        loads = np.bincount(placed, items, self._workers).astype(float)
        return self._report(seen, placement, loads, float(items.max()))

    def _compared(self, plan: dict[str, Any]) -> dict[str, Any]:
        changed = any(plan[name] != column for name, column in self._placement.to_data().items())
        return {"changed": changed, **plan}

    def _report(self, seen: Seen, placement: Placement, loads: Weights, heaviest: float) -> dict[str, Any]:
        mean = float(loads.mean())
        return {
            "workers": self._workers,
            **placement.to_data(),
            **self._moves(seen, placement),
            "max_overload": float(loads.max()) / mean - 1 if mean else 0.0,
            "feasible": heaviest <= mean,
            "hot_keys": 0,
        }

    def _moves(self, seen: Seen, placement: Placement) -> dict[str, Any]:
        """What changes its worker by a placement; keys that are or were heavy apart from their buckets."""
        ever_heavy = sorted({*placement.keys.tolist(), *self._placement.keys.tolist()})
        moved = [key for key in ever_heavy if placement.worker_of(key) != self._placement.worker_of(key)]
        rest = seen.apart(ever_heavy)
        changed = (placement.bucket_workers != self._placement.bucket_workers) & (rest > 0)
        return {
            "moved_keys": len(moved),
            "moved_buckets": int(np.count_nonzero(changed)),
            "moved_state": float(rest[changed].sum()) + sum(seen.sketch.bounds(key).lower for key in moved),
        }

    def _resized(self) -> None:
        buckets = self._settings.buckets * self._workers
        self._placement = Placement.by_hash(self._workers, buckets)
        self._seen = Seen.nothing(self._settings.theta, buckets)

    def _fitted(self, state: Any, other: Self) -> Any:  # noqa: ARG002
        """With other `buckets` nothing can be kept: their weights and places are those of other keys."""
        seen = state["seen"]
        return {**state, "seen": {**seen, "sketch": Seen.fitted(self._settings.theta, seen["sketch"])}}

    def _state(self) -> Any:
        return {
            "placement": self._placement.to_data(),
            "seen": self._seen.to_data(),
            "began": None if self._intervals is None else self._intervals.began,
        }

    def _restore_state(self, state: Any, shift: float) -> None:
        buckets = self._settings.buckets * self._workers
        placement = Placement.parsed(state["placement"], self._workers, buckets)
        seen = Seen.parsed(state["seen"], self._settings.theta, buckets)
        began = Ticks.checked(state["began"], shift)
        self._placement, self._seen = placement, seen
        if self._intervals is not None:
            self._intervals.began = began
