"""Aggregates that have no form in Spark expressions: their own code, in Spark's Python processes.

Spark gathers the states of a group's partials in a list, of which a function of plain Python makes the value. So an
aggregate computes here what it computes with the native runner, to the last bit that does not depend on the order. All
that travels is JSON text. Whatever the code raises is told, and ends no query.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

from keygrouping.aggregate import Aggregate
from keygrouping.aggregate.publishing import published
from keygrouping.partial import dump
from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from keygrouping_spark.native import Native


class InPython(Native):
    """One aggregate of the job that only its own code can compute."""

    def merged(self, state: Column) -> Mapping[str, Column]:
        return {"states": F.collect_list(state)}

    def finished(self, merged: Mapping[str, Column]) -> Column:
        return F.udf(_finished(self.aggregate), StringType(), useArrow=False)(merged["states"])

    def published(self, value: Any) -> Any:
        return json.loads(value)["value"]

    def failure(self, value: Any) -> str:
        """What is wrong with a value that was finished ("": nothing)."""
        found: str = json.loads(value)["fault"]
        return found


def _finished(aggregate: Aggregate) -> Callable[[list[str]], str]:
    def whole(states: list[str]) -> Any:
        return aggregate.finish(reduce(aggregate.merge, map(aggregate.decode, map(json.loads, states))))

    def finished(states: list[str]) -> str:
        value, fault = published(aggregate, whole, states)
        return dump({"value": value, "fault": fault}).decode()

    return finished
