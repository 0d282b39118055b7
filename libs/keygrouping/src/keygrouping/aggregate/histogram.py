"""A histogram of a stream whose bins follow the data, and quantiles with guaranteed bounds."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Annotated, Any, ClassVar, NamedTuple

from pydantic import Field

from keygrouping.aggregate.base import Aggregate, NumberField
from keygrouping.aggregate.bounds import histogram_of
from keygrouping.aggregate.expected import Answer


class Bin(NamedTuple):
    """Numbers that are remembered by their mean, how many they are, and the least and greatest among them."""

    mean: float
    size: int
    least: float
    greatest: float


class Quantile(NamedTuple):
    """An estimate of a quantile, and the bounds that the true one lies within."""

    value: float
    least: float
    greatest: float


@dataclass(frozen=True)
class StreamHistogram:
    """Bins in the order of their means, as in Ben-Haim and Tom-Tov, "A Streaming Parallel Decision Tree Algorithm"
    (JMLR 11, 2010), section 2.1.

    The paper's bins are mean and size. Here each knows its least and greatest number too (their ranges may overlap):
    that gives quantiles certain bounds, of which the paper has none.
    """

    bins: tuple[Bin, ...] = ()

    @classmethod
    def of(cls, numbers: Iterable[float]) -> StreamHistogram:
        """The exact histogram: a bin for each different number."""
        sizes = sorted(Counter([number + 0.0 for number in numbers]).items())
        return cls(tuple([Bin(number, size, number, number) for number, size in sizes]))

    @property
    def total(self) -> int:
        """How many numbers there are."""
        return sum(bin_.size for bin_ in self.bins)

    @property
    def least(self) -> float:
        """The least number; ValueError if there is none."""
        return min(bin_.least for bin_ in self.bins)

    @property
    def greatest(self) -> float:
        """The greatest number; ValueError if there is none."""
        return max(bin_.greatest for bin_ in self.bins)

    def merge(self, other: StreamHistogram, most: int) -> StreamHistogram:
        """Both together in at most `most` >= 2 bins (the paper's algorithm 2): the closest two become one until it is
        so, of equally close ones those with the least means. Bins of the same mean always become one.
        """
        bins = sorted((*self.bins, *other.bins))
        gaps = [right.mean - left.mean for left, right in pairwise(bins)]
        while gaps:
            at = gaps.index(min(gaps))
            if len(bins) <= most and gaps[at] > 0:
                break
            bins[at : at + 2] = [_joined(bins[at], bins[at + 1])]
            before = max(at - 1, 0)
            gaps[before : at + 2] = [right.mean - left.mean for left, right in pairwise(bins[before : at + 2])]
        return StreamHistogram(tuple(bins))

    def below(self, number: float) -> float:
        """Estimate of how many numbers are at most `number` (the paper's algorithm 3): half of a bin lies on either
        side of its mean, and between two means the density goes in a straight line from the one to the other.
        ValueError if the histogram is empty.
        """
        before = 0.0
        for left, right in pairwise(self._with_ends()):
            if number < right.mean:
                part = _part(left.mean, number, right.mean)
                return before + part * (2 * left.size + part * (right.size - left.size)) / 2
            before += (left.size + right.size) / 2
        return before

    def uniform(self, parts: int) -> list[float]:
        """The parts - 1 numbers that cut the histogram into parts of equal size (the paper's algorithm 4): where a
        decision tree looks for its splits. ValueError if the histogram is empty.
        """
        return [self._where(self.total * part / parts) for part in range(1, parts)]

    def quantile(self, fraction: float) -> Quantile:
        """The least number that at least `fraction` of all numbers don't exceed; ValueError if there is none.

        The estimate is where `uniform` would cut, moved into the bounds. These are the same quantile of the bins'
        least numbers, each as often as its bin is large, and of their greatest: no number is less than the least of
        its bin, so none in the sorted sequence is less than what stands in its place in the sequence of these.
        """
        rank = max(1, math.ceil(fraction * self.total))
        least = _at_rank(sorted((bin_.least, bin_.size) for bin_ in self.bins), rank)
        greatest = _at_rank(sorted((bin_.greatest, bin_.size) for bin_ in self.bins), rank)
        return Quantile(min(max(self._where(fraction * self.total), least), greatest), least, greatest)

    def _where(self, wanted: float) -> float:
        """The inverse of `below`."""
        before = 0.0
        for left, right in pairwise(self._with_ends()):
            here = (left.size + right.size) / 2
            if wanted < before + here:
                rest = wanted - before
                root = math.sqrt(max(0.0, left.size * left.size + 2 * (right.size - left.size) * rest))
                part = 2 * rest / (left.size + root) if rest else 0.0
                return min(max(left.mean * (1 - part) + right.mean * part, left.mean), right.mean)
            before += here
        return self.greatest

    def _with_ends(self) -> list[Bin]:
        """The bins between two empty ones at the least and the greatest number."""
        first, last = self.least, self.greatest
        return [Bin(first, 0, first, first), *self.bins, Bin(last, 0, last, last)]


def _joined(left: Bin, right: Bin) -> Bin:
    size = left.size + right.size
    mean = min(left.mean + (right.mean - left.mean) * (right.size / size), right.mean)
    return Bin(mean, size, min(left.least, right.least), max(left.greatest, right.greatest))


def _part(start: float, number: float, end: float) -> float:
    """Which part of the way from start to end lies behind `number`; by halves, as the way may exceed all floats."""
    return (number / 2 - start / 2) / (end / 2 - start / 2) if number > start else 0.0


def _at_rank(sizes: Sequence[tuple[float, int]], rank: int) -> float:
    upto = accumulate(size for _, size in sizes)
    return next(number for (number, _), last in zip(sizes, upto, strict=True) if last >= rank)


class Histogram(Aggregate):
    """Distribution of a number in at most `bins` bins, None if there is none.

    As {"n", "min", "max", "bins": [[mean, size], ...], "quantiles": [{"q", "value", "least", "most"}, ...]}, see
    `StreamHistogram`. Exact whatever the split: n, min, max, the sum over the bins of mean * size (up to the last
    bits), and everything while there are no more than `bins` different numbers. Beyond that, means and sizes of the
    bins and the `value` of a quantile depend on the split, but the true quantile always lies in [least, most]. How far
    these are apart depends on the data: numbers far out take bins away from where most numbers are.
    """

    op: ClassVar[str] = "histogram"
    approximate: ClassVar[bool] = True

    field: NumberField
    bins: int = Field(64, description="bins kept at most", ge=2, le=1000)
    quantiles: Annotated[
        tuple[Annotated[float, Field(ge=0, le=1)], ...],
        Field(description="quantiles published", max_length=100, strict=False),
    ] = (0.25, 0.5, 0.75)

    def initial(self) -> StreamHistogram:
        return StreamHistogram()

    def add_many(self, state: StreamHistogram, values: Iterable[Any]) -> StreamHistogram:
        added = StreamHistogram.of(float(value) for value in values if value is not None)
        # In portions that each span the whole range: the search for the closest bins is linear in their number.
        portions = math.ceil(len(added.bins) / self.bins)
        for first in range(portions):
            state = self.merge(state, StreamHistogram(added.bins[first::portions]))
        return state

    def merge(self, left: StreamHistogram, right: StreamHistogram) -> StreamHistogram:
        return left.merge(right, self.bins)

    def finish(self, state: StreamHistogram) -> dict[str, Any] | None:
        if not state.bins:
            return None
        found = [(fraction, state.quantile(fraction)) for fraction in self.quantiles]
        return {
            "n": state.total,
            "min": state.least,
            "max": state.greatest,
            "bins": [[bin_.mean, bin_.size] for bin_ in state.bins],
            "quantiles": [{"q": q, "value": at.value, "least": at.least, "most": at.greatest} for q, at in found],
        }

    def expected(self, values: Iterable[Any]) -> Answer:
        return histogram_of(values, self.bins, self.quantiles)

    def encode(self, state: StreamHistogram) -> Any:
        return [list(bin_) for bin_ in state.bins]

    def decode(self, data: Any) -> StreamHistogram:
        try:
            bins = [Bin(float(mean), size, float(least), float(most)) for mean, size, least, most in data]
        except (TypeError, ValueError):
            raise self.fault(data) from None
        rising = all(left.mean < right.mean for left, right in pairwise(bins))
        if len(bins) > self.bins or not rising or not all(map(_is_sound, bins)):
            raise self.fault(data)
        return StreamHistogram(tuple(bins))

    def seen(self, state: StreamHistogram) -> int:
        return state.total


def _is_sound(bin_: Bin) -> bool:
    finite = math.isfinite(bin_.least) and math.isfinite(bin_.greatest)
    return finite and type(bin_.size) is int and bin_.size > 0 and bin_.least <= bin_.mean <= bin_.greatest
