"""Aggregates with code of their own, as the library `keygrouping` has them: a state of each part, merged in Python.

Spark gathers the values of a part in a list, of which its Python processes make a state; those of a key's parts are
gathered and merged likewise. So a result is the one that the aggregate's own code gives, whatever the number of parts.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Protocol, runtime_checkable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DoubleType, FloatType, IntegralType, StringType

from keygrouping_pyspark.errors import SkewError
from keygrouping_pyspark.splits import Split


@runtime_checkable
class Mergeable(Protocol):
    """What `keygrouping.aggregate.Aggregate` says that its subclasses do. Executors import its class."""

    @property
    def name(self) -> str:
        """The name of its column, which is JSON text."""

    @property
    def inputs(self) -> Sequence[tuple[str, Any]]:
        """The fields that it reads, each with the kind of what it must hold: number, text or any."""

    def initial(self) -> Any:
        """The state that has seen nothing."""

    def add_many(self, state: Any, values: Iterable[Any]) -> Any:
        """The state after several more rows."""

    def merge(self, left: Any, right: Any) -> Any:
        """The state that has seen what both have seen."""

    def finish(self, state: Any) -> Any:
        """The value, as plain JSON data."""

    def encode(self, state: Any) -> Any:
        """The state as plain JSON data."""

    def decode(self, data: Any) -> Any:
        """The state from its JSON data."""


def split_of(aggregate: Mergeable, frame: DataFrame, condition: Column | None) -> Split:
    """Its two steps over rows of this frame, with a condition over those for which it holds."""
    value = _function(_value(aggregate))
    return Split([_partial(aggregate, frame, condition)], lambda states: value(F.collect_list(states)))


def whole_of(aggregate: Mergeable, frame: DataFrame) -> Column:
    """The same in one step."""
    value = _function(_value(aggregate))
    return value(F.array(_partial(aggregate, frame, None))).alias(aggregate.name)


def _partial(aggregate: Mergeable, frame: DataFrame, condition: Column | None) -> Column:
    inputs = [
        _input(aggregate, frame, field, kind).alias(f"v{place}") for place, (field, kind) in enumerate(aggregate.inputs)
    ]
    # A struct must have a field, and an aggregate need not have an input.
    row = F.struct(F.lit(True), *inputs)
    rows = F.collect_list(row if condition is None else F.when(condition, row))
    return _function(_state(aggregate))(rows)


def _function(python: Callable[[Any], str]) -> Callable[[Column], Column]:
    """In plain Python on every Spark: by Arrow, as is the default since 4.2, it would need pandas and pyarrow."""
    return F.udf(python, StringType(), useArrow=False)


def _input(aggregate: Mergeable, frame: DataFrame, field: str, kind: str) -> Column:
    """As events have it: a finite number, a text or null; where presence alone counts, True."""
    first, *rest = _path(field)
    column = F.col(f"`{first.replace('`', '``')}`")
    for each in rest:
        column = column[each]
    found = frame.select(column).schema[0].dataType
    if isinstance(found, FloatType | DoubleType):
        column = F.when(F.abs(column) < float("inf"), column.cast("double"))
    if kind == "any":
        return F.when(column.isNotNull(), F.lit(True))
    if kind == "number" and isinstance(found, IntegralType | FloatType | DoubleType):
        return column
    if kind == "text" and isinstance(found, IntegralType | StringType):
        return column.cast("string")
    raise SkewError(_refused(aggregate, field, kind, found))


def _path(field: str) -> list[str]:
    """Of a name that name, of a JSON pointer all names on its way."""
    if not field.startswith("/"):
        return [field]
    return [each.replace("~1", "/").replace("~0", "~") for each in field[1:].split("/")]


def _refused(aggregate: Mergeable, field: str, kind: str, found: DataType) -> str:
    wanted = "a number: cast it to double" if kind == "number" else "text or a whole number: cast it to string"
    return f"aggregate {aggregate.name}: {field} is {found.simpleString()}, not {wanted}"


def _state(aggregate: Mergeable) -> Callable[[Any], str]:
    one = len(aggregate.inputs) == 1

    def state(rows: Any) -> str:
        import json

        values = [tuple(row)[1:] for row in rows]
        given = [value for (value,) in values] if one else values
        return json.dumps(aggregate.encode(aggregate.add_many(aggregate.initial(), given)))

    return state


def _value(aggregate: Mergeable) -> Callable[[Any], str]:
    def value(states: Any) -> str:
        import json
        from functools import reduce

        whole = reduce(aggregate.merge, (aggregate.decode(json.loads(each)) for each in states), aggregate.initial())
        # In the order of names, so that equal values are equal texts, whatever the order of rows.
        return json.dumps(aggregate.finish(whole), ensure_ascii=False, separators=(",", ":"), sort_keys=True)

    return value
