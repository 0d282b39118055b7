"""What aggregates of bounded memory may publish of known values: all that the bounds which they state allow.

For tests and oracles. Nothing here but `text.bounded` is shared with the aggregates themselves.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from keygrouping.aggregate.base import Aggregate
from keygrouping.aggregate.histogram import Histogram
from keygrouping.aggregate.naive_bayes import NaiveBayes
from keygrouping.aggregate.text import bounded
from keygrouping.aggregate.top_k import TopK

_OF_SIZE = 1e-9


class Bounds(Protocol):
    """What may be published of values that are known."""

    @property
    def exact(self) -> Any:
        """What would be published with memory for everything."""

    def accept(self, found: Any) -> bool:
        """Whether `found` may have been published, after whatever split of the values."""


def bounds_of(aggregate: Aggregate, values: Iterable[Any]) -> Bounds | None:
    """The bounds for an aggregate over the values of all events; None if its memory needs no bounds."""
    if isinstance(aggregate, TopK):
        counts = Counter([bounded(value) for value in values if value is not None])
        return _TopKBounds(counts, aggregate.settings.k, aggregate.settings.capacity)
    if isinstance(aggregate, Histogram):
        numbers = sorted(float(value) for value in values if value is not None)
        return _HistogramBounds(numbers, aggregate.settings.bins, aggregate.settings.quantiles)
    if isinstance(aggregate, NaiveBayes):
        features = [given.field for given in aggregate.inputs[1:]]
        rows = values if features else ((value,) for value in values)
        events = [[part if part is None else bounded(part) for part in row] for row in rows if row[0] is not None]
        return _BayesBounds(events, features, aggregate.settings.entries)
    return None


@dataclass(frozen=True)
class _TopKBounds:
    """The counts of all values, of which `k` are listed by one who keeps no more than `capacity` counts."""

    counts: Mapping[str, int]
    k: int
    capacity: int

    @property
    def exact(self) -> list[dict[str, Any]]:
        ranked = sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))[: self.k]
        return [{"value": value, "least": count, "most": count} for value, count in ranked]

    def accept(self, found: Any) -> bool:
        if len(self.counts) <= self.capacity:
            return bool(found == self.exact)
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
class _HistogramBounds:
    """All numbers in order, of which no more than `bins` bins and some quantiles are published."""

    numbers: Sequence[float]
    bins: int
    quantiles: Sequence[float]

    @property
    def exact(self) -> dict[str, Any] | None:
        if not self.numbers:
            return None
        exact = [(q, self.numbers[max(1, math.ceil(q * len(self.numbers))) - 1]) for q in self.quantiles]
        return {
            "n": len(self.numbers),
            "min": self.numbers[0],
            "max": self.numbers[-1],
            "bins": [[number, size] for number, size in sorted(Counter(self.numbers).items())],
            "quantiles": [{"q": q, "value": value, "least": value, "most": value} for q, value in exact],
        }

    def accept(self, found: Any) -> bool:
        exact = self.exact
        if exact is None or len(exact["bins"]) <= self.bins:
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
        error = _OF_SIZE * math.fsum(map(abs, self.numbers))
        return sum(size for _, size in bins) == len(self.numbers) and abs(total - math.fsum(self.numbers)) <= error


@dataclass(frozen=True)
class _BayesBounds:
    """Events of (class, feature, ...), of which no more than `entries` counts are published."""

    events: Sequence[Sequence[Any]]
    features: Sequence[str]
    entries: int

    @property
    def exact(self) -> dict[str, Any]:
        return {
            "events": len(self.events),
            "classes": dict(Counter(event[0] for event in self.events)),
            "features": {name: _feature(self.events, index) for index, name in enumerate(self.features, 1)},
            "complete": True,
        }

    def accept(self, found: Any) -> bool:
        exact = self.exact
        fixed = len(exact["classes"]) + sum(len(feature["classes"]) for feature in exact["features"].values())
        values = [v for feature in exact["features"].values() for v in feature["values"].values()]
        if fixed > self.entries:
            return isinstance(found, dict) and self._accept_exceeded(found)
        if fixed + sum(map(len, values)) <= self.entries:
            return bool(found == exact)
        return isinstance(found, dict) and self._accept_part(found, exact, fixed)

    def _accept_exceeded(self, found: dict[str, Any]) -> bool:
        rest = {name: value for name, value in found.items() if name != "exceeded"}
        nothing = {"events": len(self.events), "classes": None, "features": None, "complete": False}
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
