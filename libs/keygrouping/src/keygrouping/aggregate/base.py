"""The one interface of every aggregate, so that runners never need to know which one they hold."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from keygrouping.aggregate.expected import Answer
from keygrouping.settings import Settings

MOST_EVENTS = 1 << 40
"""Most events of one partial: 10^12, more than any worker holds between two flushes."""

State = Any
"""What an aggregate remembers; opaque to everybody but the aggregate that made it."""

FieldKind = Literal["number", "text"]
"""What a field must hold: a finite JSON number, or text (a JSON string or an integer)."""


class Role(NamedTuple):
    """A property of a declaration that names a field of the event, or with `many` a list of fields."""

    name: str
    kind: FieldKind | None
    """None: anything, only its presence counts."""
    required: bool = True
    many: bool = False


class Input(NamedTuple):
    """A field that an aggregate reads: its name or JSON pointer, and what it must hold."""

    field: str
    kind: FieldKind | None


NUMBER = Role("field", "number")
TEXT = Role("field", "text")
_NO_SETTINGS = Settings()


@dataclass(frozen=True)
class Aggregate(ABC):
    """One named aggregate of a job. `inputs` are the fields it reads, in the order of the operation's `roles`.

    States form a commutative monoid: `merge` is associative and commutative and `initial()` is its identity,
    so that any split of the events over workers gives the same result (variances: up to the last bits).
    An `approximate` aggregate forgets what its bounded state has no room for. Its merge is commutative, and has its
    identity, to the last bit; it is associative up to the bounds that its result states and keeps under any split.

    The value of an event is that of its field, or a tuple where there are several inputs, or anything at all where
    there are none. None is a missing field: skipped, as in SQL.
    `add` and `add_many` may change the state they are given: go on with the one they return.
    `merge` changes neither of its arguments.
    """

    name: str
    inputs: tuple[Input, ...] = ()
    settings: Settings = _NO_SETTINGS

    op: ClassVar[str]
    roles: ClassVar[tuple[Role, ...]]
    approximate: ClassVar[bool] = False
    spark: ClassVar[str | None] = None
    """Where its Spark half is, as `module:Class`, a subclass of `keygrouping_spark.native.Native`: a text, since only
    Spark's own processes have PySpark. None: it runs with the native runner alone.
    """

    @abstractmethod
    def initial(self) -> State:
        """The state that has seen nothing."""

    def add(self, state: State, value: Any) -> State:
        """The state after one more event of this value."""
        return self.add_many(state, (value,))

    @abstractmethod
    def add_many(self, state: State, values: Iterable[Any]) -> State:
        """The state after several more events; the same as `add` for each."""

    @abstractmethod
    def merge(self, left: State, right: State) -> State:
        """The state that has seen what both have seen."""

    @abstractmethod
    def finish(self, state: State) -> Any:
        """The value to publish, as plain JSON data; None where SQL would say NULL."""

    @abstractmethod
    def expected(self, values: Iterable[Any]) -> Answer:
        """What must be published of the values of all events, found without any state: what the oracle says."""

    def encode(self, state: State) -> Any:
        """The state as plain JSON data, as it stands in a partial."""
        return state

    @abstractmethod
    def decode(self, data: Any) -> State:
        """The state from its JSON data; a ValueError if it is not one."""

    def seen(self, state: State) -> int:  # noqa: ARG002
        """How many events the state says to have seen at least: no more than there are in its partial."""
        return 0

    def counted(self, number: Any, data: Any) -> int:
        """A number of events in JSON data; a ValueError if it is none."""
        if type(number) is not int or not 0 <= number <= MOST_EVENTS:
            raise self.fault(data)
        return number

    def fault(self, data: Any) -> ValueError:
        """The error for JSON data that is no state of this aggregate."""
        return ValueError(f"aggregate {self.name!r} ({self.op}): not a state: {str(data)[:80]}")
