"""What D-Choices and W-Choices share: most keys have two choices, and the head, the few hot ones, has more.

Source: Nasir, De Francisci Morales, Kourtellis, Serafini, "When Two Choices Are not Enough: Balancing at Scale in
Distributed Stream Processing" (ICDE 2016), and its code (anisnasir/SLBSimulator, anisnasir/SLBStorm).
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from keygrouping.grouping._shared_widths import SharedSettings, SharedWidths
from keygrouping.grouping._ticks import Ticks
from keygrouping.grouping._wide_keys import WideKeys
from keygrouping.grouping.base import NO_WEIGHTS, kernel_arrays, loads_from
from keygrouping.grouping.choices.load_tree import first_leaf, loads_of, tree_of
from keygrouping.grouping.protocol import Explanation, Hashes, HotKey, Space, Weights, Workers
from keygrouping.hashing import SECOND_SEED, SEED, hash_key, worker_of
from keygrouping.keyspace.space_saving import SpaceSaving
from keygrouping.settings import setting

_COUNTERS_PER_HEAD_KEY = 4
_MAX_COUNTERS = 100_000
_EVIDENCE = 8.0
_LEAVE = 0.75
_TAGS_PER_SECOND = 10
_LAST_TAG = 2**31 - 1

COUNTS = np.dtype(
    [
        ("events", np.float64),
        ("changes", np.int64),
        ("width", np.int64),
        ("turn", np.int64),
        ("until_review", np.int64),
        ("clock", np.int64),
    ]
)
"""Events (faded), changes of the head or its width, that width, the last worker in turn (round robin), how many
events there are to come before the head is reviewed, and the tag that a key gets which enters the head now."""

RULES = np.dtype(
    [
        ("enter", np.float64),
        ("leave", np.float64),
        ("evidence", np.float64),
        ("tolerance", np.float64),
        ("review_after", np.int64),
        ("solve", np.bool_),
        ("round_robin", np.bool_),
    ],
    align=True,
)
"""Shares from which on a key enters the head and below which it leaves it; the weight it needs, in mean events; the
tolerance for the head's width; the least number of events between two reviews; whether the width is solved for or is
W; whether the head is spread by turns."""


@dataclass(frozen=True)
class HeadSettings(SharedSettings):
    """Settings of all groupings with a head."""

    threshold: float = setting(
        0.2,
        "share of all weight from which on a key is of the head; beyond 2 fair shares two workers can't carry it",
        unit="1/W",
        above=0,
        most=2,
    )
    half_life: float | None = setting(
        30.0,
        "all loads and counts are halved at every passing of this time, so that they tell of the last minute or so; "
        "null: they are counted over the lifetime, as in the paper",
        unit="s",
        above=0,
    )


HeadSettingsType = TypeVar("HeadSettingsType", bound=HeadSettings)


class HeadGrouping(SharedWidths[HeadSettingsType], Generic[HeadSettingsType]):
    """Counts keys by SpaceSaving; a key of the tail has two choices as in `pkg`, one of the head more.

    A key enters the head when the weight that it has for certain (its count less the count's possible error) reaches
    the threshold and that of eight mean events; it leaves below three quarters of the threshold. SpaceSaving has four
    counters for each key that the head can hold, so that its error is below a quarter of the threshold (up to W = 5000
    by default). The head is reviewed every W / threshold events at first, in the long run every 64 times as many.
    The loads start from nothing when W changes, the counts stay.

    A shared instance counts, but its head and its width come from `apply`. They are planned by the same rules from
    the merged counts of all sources; when W changes the width changes by the same factor until the next plan.

    Memory: at most 72 bytes per worker, and 0.5 to 1 KB x W / threshold up to 17 MB (by default 256 to 512 KB for
    W = 100).
    """

    seeds = (SEED, SECOND_SEED)

    def __init__(self, workers: int, settings: HeadSettingsType | None = None) -> None:
        super().__init__(workers, settings)
        self._rules = self._new_rules()
        self._counts = np.zeros(1, COUNTS)
        self._counts["width"] = min(2, workers) if self._rules["solve"][0] else workers
        self._counts["until_review"] = self._rules["review_after"]
        self._keys = SpaceSaving(self._capacity())
        self._tree = tree_of(np.zeros(workers))
        self._half_lives = None if self._settings.half_life is None else Ticks(self._settings.half_life)
        self._started: float | None = None

    def _new_rules(self) -> NDArray[Any]:
        """The rules for kernels that follow from the settings and the number of workers."""
        rules = np.zeros(1, RULES)
        rules["enter"] = self._settings.threshold / self._workers
        rules["leave"] = _LEAVE * self._settings.threshold / self._workers
        rules["evidence"] = _EVIDENCE
        rules["review_after"] = math.ceil(self._workers / self._settings.threshold)
        return rules

    def _capacity(self) -> int:
        return min(_MAX_COUNTERS, math.ceil(_COUNTERS_PER_HEAD_KEY * self._workers / self._settings.threshold))

    @property
    def epoch(self) -> int:
        """Changes of the number of workers, of the head, and of its width; if shared, that of the plan."""
        return self._epoch + int(self._counts["changes"][0]) + self._keys.tags_dropped

    @property
    def width(self) -> int:
        """Number of workers that a key of the head may use."""
        if self.shared:
            return max([self.cold_width, *self._wide.widths(self.cold_width).values()])
        return int(self._counts["width"][0])

    @property
    def cold_width(self) -> int:
        return min(2, self._workers)

    def route_batch(self, hashes: Hashes, weights: Weights | None, now: float) -> Workers:
        from keygrouping.grouping.choices.head_kernel import route_head

        hashes, weights = kernel_arrays(hashes, weights, 2)
        if not len(hashes):
            return np.empty(0, np.int32)
        return route_head(hashes, weights, *self._state_at(now))

    def _decisions(self, event: Hashes, now: float) -> Iterator[int]:
        from keygrouping.grouping.choices.head_kernel import each_by_head

        return each_by_head(event, NO_WEIGHTS, *self._state_at(now))

    def _state_at(self, now: float) -> tuple[Any, ...]:
        from keygrouping.grouping.choices.head_kernel import Arrays

        self._advance(now)
        keys, workers = self._keys, self._workers
        arrays = Arrays(self._tree, keys.counters, keys.sketch, self._counts, self._rules, self._wide.table)
        return arrays, workers, first_leaf(workers), self.shared

    def _bear(self, loads: Weights) -> None:
        self._tree = tree_of(loads_of(self._tree, self._workers) + loads)

    def explain(self, key: bytes | str) -> Explanation:
        hashed = hash_key(key, SEED)
        counter = self._keys.find(hashed)
        planned = self._wide.find(hashed)
        hot = planned is not None if self.shared else counter is not None and bool(counter["tag"])
        candidates = self._candidates(hashed, hash_key(key, SECOND_SEED), hot)
        share = None if counter is None else self._share(counter)
        space = "head" if hot else None if counter is None else "sketch"
        since = self._hot_since(counter, hashed) if len(candidates) > self.cold_width else None
        width = len(candidates)
        return Explanation(candidates[0], candidates, width, share, None, self._why(share, hot), space, since)

    def spaces(self) -> tuple[Space, ...]:
        keys, threshold = self._keys, self._settings.threshold
        head = self._wide.hashes if self.shared else keys.tagged_hashes
        most = int(self._workers / (_LEAVE * threshold))
        return (
            Space("sketch", len(keys), 2 * keys.capacity, "keys that have a counter", keys.hashes),
            Space("head", len(head), most, f"hot keys, from {threshold:g} / W of all weight on", head),
        )

    def _hot_since(self, counter: Any, hashed: int) -> float | None:
        if self.shared:
            return self._hot_since_by_plan(hashed)
        return max(0.0, self._now - (self._started or 0.0) - (int(counter["tag"]) - 1) / _TAGS_PER_SECOND)

    def _statistics(self) -> dict[str, Any]:
        """`events`: number of events; `sketch`: counts of keys, see SpaceSaving.to_data."""
        faded = 1.0 if self._half_lives is None else 0.5 ** self._half_lives.part(self._now)
        sketch = self._keys.with_capacity(self._keys.capacity)
        sketch.decay(faded)
        return {"events": float(self._counts["events"][0]) * faded, "sketch": sketch.to_data()}

    def _planned(self, statistics: Sequence[Mapping[str, Any]]) -> tuple[dict[int, int], dict[int, float]]:
        from keygrouping.grouping.choices.head_kernel import enroll, review

        merged, counts = self._merged(statistics), self._counts.copy()
        counts["events"] = math.fsum(float(source["events"]) for source in statistics)
        for hashed, *_ in self._wide.to_data():
            if (counter := merged.find(hashed)) is not None:
                counter["tag"] = 1
        enroll(merged.counters, merged.total, counts[0], self._rules[0])
        review(merged.counters, merged.total, counts[0], self._rules[0], self._workers)
        known = merged.known()
        certain = (known["count"] - known["error"]) / (merged.total or 1.0)
        head = known["hash"][known["tag"] != 0].tolist()
        shares = dict(zip(known["hash"].tolist(), certain.tolist(), strict=True))
        return dict.fromkeys(head, int(counts["width"][0])), shares

    def _merged(self, statistics: Sequence[Mapping[str, Any]]) -> SpaceSaving:
        """The counts of all sources, summed in an order that doesn't depend on theirs."""
        merged = SpaceSaving(self._capacity())
        parts = [source["sketch"] for source in statistics]
        for part in sorted(parts, key=lambda part: [part[name] for name in sorted(part)]):
            merged.merge(SpaceSaving.from_data(merged.capacity, part))
        return merged

    def hot(self, limit: int) -> list[HotKey]:
        if self.shared:
            return self._hot_by_plan(limit)
        known = self._keys.known()
        head = known[known["tag"] != 0][: max(0, limit)]
        return [HotKey(int(counter["hash"]), self.width, self._share(counter)) for counter in head]

    def _candidates(self, hashed: int, second_hash: int, hot: bool) -> tuple[int, ...]:
        from keygrouping.grouping.choices.head_kernel import choose

        workers = self._workers
        first, second = worker_of(hashed, workers), worker_of(second_hash, workers)
        second = (second + 1) % workers if first == second else second
        if not hot or self.width <= 2:
            return (first, second)[:workers]
        if self.width >= workers:
            return tuple((first + i) % workers for i in range(workers))
        order = np.arange(workers)
        choose(order, np.empty(workers, np.int64), first, second, np.int64(second_hash), self.width)
        return tuple(order[: self.width].tolist())

    def _share_of(self, hashed: int) -> float | None:
        counter = self._keys.find(hashed)
        return None if counter is None else self._share(counter)

    def _share(self, counter: Any) -> float:
        """The part of all weight that a key has at least."""
        return (float(counter["count"]) - float(counter["error"])) / self._keys.total if self._keys.total else 0.0

    def _why(self, share: float | None, hot: bool) -> str:
        threshold = 100 * self._settings.threshold / self._workers
        known = "not counted" if share is None else f"at least {100 * share:.2f} % of the weight"
        if hot:
            return f"of the head ({known}, threshold {threshold:.2f} %): {self._head_rule()} of {self.width} workers"
        return f"of the tail ({known}, threshold {threshold:.2f} %): the less loaded of its two choices"

    def _head_rule(self) -> str:
        return "the least loaded"

    def _advance(self, now: float) -> None:
        """Halve loads and counts as often as has become due since the last call."""
        self._now = max(now, self._now)
        if self._half_lives is not None and (halvings := self._half_lives.passed(self._now)):
            factor = 0.5**halvings
            self._keys.decay(factor)
            self._counts["events"] *= factor
            self._tree = tree_of(loads_of(self._tree, self._workers) * factor)
        self._started = self._now if self._started is None else self._started
        self._counts["clock"] = min(_LAST_TAG, 1 + int(_TAGS_PER_SECOND * (self._now - self._started)))

    def _resized(self) -> None:
        from keygrouping.grouping.choices.head_kernel import review

        epoch = self.epoch
        self._rules = self._new_rules()
        self._keys = self._keys.with_capacity(self._capacity())
        self._tree = tree_of(np.zeros(self._workers))
        self._counts["turn"] = 0
        review(self._keys.counters, self._keys.total, self._counts[0], self._rules[0], self._workers)
        self._epoch -= self.epoch - epoch

    def _widths_for(self, widths: NDArray[np.int32], before: int) -> NDArray[np.int32]:
        scaled = -(-widths.astype(np.int64) * self._workers // before)
        return np.clip(scaled, self.cold_width, self._workers).astype(np.int32)

    def _fitted(self, state: Any, other: Self) -> Any:  # noqa: ARG002
        """The head is reviewed by the new threshold at the next event; a shared one waits for its first plan."""
        keys = SpaceSaving.fitted(self._capacity(), state["keys"])
        if self.shared:
            keys["tag"] = [0] * len(keys["tag"])
        counts = {**dict(zip(COUNTS.names or (), state["counts"], strict=True)), "until_review": 0}
        wide = state["wide"] if self.shared else []
        return {**state, "keys": keys, "counts": list(counts.values()), "wide": wide}

    def _state(self) -> Any:
        return {
            "loads": loads_of(self._tree, self._workers).tolist(),
            "counts": list(self._counts[0].tolist()),
            "started": self._started,
            "wide": self._wide.to_data(),
            "half_life_began": None if self._half_lives is None else self._half_lives.began,
            "keys": self._keys.to_data(),
        }

    def _restore_state(self, state: Any, shift: float) -> None:
        loads = loads_from(state["loads"], self._workers)
        counts = np.array([tuple(state["counts"])], COUNTS)
        if not 1 <= counts["width"][0] <= self._workers or not 0 <= counts["turn"][0] < self._workers:
            raise ValueError("width or turn is no number of workers")
        began = Ticks.checked(state["half_life_began"], shift)
        started = Ticks.checked(state["started"], shift)
        wide = WideKeys.from_data(state["wide"], self._workers, shift)
        keys = SpaceSaving.from_data(self._capacity(), state["keys"])
        self._rules, self._tree, self._counts, self._keys = self._new_rules(), tree_of(loads), counts, keys
        self._started, self._wide = started, wide
        if self._half_lives is not None:
            self._half_lives.began = began
