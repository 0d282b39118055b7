"""The one interface of every aggregate, so that runners never need to know which one they hold."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

State = Any
"""What an aggregate remembers; opaque to everybody but the aggregate that made it."""

FieldKind = Literal["number", "text"]
"""What a field must hold: a finite JSON number, or text (a JSON string or an integer)."""


@dataclass(frozen=True)
class Aggregate(ABC):
    """One named aggregate of a job.

    States form a commutative monoid: `merge` is associative and commutative and `initial()` is its identity,
    so that any split of the events over workers gives the same result (floats: up to the last bits).
    `add` and `add_many` may change the state they are given: go on with the one they return.
    `merge` changes neither of its arguments. A value of None is a missing field: skipped, as in SQL.
    """

    name: str
    field: str | None = None

    op: ClassVar[str]
    kind: ClassVar[FieldKind | None]
    needs_field: ClassVar[bool] = True

    @abstractmethod
    def initial(self) -> State:
        """The state that has seen nothing."""

    def add(self, state: State, value: Any) -> State:
        """The state after one more event whose field holds `value`."""
        return self.add_many(state, (value,))

    @abstractmethod
    def add_many(self, state: State, values: Iterable[Any]) -> State:
        """The state after several more events; the same as `add` for each."""

    @abstractmethod
    def merge(self, left: State, right: State) -> State:
        """The state that has seen what both have seen."""

    @abstractmethod
    def finish(self, state: State) -> float | int | None:
        """The value to publish; None where SQL would say NULL."""

    def encode(self, state: State) -> Any:
        """The state as plain JSON data, as it stands in a partial."""
        return state

    @abstractmethod
    def decode(self, data: Any) -> State:
        """The state from its JSON data; a ValueError if it is not one."""

    def fault(self, data: Any) -> ValueError:
        """The error for JSON data that is no state of this aggregate."""
        return ValueError(f"aggregate {self.name!r} ({self.op}): not a state: {str(data)[:80]}")
