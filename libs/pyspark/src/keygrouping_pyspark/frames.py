"""`skewed(frame, key)`: a groupBy whose hot keys are spread, with the columns and rows that it has without."""

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, GroupedData
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, NumericType, StructField, StructType

from keygrouping_pyspark.absent import absent
from keygrouping_pyspark.chained import Groups, chained, type_of_step
from keygrouping_pyspark.columns import Call, call_of, has_python_aggregate, has_star, is_star
from keygrouping_pyspark.combined import are_combined
from keygrouping_pyspark.errors import NotMergeableError, SkewError
from keygrouping_pyspark.hashing import columns_of, quoted, row_hash, type_of_by
from keygrouping_pyspark.in_parts import Spread, apply_in_parts, check_function, check_names, check_parts, parsed
from keygrouping_pyspark.merges import split
from keygrouping_pyspark.own import Mergeable, split_of, whole_of
from keygrouping_pyspark.placing import salt
from keygrouping_pyspark.splits import Split
from keygrouping_pyspark.widths import (
    check_can_learn,
    check_sample,
    given_widths,
    key_of,
    learned_widths,
    tasks_of,
    type_of_widths,
    width_of,
)
from keygrouping_pyspark.with_state import Parts, apply_with_states, check_modes, function_of_parts, processor_of_parts

type_of_spread = Literal["partials", "rows"]

_KEY, _WIDTH, _NULL = "__skewed_key", "__skewed_width", "__skewed_null"
_SESSION = "spark.sessionWindow"
_INSTEAD = 'leave spread out, or give spread="rows", with which Spark itself combines the rows of each task'


def skewed(
    frame: DataFrame,
    key: str | Column,
    *,
    widths: type_of_widths | DataFrame | None = None,
    by: type_of_by | None = None,
    partitions: int | None = None,
    spread: type_of_spread | None = None,
    sample: float = 0.01,
) -> "Skewed":
    """A frame, batch or stream, some of whose keys have very many rows.

    `widths`: into how many parts a key is split: a mapping {key: width}; a list of hot keys, which get a part on every
    task; the file of a report of `keygrouping inspect --json`; a frame with two columns, key and width, which a stream
    reads in each micro-batch if its source does. A batch without them learns them from a `sample` of its rows, in a
    pass of its own, when first there is something to spread.

    `by`: the columns, names or Columns, that say which part of its key a row belongs to; without them topic, partition
    and offset, or else all columns of which there is one of that name. Rows that are equal in them stay together.

    `partitions`: the number of tasks; `spark.sql.shuffle.partitions` unless given.

    `spread`: "partials" aggregates the parts of a key, then merges them: two aggregations, for batches and append mode.
    "rows" sends each part's rows to a task of its own, then lets Spark aggregate by key, for every aggregate and every
    output mode. Unless given: plain Spark for aggregates that it combines before its shuffle or spreads itself, such as
    sums and distinct counts; else "partials" for a batch whose aggregates are all known to merge to the same rows, and
    "rows" otherwise.
    """
    if spread not in (None, "partials", "rows"):
        raise SkewError(f'spread={spread!r}: "partials", "rows" or nothing')
    check_names(frame.columns)
    check_sample(sample)
    tasks = tasks_of(frame, partitions)
    column, kind = key_of(frame, key)
    hashed = partial(row_hash, frame, column, columns_of(frame, by))
    if isinstance(widths, DataFrame):
        joined, width = _looked_up(frame, column, kind, widths)
        return Skewed(frame, joined, column, hashed, tasks, spread, lambda: width)
    if widths is None:
        check_can_learn(frame)

        def hot() -> Column | None:
            return _hot(column, kind, learned_widths(frame, column, partitions=tasks, sample=sample))

        return Skewed(frame, frame, column, hashed, tasks, spread, hot)
    known = _hot(column, kind, given_widths(frame, kind, widths, tasks))
    return Skewed(frame, frame, column, hashed, tasks, spread, lambda: known)


def _hot(key: Column, kind: DataType, widths: Mapping[Any, int]) -> Column | None:
    return width_of(key, kind, widths) if any(each > 1 for each in widths.values()) else None


def _looked_up(frame: DataFrame, key: Column, kind: DataType, table: DataFrame) -> tuple[DataFrame, Column]:
    if len(table.columns) != 2:
        raise SkewError(f"widths: a frame of key and width is wanted, not of {', '.join(table.columns) or 'nothing'}")
    # One row for each key of the frame's type, as "1" and "01" are the same number; what is none is no key.
    known = table.toDF(_KEY, _WIDTH).select(
        F.col(_KEY).try_cast(kind).alias(_KEY),
        F.col(_KEY).isNull().alias(_NULL),
        F.col(_WIDTH).cast("int").alias(_WIDTH),
    )
    named = known.where(F.col(_NULL) | F.col(_KEY).isNotNull()).groupBy(_KEY).agg(F.max(_WIDTH).alias(_WIDTH))
    # Broadcast, so that all tasks of a micro-batch, and those that repeat one, see the same widths.
    joined = frame.join(F.broadcast(named), key.eqNullSafe(named[_KEY]), "left")
    return joined, F.greatest(F.coalesce(F.col(_WIDTH), F.lit(1)), F.lit(1))


@dataclass(frozen=True, eq=False)
class Skewed:
    """A frame whose hot keys are spread; made by `skewed`."""

    plain: DataFrame
    frame: DataFrame
    """With the widths, if those come from a frame."""
    key: Column
    find_hash: Callable[[], Column]
    """How a row's hash is found, which not every frame has."""
    tasks: int
    spread: type_of_spread | None
    find: Callable[[], Column | None]
    """How the widths are found, which may take a pass over the frame."""

    @property
    def others(self) -> list[str]:
        """Columns that are not the user's."""
        return self.frame.columns[len(self.plain.columns) :]

    @cached_property
    def width(self) -> Column | None:
        """None if no key is hot. Found when it is asked for first, as not all work needs it."""
        return self.find()

    @cached_property
    def hashed(self) -> Column:
        """What tells a key's rows apart."""
        return self.find_hash()

    def groupBy(self, *keys: str | int | Column | list[str | int | Column]) -> "SkewedGroups":
        """As `DataFrame.groupBy`: by names, Columns, and numbers of columns from 1."""
        given = [each for one in keys for each in (one if isinstance(one, list) else [one])]
        return SkewedGroups(self, [self._column(each) for each in given])

    groupby = groupBy

    if not TYPE_CHECKING:  # Type checkers and editors know what there is.

        def __getattr__(self, name: str) -> Any:
            return absent(self, name, DataFrame)

    def _column(self, key: str | int | Column) -> Column:
        if isinstance(key, int):
            if not 1 <= key <= len(self.plain.columns):
                raise SkewError(f"groupBy({key}): columns have numbers from 1 to {len(self.plain.columns)}")
            return self.plain[key - 1]
        return F.col(key) if isinstance(key, str) else key

    def part(self, width: Column) -> Column:
        """Which part of its key a row belongs to, from 0: a function of the row alone."""
        return F.when(width > 1, F.pmod(self.hashed, width.cast("long")).cast("int")).otherwise(0)

    def place(self, width: Column) -> Column:
        """The number of the task that a row goes to: parts of a key lie side by side, each on a task of its own."""
        part = self.part(F.least(width, F.lit(self.tasks)))
        return F.pmod(F.hash(self.key).cast("long") + part, F.lit(self.tasks)).cast("int")


class _Asked(NamedTuple):
    """An aggregate as plain Spark computes it, and its two steps if it knows them itself."""

    column: Column
    step: type_of_step | None


class SkewedGroups:
    """Groups of a frame whose hot keys are spread."""

    def __init__(self, skewed: Skewed, keys: list[Column]) -> None:
        self._skewed, self._keys = skewed, keys

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            return absent(self, name, GroupedData)

    def agg(self, *aggregates: Column | Mapping[str, str] | Mergeable) -> DataFrame:
        """As `GroupedData.agg`: the same columns, types and rows.

        An aggregate of the library `keygrouping` gives a column of its name, with its value as JSON text.

        With `spread="partials"`, an aggregate without a rule raises NotMergeableError.
        """
        source = self._skewed
        given: list[Any] = [self._whole(each) for each in aggregates]
        plain = source.plain.groupBy(*self._keys).agg(*given)
        asked = [each for one, whole in zip(aggregates, given, strict=True) for each in self._asked(one, whole, plain)]
        if has_python_aggregate([each.column for each in asked], plain):
            raise NotMergeableError(
                "Spark can't combine a Python aggregate before its shuffle: "
                "use applyInPandas(function, schema, merge=...) of the same groups, or an Aggregate of your own"
            )
        if not asked or (source.spread is None and self._are_combined(asked)):
            return plain
        if source.spread == "partials":
            return self._in_two_steps(asked, plain)
        if source.width is None:
            return plain
        if source.spread is None and not source.frame.isStreaming:
            with suppress(NotMergeableError):
                return self._by_partials(source.width, asked, plain.schema, sketches=False)
        placed = source.frame.repartition(source.tasks, salt(source.place(source.width), source.tasks))
        return placed.drop(*source.others).groupBy(*self._keys).agg(*given)

    def _in_two_steps(self, asked: list[_Asked], plain: DataFrame) -> DataFrame:
        source = self._skewed
        # First without hot keys, as what is refused must not depend on the data. Spark would leave a literal out of a
        # group.
        whole = self._by_partials(F.pmod(source.hashed, F.lit(1)), asked, plain.schema, sketches=True)
        if source.width is None:
            # A stream's widths may change with a new start, its aggregations may not.
            return whole if plain.isStreaming else plain
        return self._by_partials(source.width, asked, plain.schema, sketches=True)

    @staticmethod
    def _are_combined(asked: list[_Asked]) -> bool:
        """Whether a hot key is but a row of each task for Spark: it is quicker alone then."""
        return all(each.step is None for each in asked) and are_combined([each.column for each in asked])

    def count(self) -> DataFrame:
        """As `GroupedData.count`."""
        return self.agg(F.count(F.lit(1)).alias("count"))

    def sum(self, *cols: str) -> DataFrame:
        """As `GroupedData.sum`: of all numbers unless columns are named."""
        return self._of_numbers("sum", cols)

    def avg(self, *cols: str) -> DataFrame:
        """As `GroupedData.avg`."""
        return self._of_numbers("avg", cols)

    def mean(self, *cols: str) -> DataFrame:
        """As `GroupedData.mean`, whose columns are named as those of `avg`."""
        return self._of_numbers("avg", cols)

    def min(self, *cols: str) -> DataFrame:
        """As `GroupedData.min`."""
        return self._of_numbers("min", cols)

    def max(self, *cols: str) -> DataFrame:
        """As `GroupedData.max`."""
        return self._of_numbers("max", cols)

    def _of_numbers(self, name: str, columns: tuple[str, ...]) -> DataFrame:
        source = self._skewed.plain
        plain: DataFrame = getattr(source.groupBy(*self._keys), name)(*columns)  # refuses what is no number
        numbers = [quoted(each.name) for each in source.schema if isinstance(each.dataType, NumericType)]
        asked = [F.call_function(name, F.col(each)) for each in columns or numbers]
        return self.agg(*asked) if asked else plain

    def applyInPandas(
        self,
        function: Callable[..., Any],
        schema: StructType | str,
        *,
        merge: Callable[[Any], Any],
    ) -> DataFrame:
        """As `GroupedData.applyInPandas`: `function` gets a hot key's rows in parts, on several tasks.

        Of a stream it gets the rows of each micro-batch, as Spark's own does.

        `merge` gets what `function` has returned for all parts of a group, as one pandas frame with the columns of
        `schema`, and returns the group's result with the same columns. It is not called for groups that are not split;
        without the key among those of `groupBy`, most are, as each key has a task of its own.
        """
        source = self._skewed
        check_function(function)
        check_parts(source.plain, self._keys, parsed(schema))
        if source.width is None:
            return source.plain.groupBy(*self._keys).applyInPandas(function, schema)
        place = salt(source.place(source.width), source.tasks)
        spread = Spread(source.frame, place, source.tasks, source.others)
        return apply_in_parts(spread, self._keys, function, schema, merge)

    def applyInPandasWithState(
        self,
        func: Callable[..., Any],
        outputStructType: StructType | str,
        stateStructType: StructType | str,
        outputMode: str,
        timeoutConf: str,
        *,
        merge: Callable[[Any], Any],
    ) -> DataFrame:
        """As `GroupedData.applyInPandasWithState` in append mode, with a state for each part of a hot key's groups.

        `merge` gets what `func` has put out for several parts of a group in one micro-batch, as one pandas frame with
        the columns of `outputStructType`, and returns what it would have put out for all their rows. So in which
        micro-batch a row comes must follow from its group and the watermark, as when windows close, or it must be of
        that micro-batch's rows alone.

        What parts can't do, update mode and timeouts by processing time, raises SkewError.
        """
        check_modes(outputMode, timeoutConf)
        function = function_of_parts(func, len(self._skewed.plain.columns), parsed(outputStructType).names)

        def applied(groups: GroupedData, schema: StructType) -> DataFrame:
            return groups.applyInPandasWithState(function, schema, stateStructType, outputMode, timeoutConf)

        return apply_with_states(self._parts(), outputStructType, merge, applied)

    def transformWithStateInPandas(
        self,
        statefulProcessor: Any,
        outputStructType: StructType | str,
        outputMode: str,
        timeMode: str,
        *,
        merge: Callable[[Any], Any],
    ) -> DataFrame:
        """As `GroupedData.transformWithStateInPandas` in append mode, with states and timers for each part.

        `merge` and what is refused are as for `applyInPandasWithState`.
        """
        names = parsed(outputStructType).names
        modes = (outputMode, timeMode)
        return self._transformed("transformWithStateInPandas", statefulProcessor, names, outputStructType, modes, merge)

    def transformWithState(
        self,
        statefulProcessor: Any,
        outputStructType: StructType | str,
        outputMode: str,
        timeMode: str,
        *,
        merge: Callable[[Any], Any],
    ) -> DataFrame:
        """As `GroupedData.transformWithState`, which Spark has since 4.1, in append mode; its processor has Rows.

        `merge` gets a pandas frame nevertheless; it and what is refused are as for `applyInPandasWithState`.
        """
        modes = (outputMode, timeMode)
        return self._transformed("transformWithState", statefulProcessor, None, outputStructType, modes, merge)

    def _transformed(
        self,
        method: str,
        of_user: Any,
        names: list[str] | None,
        schema: StructType | str,
        modes: tuple[str, str],
        merge: Callable[[Any], Any],
    ) -> DataFrame:
        check_modes(*modes)
        processor = processor_of_parts(of_user, len(self._skewed.plain.columns), names)

        def applied(groups: GroupedData, partial: StructType) -> DataFrame:
            found: DataFrame = getattr(groups, method)(processor, partial, *modes)
            return found

        return apply_with_states(self._parts(), schema, merge, applied)

    def _parts(self) -> Parts:
        source = self._skewed
        width = F.lit(1) if source.width is None else F.least(source.width, F.lit(source.tasks))
        return Parts(source.frame, self._keys, source.part(width), source.tasks)

    def _by_partials(self, width: Column, asked: list[_Asked], schema: StructType, sketches: bool) -> DataFrame:
        try:
            return self._of_parts(width, asked, schema, sketches)
        except AnalysisException as error:
            # What Spark does not accept in two steps, it has accepted in one.
            why = str(error).partition("\n")[0]
            raise NotMergeableError(f"Spark can't aggregate it in parts: {_INSTEAD} ({why})") from error

    def _of_parts(self, width: Column, asked: list[_Asked], schema: StructType, sketches: bool) -> DataFrame:
        if any(_SESSION in field.metadata for field in schema.fields[: len(self._keys)]):
            raise NotMergeableError(f"parts of a session window would be sessions of their own: {_INSTEAD}")
        fields = schema.fields[len(self._keys) :]
        if len(fields) != len(asked):
            raise NotMergeableError(f"what makes several columns of one, or leaves out keys, is not merged: {_INSTEAD}")
        steps = [self._step(each, its, sketches) for each, its in zip(asked, fields, strict=True)]
        groups = Groups(self._skewed.frame, self._keys, self._skewed.part(width))
        merged = chained(groups, steps)
        named = merged.select(
            *(_named(F.col(name), field) for name, field in zip(merged.columns, schema.fields, strict=True)),
        )
        if named.schema != schema:
            raise NotMergeableError(f"merged, the columns would be {named.schema}, not {schema}: {_INSTEAD}")
        return named

    def _whole(self, aggregate: Any) -> Any:
        """As plain Spark computes it."""
        if isinstance(aggregate, Column | Mapping):
            return aggregate
        if isinstance(aggregate, Mergeable):
            return whole_of(aggregate, self._skewed.plain)
        raise SkewError(
            f'agg: {aggregate!r} is no aggregate: give Columns such as F.sum("amount"), a mapping such as '
            '{"amount": "sum"}, or what parse_aggregates returns'
        )

    def _asked(self, aggregate: Any, whole: Any, plain: DataFrame) -> list[_Asked]:
        if isinstance(aggregate, Mapping):
            return self._items(aggregate, plain.columns[len(plain.columns) - len(aggregate) :])
        own = None if isinstance(aggregate, Column) else partial(split_of, aggregate, self._skewed.plain)
        return [_Asked(whole, own)]

    def _items(self, aggregates: Mapping[str, str], names: list[str]) -> list[_Asked]:
        """Those of a mapping in the order of the columns that Spark makes of it, which may be that of their hashes."""
        groups = self._skewed.plain.groupBy(*self._keys)
        by_name = {
            groups.agg({column: name}).columns[-1]: _Asked(F.call_function(name, F.col(column)), None)
            for column, name in aggregates.items()
        }
        return [by_name[name] for name in names]

    def _step(self, asked: _Asked, field: StructField, sketches: bool) -> type_of_step:
        return asked.step or partial(self._split, asked.column, field, sketches)

    def _split(self, column: Column, field: StructField, sketches: bool, condition: Column | None) -> Split:
        call = self._call(column)
        if call and call.distinct and self._skewed.plain.isStreaming:
            raise NotMergeableError(
                f"{field.name}: Spark has no distinct aggregates in streams: use approx_count_distinct"
            )
        if call and (self._skewed.others or condition is not None) and any(map(has_star, call.arguments)):
            raise NotMergeableError(
                f"beside a frame of widths or a distinct aggregate, * has more columns: name yours, or {_INSTEAD}"
            )
        found = split(call, partial(self._types, call), field.dataType, sketches, condition) if call else None
        if not found:
            raise NotMergeableError(f"no partials of {field.name} are known to merge to the same rows: {_INSTEAD}")
        return found

    def _types(self, call: Call) -> list[DataType]:
        return [each.dataType for each in self._skewed.frame.select(*call.arguments).schema]

    def _call(self, column: Column) -> Call | None:
        """What it calls, with the user's columns for all columns."""
        call = call_of(column)
        if call and call.distinct and is_star(call.arguments[0]):
            return call._replace(arguments=tuple(F.col(quoted(each)) for each in self._skewed.plain.columns))
        return call


def _named(column: Column, field: StructField) -> Column:
    return column.alias(field.name, metadata=field.metadata) if field.metadata else column.alias(field.name)
