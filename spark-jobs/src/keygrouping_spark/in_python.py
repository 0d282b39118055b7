"""Aggregates that have no form in Spark expressions: their own code, in Spark's Python processes.

Spark gathers the values of a group, and the states of its partials, in lists; functions of plain Python make a state or
a value of each. So an aggregate computes here what it computes with the native runner, to the last bit that does not
depend on the order. All that travels is JSON text. Whatever the code raises is told, and ends no query.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import orjson
from keygrouping.aggregate import Aggregate
from keygrouping.aggregate.publishing import published
from keygrouping.partial import dump
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType

from keygrouping_spark.native import Native


class InPython(Native):
    """One aggregate of the job that only its own code can compute."""

    @property
    def json_type(self) -> DataType:
        return StringType()

    def state(self, *values: Column) -> Column:
        """The member of a partial's aggregates with the state: its name and JSON; in case of an error another name."""
        if not values:
            return F.udf(_member_of_count(self.aggregate), StringType())(F.count(F.lit(1)))
        row = F.struct(*(value.alias(f"v{index}") for index, value in enumerate(values)))
        return F.udf(_member(self.aggregate), StringType())(F.collect_list(row))

    def read(self, aggregates: Column, events: Column) -> Column:
        """JSON of the state in a partial of so many events, null if a worker can't have written it."""
        return F.udf(_sound(self.aggregate), StringType())(aggregates, events)

    def fits(self, state: Column, events: Column) -> Column:
        return state.isNotNull() & events.isNotNull()

    def merged(self, state: Column) -> Mapping[str, Column]:
        return {"states": F.collect_list(state)}

    def finished(self, merged: Mapping[str, Column]) -> Column:
        return F.udf(_finished(self.aggregate), StringType())(merged["states"])

    def published(self, value: Any) -> Any:
        return json.loads(value)["value"]

    def failure(self, value: Any) -> str:
        """What is wrong with a value that was finished ("": nothing)."""
        found: str = json.loads(value)["fault"]
        return found


def _member(aggregate: Aggregate) -> Callable[[list[Any]], str]:
    several = len(aggregate.inputs) > 1

    def member(rows: list[Any]) -> str:
        values = [tuple(map(_plain, row)) for row in rows]
        return _written(aggregate, values if several else [value for (value,) in values])

    return member


def _member_of_count(aggregate: Aggregate) -> Callable[[int], str]:
    return lambda events: _written(aggregate, [()] * events)


def _written(aggregate: Aggregate, values: list[Any]) -> str:
    try:
        state = orjson.dumps(aggregate.encode(aggregate.add_many(aggregate.initial(), values))).decode()
    except Exception as error:
        # A name that no aggregate has: the aggregator refuses such a partial, and the letter tells why.
        return f"{json.dumps(aggregate.name + ' failed')}:{json.dumps(aggregate.failed(error))}"
    return f"{json.dumps(aggregate.name)}:{state}"


def _plain(value: Any) -> Any:
    """A value of the events: numbers come as structs, see `sums`."""
    if isinstance(value, tuple):
        whole, real = value
        return real if whole is None else whole
    return value


def _sound(aggregate: Aggregate) -> Callable[[str | None, int | None], str | None]:
    def sound(aggregates: str | None, events: int | None) -> str | None:
        try:
            data = json.loads(aggregates or "")[aggregate.name]
            seen = aggregate.seen(aggregate.decode(data))
        except Exception:  # as anybody may have written it, and the code is not the library's
            return None
        return json.dumps(data) if events is not None and seen <= events else None

    return sound


def _finished(aggregate: Aggregate) -> Callable[[list[str]], str]:
    def whole(states: list[str]) -> Any:
        return aggregate.finish(reduce(aggregate.merge, map(aggregate.decode, map(json.loads, states))))

    def finished(states: list[str]) -> str:
        value, fault = published(aggregate, whole, states)
        return dump({"value": value, "fault": fault}).decode()

    return finished
