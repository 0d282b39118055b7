"""The most frequent values of a field, with guaranteed bounds of their counts."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, NamedTuple, Self

from pydantic import Field, model_validator

from keygrouping.aggregate.base import Aggregate, TextField
from keygrouping.aggregate.bounds import top_k_of
from keygrouping.aggregate.expected import Answer
from keygrouping.aggregate.text import bounded


class Counts(NamedTuple):
    """The state: values seen, the most that any count may be too low by, and the counts that are left."""

    total: int
    error: int
    counts: Mapping[str, int]


class TopK(Aggregate):
    """The k most frequent values of a field, as a list of {"value", "least", "most"}, the most frequent first.

    The true count of a listed value lies in [least, most]. While no more than `capacity` different values were seen,
    all is exact. Beyond, most - least is the same for all values and at most n / (capacity + 1) of n events; a value
    that is not counted any more is no more frequent than that, so every value that is more frequent is there.

    Misra-Gries summary, merged as in Agarwal, Cormode, Huang, Phillips, Wei and Yi, "Mergeable Summaries" (2012),
    section 2: counts add up, and when more than `capacity` are left, the next one in size is taken from all of them.
    The frequent-items sketch of Apache DataSketches has the same bounds, but merging it depends on the order.
    At most `capacity` values of `text.LONGEST` bytes; longer ones stand for themselves as `text.bounded` says.
    """

    op: ClassVar[str] = "top-k"
    approximate: ClassVar[bool] = True

    field: TextField
    k: int = Field(10, description="values published at most", ge=1, le=1000)
    capacity: int = Field(256, description="values counted at most: more make it more precise", ge=1, le=1000)

    @model_validator(mode="after")
    def _k_are_counted(self) -> Self:
        if self.k > self.capacity:
            raise ValueError(f"k must be at most capacity ({self.capacity}), not {self.k}")
        return self

    def initial(self) -> Counts:
        return Counts(0, 0, {})

    def add_many(self, state: Counts, values: Iterable[Any]) -> Counts:
        counts = Counter([bounded(value) for value in values if value is not None])
        return self.merge(state, Counts(counts.total(), 0, counts))

    def merge(self, left: Counts, right: Counts) -> Counts:
        counts = dict(left.counts)
        for value, count in right.counts.items():
            counts[value] = counts.get(value, 0) + count
        error, capacity = left.error + right.error, self.capacity
        if len(counts) > capacity:
            taken = sorted(counts.values(), reverse=True)[capacity]
            error += taken
            counts = {value: count - taken for value, count in counts.items() if count > taken}
        return Counts(left.total + right.total, error, counts)

    def finish(self, state: Counts) -> list[dict[str, Any]]:
        ranked = sorted(state.counts.items(), key=lambda item: (-item[1], item[0]))
        return [{"value": value, "least": count, "most": count + state.error} for value, count in ranked[: self.k]]

    def expected(self, values: Iterable[Any]) -> Answer:
        return top_k_of(values, self.k, self.capacity)

    def encode(self, state: Counts) -> Any:
        return {"n": state.total, "error": state.error, "counts": dict(state.counts)}

    def decode(self, data: Any) -> Counts:
        try:
            state = Counts(data["n"], data["error"], dict(data["counts"]))
            if self._is_sound(state):
                return state
        except (TypeError, KeyError, ValueError):
            pass
        raise self.fault(data)

    def seen(self, state: Counts) -> int:
        return state.total

    def _is_sound(self, state: Counts) -> bool:
        counts, capacity = state.counts.values(), self.capacity
        if len(counts) > capacity or not all(type(count) is int and count > 0 for count in counts):
            return False
        # The error was taken from capacity + 1 counts at least.
        taken = state.error * (capacity + 1)
        return type(state.total) is int and type(state.error) is int and 0 <= taken <= state.total - sum(counts)
