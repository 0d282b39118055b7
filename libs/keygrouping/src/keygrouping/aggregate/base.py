"""The one interface of every aggregate, so that runners never need to know which one they hold."""

import re
import typing
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeAlias

from pydantic import AfterValidator, Field, PlainValidator, WithJsonSchema

from keygrouping.aggregate.expected import Answer, Unsplit
from keygrouping.aggregate.samples import drawn
from keygrouping.aggregate.shape import Shape, has_shape
from keygrouping.declaration import Declared

MOST_EVENTS = 1 << 40
"""Most events of one partial: 10^12, more than any worker holds between two flushes."""

State = Any
"""What an aggregate remembers; opaque to everybody but the aggregate that made it."""

FieldKind: TypeAlias = Literal["number", "text", "any"]
"""What a field must hold: a finite JSON number, text (a JSON string or an integer), or anything, as only its presence
counts.
"""


class Input(NamedTuple):
    """A field that an aggregate reads: its name or JSON pointer, and what it must hold."""

    field: str
    kind: FieldKind


class Role(NamedTuple):
    """Marks a member of a declaration as one that names fields of the event, which hold this."""

    kind: FieldKind


_FIELD = "a field name or a JSON pointer"


def _field_name(value: object) -> str:
    if isinstance(value, str) and value not in ("", "/"):
        return value
    raise ValueError(f"must be {_FIELD}, not {value!r}")


def _name(value: object) -> str:
    if isinstance(value, str) and NAME.fullmatch(value):
        return value
    raise ValueError(f"must be letters, digits and _ (not first a digit), at most 63, not {value!r}")


def _different(fields: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(fields)) == len(fields):
        return fields
    raise ValueError(f"names a field twice: {', '.join(fields)}")


NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
"""What all of an aggregate's name is."""

Name: TypeAlias = Annotated[
    str, PlainValidator(_name), WithJsonSchema({"type": "string", "pattern": f"^{NAME.pattern}$"})
]
FieldName: TypeAlias = Annotated[
    str,
    PlainValidator(_field_name),
    WithJsonSchema({"title": _FIELD, "type": "string", "minLength": 1, "not": {"const": "/"}}),
]
"""A member of the event's JSON value: its name, or a JSON pointer to it."""

NumberField: TypeAlias = Annotated[FieldName, Role("number")]
TextField: TypeAlias = Annotated[FieldName, Role("text")]
AnyField: TypeAlias = Annotated[FieldName, Role("any")]
TextFields: TypeAlias = Annotated[
    tuple[TextField, ...],
    AfterValidator(_different),
    Field(strict=False, json_schema_extra={"uniqueItems": True}),
]


class Aggregate(Declared, ABC):
    """One named aggregate of a job, and the declaration of it: its fields are the members that a job may give it.

    Those that name fields of the event are a `NumberField`, a `TextField`, an `AnyField` or `TextFields`; the others
    are its settings. `inputs` are the fields it reads, in the order in which they are declared.

    States form a commutative monoid: `merge` is associative and commutative and `initial()` is its identity,
    so that any split of the events over workers gives the same result (variances: up to the last bits).
    An `approximate` aggregate forgets what its bounded state has no room for. Its merge is commutative, and has its
    identity, to the last bit; it is associative up to the bounds that its result states and keeps under any split.

    The value of an event is that of its field, or a tuple where there are several inputs, or anything at all where
    there are none. None is a missing field: skipped, as in SQL.
    `add` and `add_many` may change the state they are given: go on with the one they return.
    `merge` changes neither of its arguments.
    """

    name: Name

    op: ClassVar[str]
    """The name of its operation; of a class that names none, where it is: `module:Class`."""
    approximate: ClassVar[bool] = False
    spark: ClassVar[str | None] = None
    """Where its Spark half is, as `module:Class`, a subclass of `keygrouping_spark.native.Native`: a text, since only
    Spark's own processes have PySpark. None: Spark runs this class in its Python processes.
    """
    shape: ClassVar[Shape | None] = None
    """What `encode` gives, if that has one shape; with a Spark half it must have, as states are read by it there."""

    @classmethod
    def __pydantic_init_subclass__(cls, **options: Any) -> None:
        super().__pydantic_init_subclass__(**options)
        if ":" in getattr(cls, "op", ":") and "op" not in vars(cls):
            cls.op = f"{cls.__module__}:{cls.__qualname__}"

    @cached_property
    def inputs(self) -> tuple[Input, ...]:
        """The fields that it reads."""
        found: list[Input] = []
        for name, role in roles_of(type(self)).items():
            value = getattr(self, name)
            fields = () if value is None else (value,) if isinstance(value, str) else value
            found += [Input(field, role.kind) for field in fields]
        return tuple(found)

    @abstractmethod
    def initial(self) -> State:
        """The state that has seen nothing."""

    def add(self, state: State, value: Any) -> State:
        """The state after one more event of this value."""
        return self.add_many(state, (value,))

    @abstractmethod
    def add_many(self, state: State, values: Iterable[Any]) -> State:
        """The state after several more events; the same as `add` for each."""

    def check(self, value: Any) -> None:
        """Raises an error at a value of which `add` would raise one; any class of error.

        The router asks it of each event before it routes it, and workers ask it again. Unless it is overridden, it adds
        the value to an empty state: override it where that takes more than some microseconds.
        """
        self.add(self.initial(), value)

    @abstractmethod
    def merge(self, left: State, right: State) -> State:
        """The state that has seen what both have seen."""

    @abstractmethod
    def finish(self, state: State) -> Any:
        """The value to publish, as plain JSON data; None where SQL would say NULL."""

    def expected(self, values: Iterable[Any]) -> Answer:
        """What must be published of the values of all events: what the oracle says.

        Unless it is overridden, by a way that knows no state, what one state of all values publishes.
        """
        known = list(values)
        return Unsplit.of(self.finish(self.add_many(self.initial(), known)), known)

    def samples(self) -> Sequence[Any]:
        """Values as `add_many` gets them, on which its laws are tried when a job begins that has it.

        Unless it is overridden: numbers that add up exactly, texts, missing fields, as the inputs ask for.
        """
        return drawn([each.kind for each in self.inputs])

    def encode(self, state: State) -> Any:
        """The state as plain JSON data, as it stands in a partial."""
        return state

    def decode(self, data: Any) -> State:
        """The state from its JSON data; a ValueError if it is not one.

        Unless it is overridden, states are JSON data themselves, of the declared shape if there is one.
        """
        if self.shape is not None and not has_shape(data, self.shape, texts=False):
            raise self.fault(data)
        return data

    def seen(self, state: State) -> int:  # noqa: ARG002
        """How many events the state says to have seen at least: no more than there are in its partial."""
        return 0

    def counted(self, number: Any, data: Any) -> int:
        """A number of events in JSON data; a ValueError if it is none."""
        if type(number) is not int or not 0 <= number <= MOST_EVENTS:
            raise self.fault(data)
        return number

    def failed(self, error: Exception) -> str:
        """One line on an error that its code has raised, as it stands in dead letters."""
        return f"aggregate {self.name!r} ({self.op}) raises {type(error).__name__}: {error}"[:500]

    def fault(self, data: Any) -> ValueError:
        """The error for JSON data that is no state of this aggregate."""
        return ValueError(f"aggregate {self.name!r} ({self.op}): not a state: {str(data)[:80]}")


def roles_of(kind: type[Aggregate]) -> dict[str, Role]:
    """The members of a declaration that name fields of the event."""
    found = {name: _role(info.annotation, *info.metadata) for name, info in kind.model_fields.items()}
    return {name: role for name, role in found.items() if role is not None}


def _role(hint: Any, *marks: object) -> Role | None:
    here = next((mark for mark in (*marks, *getattr(hint, "__metadata__", ())) if isinstance(mark, Role)), None)
    return here or next((role for inner in typing.get_args(hint) if (role := _role(inner)) is not None), None)
