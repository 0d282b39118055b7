"""A Column taken apart, in classic PySpark (the JVM's node) and in Spark Connect (the client's expression)."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from decimal import Decimal
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.util import PythonEvalType

from keygrouping_pyspark.texts import may_have_star, taken_apart

_AGGREGATES = {value for name, value in vars(PythonEvalType).items() if name.startswith("SQL_GROUPED_AGG")}


class Call(NamedTuple):
    """A function of a Column, without its alias."""

    name: str
    arguments: tuple[Column, ...]
    distinct: bool
    condition: Column | None = None
    """Of the rows that it takes, in SQL text: `FILTER (WHERE ...)`."""


def call_of(column: Column) -> Call | None:
    """The function that a Column calls; None for anything else, such as arithmetic on aggregates in SQL text."""
    text = _text(column)
    if text is not None:
        return _text_call(text)
    return _classic_call(column) if _is_classic(column) else _connect_call(column)


def is_star(column: Column) -> bool:
    """Whether it stands for all columns of its frame."""
    if _is_classic(column):
        node = _node(column)
        return _kind(node) == "UnresolvedStar" and bool(node.unparsedTarget().isEmpty())
    expression = _expression(column)
    return _is_star(expression) and expression._unparsed_target is None


def is_value(column: Column) -> bool:
    """Whether it is a literal or the name of a column."""
    if _is_classic(column):
        return _kind(_node(column)) in ("Literal", "UnresolvedAttribute")
    return type(_expression(column)).__name__ in ("LiteralExpression", "ColumnReference")


def without_cast(column: Column) -> Column:
    """What it casts, and what that is called, left out."""
    made: Any = type(column)
    if _is_classic(column):
        node = _without_alias(_node(column))
        return without_cast(made(_classic_column(node.child()))) if _kind(node) == "Cast" else column
    expression = _parent(_expression(column))
    return without_cast(made(expression._expr)) if type(expression).__name__ == "CastExpression" else column


def has_python_aggregate(columns: Iterable[Column], aggregated: DataFrame) -> bool:
    """Whether one of the columns that a frame aggregates calls a Python aggregate, which Spark can't combine early.

    A client of Connect can't tell for functions that are called by a registered name.
    """
    given: list[Any] = list(columns)
    if given and _is_classic(given[0]):
        plan: Any = aggregated
        return any(_calls_python(each) for each in _aggregates_of(plan._jdf.queryExecution().analyzed()))
    return any(_has(_expression(each), _is_python) for each in given)


def _aggregates_of(plan: Any) -> Iterator[Any]:
    while _kind(plan) != "Aggregate":
        plan = plan.children().apply(0)
    yield from _each(plan.aggregateExpressions())


def _calls_python(expression: Any) -> bool:
    # Not by the Column: there it is wrapped, and a function by its registered name is still text.
    return _kind(expression) == "PythonUDAF" or any(map(_calls_python, _each(expression.children())))


def _is_python(expression: Any) -> bool:
    return getattr(expression, "_eval_type", None) in _AGGREGATES


def _is_star(expression: Any) -> bool:
    return type(expression).__name__ == "UnresolvedStar"


def _has(expression: Any, wanted: Callable[[Any], bool]) -> bool:
    """Whether an expression of Connect, or what it calls, is one that is wanted."""
    if isinstance(expression, list | tuple):
        return any(_has(each, wanted) for each in expression)
    if not type(expression).__module__.startswith("pyspark.sql.connect"):
        return False
    return wanted(expression) or any(_has(each, wanted) for each in vars(expression).values())


def has_star(column: Column) -> bool:
    """Whether it is, or calls something of, all columns of its frame or of a struct."""
    return _has_star_node(_node(column)) if _is_classic(column) else _has(_expression(column), _may_be_star)


def _has_star_node(node: Any) -> bool:
    kind = _kind(node)
    if kind == "SqlExpression":
        return may_have_star(str(node.expression()))
    if kind == "ExpressionColumnNode":  # A Python function's, in which the arguments' nodes are wrapped.
        return _has_star_node(node.expression())
    if kind == "ColumnNodeExpression":
        return _has_star_node(node.node())
    return kind == "UnresolvedStar" or any(map(_has_star_node, _each(node.children())))


def _may_be_star(expression: Any) -> bool:
    return _is_star(expression) or (type(expression).__name__ == "SQLExpression" and may_have_star(expression._expr))


def number(column: Column) -> float | None:
    """The value of a numeric literal, or of a number as text."""
    text = _text(column)
    if text is not None:
        with suppress(ValueError):
            return float(text)
        return None
    if _is_classic(column):
        node = _node(column)
        value = node.value() if _kind(node) == "Literal" else None
    else:
        value = getattr(_expression(column), "_value", None)
    return float(value) if isinstance(value, int | float | Decimal) else None


def _classic_call(column: Any) -> Call | None:
    node = _without_alias(_node(column))
    if _kind(node) != "UnresolvedFunction":
        return None
    made = [_classic_column(each) for each in _each(node.arguments())]
    return _call(node.functionName(), _columns(column, made), node.isDistinct())


def _classic_column(node: Any) -> Any:
    from pyspark.sql.utils import get_active_spark_context

    jvm: Any = get_active_spark_context()._jvm
    return jvm.org.apache.spark.sql.Column(node)


def _connect_call(column: Any) -> Call | None:
    expression = _parent(_expression(column))
    if type(expression).__name__ not in ("UnresolvedFunction", "CallFunction"):
        return None
    return _call(expression._name, _columns(column, expression._args), getattr(expression, "_is_distinct", False))


def _call(name: str, arguments: tuple[Column, ...], distinct: bool) -> Call:
    name = name.lower()
    if name == "count" and not distinct and is_star(arguments[0]):
        arguments = (F.lit(1),)
    return Call(name, arguments, distinct)


def _text(column: Column) -> str | None:
    """What was given in SQL."""
    if _is_classic(column):
        node = _without_alias(_node(column))
        return str(node.expression()) if _kind(node) == "SqlExpression" else None
    expression = _parent(_expression(column))
    return str(expression._expr) if type(expression).__name__ == "SQLExpression" else None


def _text_call(text: str) -> Call | None:
    found = taken_apart(text)
    if not found:
        return None
    arguments = tuple(F.col("*") if each.strip() == "*" else F.expr(each) for each in found.arguments)
    condition = None if found.condition is None else F.expr(found.condition)
    return Call(found.name, arguments, found.distinct, condition)


def _columns(like: Any, inner: Iterable[Any]) -> tuple[Column, ...]:
    made: Any = type(like)
    return tuple(made(each) for each in inner)


def _is_classic(column: Column) -> bool:
    # Not by hasattr: to a Column, any attribute is a field.
    return "_jc" in vars(column)


def _node(column: Any) -> Any:
    return column._jc.node()


def _each(sequence: Any) -> Iterator[Any]:
    return (sequence.apply(place) for place in range(sequence.size()))


def _without_alias(node: Any) -> Any:
    while _kind(node) == "Alias":
        node = node.child()
    return node


def _kind(node: Any) -> str:
    return str(node.getClass().getSimpleName())


def _expression(column: Any) -> Any:
    return column._expr


def _parent(expression: Any) -> Any:
    while type(expression).__name__ == "ColumnAlias":
        expression = expression._child
    return expression
