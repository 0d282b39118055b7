"""What aggregates of bounded memory may publish of known values: all that the bounds which they state allow.

As in `expected`, nothing is shared with the aggregates themselves, but for `text.bounded`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from keygrouping.aggregate.expected import RELATIVE, Answer, present
from keygrouping.aggregate.text import bounded


def top_k_of(values: Iterable[Any], k: int, capacity: int) -> Answer:
    """The `k` most frequent values, listed by one who keeps no more than `capacity` counts."""
    counts = Counter([bounded(value) for value in present(values)])
    ranked = sorted(counts.items(), key=lambda item: (-item[1], item[0]))[:k]
    exact = [{"value": value, "least": count, "most": count} for value, count in ranked]
    return _TopK(exact, counts, k, capacity)


def histogram_of(values: Iterable[Any], bins: int, quantiles: Sequence[float]) -> Answer:
    """Some quantiles, and no more than `bins` bins."""
    numbers = sorted(float(value) for value in present(values))
    if not numbers:
        return Answer(None)
    exact = [(q, numbers[max(1, math.ceil(q * len(numbers))) - 1]) for q in quantiles]
    whole = {
        "n": len(numbers),
        "min": numbers[0],
        "max": numbers[-1],
        "bins": [[number, size] for number, size in sorted(Counter(numbers).items())],
        "quantiles": [{"q": q, "value": value, "least": value, "most": value} for q, value in exact],
    }
    return _Histogram(whole, numbers, bins)


def bayes_of(values: Iterable[Any], features: Sequence[str], entries: int) -> Answer:
    """Counts of classes and of feature values within them, no more than `entries`.

    A value is a class, or with features a tuple of class and features.
    """
    rows = values if features else ((value,) for value in values)
    events = [[part if part is None else bounded(part) for part in row] for row in rows if row[0] is not None]
    whole = {
        "events": len(events),
        "classes": dict(Counter(event[0] for event in events)),
        "features": {name: _feature(events, index) for index, name in enumerate(features, 1)},
        "complete": True,
    }
    return _Bayes(whole, features, entries)


@dataclass(frozen=True)
class _TopK(Answer):
    counts: Mapping[str, int]
    k: int
    capacity: int

    def accept(self, found: Any) -> bool:
        if len(self.counts) <= self.capacity:
            return bool(found == self.value)
        error = sum(self.counts.values()) // (self.capacity + 1)
        try:
            listed = {entry["value"]: (entry["least"], entry["most"]) for entry in found}
            right = all(least <= self.counts[v] <= most <= least + error for v, (least, most) in listed.items())
        except (TypeError, KeyError):
            return False
        most = [entry["most"] for entry in found]
        left_out = max((count for value, count in self.counts.items() if value not in listed), default=0)
        allowed = most[-1] if len(found) == self.k else error
        return right and len(listed) == len(found) <= self.k and most == sorted(most)[::-1] and left_out <= allowed


@dataclass(frozen=True)
class _Histogram(Answer):
    numbers: Sequence[float]
    bins: int

    def accept(self, found: Any) -> bool:
        exact = self.value
        if len(exact["bins"]) <= self.bins:
            return bool(found == exact)
        try:
            bins = [(float(mean), int(size)) for mean, size in found["bins"]]
            same = all(found[name] == exact[name] for name in ("n", "min", "max"))
            pairs = list(zip(found["quantiles"], exact["quantiles"], strict=True))
            within = all(
                f["q"] == e["q"] and f["least"] <= e["value"] <= f["most"] and f["least"] <= f["value"] <= f["most"]
                for f, e in pairs
            )
        except (TypeError, KeyError, ValueError):
            return False
        return within and same and len(bins) <= self.bins and self._accept_bins(bins)

    def _accept_bins(self, bins: Sequence[tuple[float, int]]) -> bool:
        total = math.fsum(mean * size for mean, size in bins)
        error = RELATIVE * math.fsum(map(abs, self.numbers))
        return sum(size for _, size in bins) == len(self.numbers) and abs(total - math.fsum(self.numbers)) <= error


@dataclass(frozen=True)
class _Bayes(Answer):
    features: Sequence[str]
    entries: int

    def accept(self, found: Any) -> bool:
        exact = self.value
        fixed = len(exact["classes"]) + sum(len(feature["classes"]) for feature in exact["features"].values())
        values = [v for feature in exact["features"].values() for v in feature["values"].values()]
        if fixed > self.entries:
            return isinstance(found, dict) and self._accept_exceeded(found)
        if fixed + sum(map(len, values)) <= self.entries:
            return bool(found == exact)
        return isinstance(found, dict) and self._accept_part(found, exact, fixed)

    def _accept_exceeded(self, found: dict[str, Any]) -> bool:
        rest = {name: value for name, value in found.items() if name != "exceeded"}
        nothing = {"events": self.value["events"], "classes": None, "features": None, "complete": False}
        return rest == nothing and bool(found.get("exceeded"))

    def _accept_part(self, found: dict[str, Any], exact: dict[str, Any], fixed: int) -> bool:
        try:
            features = [(found["features"][name], exact["features"][name]) for name in self.features]
            kept = [(f["values"][value], e["values"][value]) for f, e in features for value in f["values"]]
            same = all(f["classes"] == e["classes"] for f, e in features) and all(f == e for f, e in kept)
        except (TypeError, KeyError):
            return False
        expected = {"events": exact["events"], "classes": exact["classes"], "complete": False}
        rest = {name: value for name, value in found.items() if name != "features"}
        return same and rest == expected and fixed + sum(len(counts) for counts, _ in kept) <= self.entries


def _feature(events: Sequence[Sequence[Any]], index: int) -> dict[str, Any]:
    values: dict[str, Counter[str]] = {}
    for event in events:
        if event[index] is not None:
            values.setdefault(event[index], Counter())[event[0]] += 1
    classes = Counter(event[0] for event in events if event[index] is not None)
    return {"classes": dict(classes), "values": {value: dict(counts) for value, counts in values.items()}}
