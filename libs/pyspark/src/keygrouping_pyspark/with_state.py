"""Functions with a state on the parts of hot keys of a stream, and the merge of what the parts put out together.

The state is kept by (group, part). What comes after it is no second stateful operator: parts are merged within a
micro-batch, where all of them put out what depends on its rows, or on a timeout that its watermark has reached.
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, GroupedData
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from keygrouping_pyspark.errors import SkewError
from keygrouping_pyspark.in_parts import (
    GROUP,
    PART,
    checked_types,
    labelled,
    merged_parts,
    parsed,
    told_apart,
    with_part,
)
from keygrouping_pyspark.placing import salt

_INSTEAD = (
    "do the work of each micro-batch by applyInPandas(function, schema, merge=...), "
    "and keep a state of its results by Spark's own function of the same name"
)
_APPENDS, _IDLE = "append", "processingtime"
_AS_TEXT = {
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "dateFormat": "yyyy-MM-dd",
    "ignoreNullFields": "false",
}
"""A group's text is part of a state's key, so no setting of the session may change it."""


class Parts(NamedTuple):
    """A frame, and to which part of its group a row belongs."""

    frame: DataFrame
    keys: list[Column]
    part: Column
    tasks: int


def check_modes(output_mode: str, times: str) -> None:
    """Refuses what parts can't do on their own: their latest rows are of different batches, as is their idleness."""
    if output_mode.lower() != _APPENDS:
        raise SkewError(f"outputMode {output_mode!r}: a part without rows would have none to merge; {_INSTEAD}")
    if times.lower().startswith(_IDLE):
        raise SkewError(f"{times}: the parts of a key are idle at different times; {_INSTEAD}")


def apply_with_states(
    parts: Parts,
    schema: StructType | str,
    merge: Callable[[Any], Any],
    applied: Callable[[GroupedData, StructType], DataFrame],
) -> DataFrame:
    """What `applied` makes of groups by (keys, part), then `merge` by keys of what several parts put out in a batch.

    Whatever the widths, the plan and the state's schema are the same, so that they may change with a new start.
    """
    wanted = parsed(schema)
    # As columns, since Spark takes nothing else for groups with a state.
    partial = applied(with_parts(parts).groupBy(*parts.keys, GROUP, PART), with_part(wanted))
    return merged_parts(partial, parts.tasks, wanted, merge)


def with_parts(parts: Parts) -> DataFrame:
    """With the text of its group, and what stands for the part, beside each row."""
    types = checked_types(parts.frame, parts.keys)
    told = [each for key, kind in zip(parts.keys, types, strict=True) for each in told_apart(key, kind)]
    # A text, as pandas has it alike in all batches; numbers beside a null are others there.
    texts = F.struct(F.lit(0).alias("k"), *(each.alias(f"k{place}") for place, each in enumerate(told)))
    group = F.to_json(texts, _AS_TEXT)
    return parts.frame.withColumn(GROUP, group).withColumn(PART, _salt(parts))


def _salt(parts: Parts) -> Column:
    """Of the first part 0, whatever the number of tasks: states of keys that are not split then stay where they are.

    Of the others what brings them to the tasks behind it, by Spark's own placement of states, which hashes all keys.
    """
    before = [*parts.keys, F.col(GROUP)]
    task = F.pmod(F.hash(*before, F.lit(0)).cast("long") + parts.part, F.lit(parts.tasks)).cast("int")
    # Never null, with and without hot keys and ANSI mode: that belongs to the type of a state's key.
    return F.coalesce(F.when(parts.part > 0, salt(task, parts.tasks, *before)).otherwise(F.lit(0)), F.lit(0))


def function_of_parts(function: Callable[..., Any], columns: int, names: list[str]) -> Callable[..., Any]:
    """The user's function for `applyInPandasWithState`, and of how many columns; Spark sends it by value."""
    label, given = labelled(names), _frames_of_user(columns)

    def of_part(key: Any, frames: Any, state: Any) -> Iterator[Any]:
        for found in function(key[:-2], given(frames), state):
            yield label(found, key[-1], key[-2])

    return of_part


def processor_of_parts(processor: Any, columns: int, names: list[str] | None) -> Any:
    """The user's processor, and of how many columns; Spark sends it by value.

    `names`: of what it puts out for `transformWithStateInPandas`; None for `transformWithState`.
    """
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    label = labelled(names) if names else _labelled_row()
    given = _frames_of_user(columns) if names else _rows_of_user(columns)

    class OfParts(StatefulProcessor):
        def init(self, handle: Any) -> None:
            processor.init(handle)

        def handleInputRows(self, key: Any, rows: Any, timerValues: Any) -> Iterator[Any]:
            for found in processor.handleInputRows(key[:-2], given(rows), timerValues):
                yield label(found, key[-1], key[-2])

        def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[Any]:
            for found in processor.handleExpiredTimer(
                key=key[:-2], timerValues=timerValues, expiredTimerInfo=expiredTimerInfo
            ):
                yield label(found, key[-1], key[-2])

        def close(self) -> None:
            processor.close()

    return OfParts()


def _frames_of_user(columns: int) -> Callable[[Any], Any]:
    """By place: `transformWithStateInPandas` gives columns other names if they begin with an underscore."""

    def given(frames: Any) -> Any:
        return (each.iloc[:, :columns] for each in frames)

    return given


def _rows_of_user(columns: int) -> Callable[[Any], Any]:
    def given(rows: Any) -> Any:
        from pyspark.sql import Row

        for row in rows:
            yield Row(*row.__fields__[:columns])(*row[:columns])

    return given


def _labelled_row() -> Callable[[Any, Any, Any], Any]:
    part, group = PART, GROUP

    def label(row: Any, its_part: Any, its_group: Any) -> Any:
        return type(row)(**row.asDict(), **{part: its_part, group: its_group})

    return label
