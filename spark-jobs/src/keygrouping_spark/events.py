"""Reads what the job needs of a routed record, in native Spark expressions.

The router has refused every record that the job can't use (`JobSpec.extract`), so nothing is judged here again; this
only must read the same values from the same bytes, as the job declares them. Members are read as variants, which know
their JSON types: a field of the wrong type is as good as missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal

from keygrouping.instants import RFC_3339
from keygrouping.job import KEY, MOST_IN_TEXT, UNIT_MS, WEIGHT, Field, FieldKind, Format, JobSpec, Source, parse_path
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StringType, StructField, StructType, VariantType

_UNLIMITED = str(2**31 - 1)
# The router's parser is strict about syntax and has no limits on lengths; depth is limited by the router's to 1024.
_JSON_OPTIONS = {
    "allowSingleQuotes": "false",
    "maxNestingDepth": "2000",
    "maxNumLen": _UNLIMITED,
    "maxStringLen": _UNLIMITED,
}
_WHOLE = "BIGINT"
_ISO = rf"^{RFC_3339}\z"


def needs_headers(job: JobSpec) -> bool:
    """Whether the Kafka source must deliver the headers."""
    return job.key.kind == "header"


def extract(records: DataFrame, job: JobSpec) -> DataFrame:
    """Columns partition, offset, key, weight, time (ms) and one `field<i>` per entry of `job.fields`.

    `records` has the columns of Spark's Kafka source. A missing or null field is null. A number, and a weight that is
    a field, is a struct, see `sums`.
    """
    document = _DOCUMENTS[job.format]()
    wanted = [_field(wanted, document) for wanted in job.fields]
    key, weight, time = _key(job.key, document), _weight(job.weight, document), _time(job.time, document)
    parsed = records.withColumns(document.columns()) if document.layers else records
    fields = [column.alias(field_column(index)) for index, column in enumerate(wanted)]
    columns = [key.alias("key"), weight.alias("weight"), time.alias("time"), *fields]
    return parsed.select("partition", "offset", *columns).where("key is not null and time is not null")


def field_column(index: int) -> str:
    """Name of the column with the values of `job.fields[index]`."""
    return f"field{index}"


def _field(wanted: Field, document: _Document) -> Column:
    return _READERS[wanted.kind](wanted.path, document)


def _present(path: tuple[str, ...], document: _Document) -> Column:
    """1, null where the member is missing or null."""
    return F.when(document.member(path, StringType()).isNotNull(), 1)


def _number(path: tuple[str, ...], document: _Document) -> Column:
    """A JSON number as the integer that it is, `whole`, or else as the float64 `real`; null for anything else."""
    value = document.member(path, VariantType())
    kind = F.schema_of_variant(value)
    is_whole, is_real = kind == _WHOLE, kind.startswith("DECIMAL") | (kind == "DOUBLE")
    whole = F.when(is_whole, F.variant_get(value, "$", "bigint"))
    real = F.when(is_real, F.variant_get(value, "$", "double"))
    return F.when(is_whole | is_real, F.struct(whole.alias("whole"), real.alias("real")))


def _text(path: tuple[str, ...], document: _Document) -> Column:
    """A JSON string, or the digits of an integer up to `MOST_IN_TEXT`; null for anything else."""
    value = document.member(path, VariantType())
    kind = F.schema_of_variant(value)
    # A variant holds larger integers as it holds fractions without fraction, so the digits are looked at once more.
    written = document.written(path)
    most = F.lit(Decimal(MOST_IN_TEXT)).cast("decimal(20,0)")
    is_long = written.rlike("^[0-9]{19,20}$") & (written.try_cast("decimal(20,0)") <= most)
    return F.when(kind.isin("STRING", _WHOLE), F.variant_get(value, "$", "string")).when(
        kind.isin("DECIMAL(19,0)", "DECIMAL(20,0)"), F.when(is_long, written)
    )


def _key(source: Source, document: _Document) -> Column:
    if source.kind == "record":
        return F.col("key")
    if source.kind == "header":
        found = F.filter(F.col("headers"), lambda header: header["key"] == source.name)
        return F.try_element_at(found, F.lit(-1))["value"]
    return _field(Field(parse_path(source.name), KEY), document).cast("binary")


def _weight(source: Source, document: _Document) -> Column:
    if source.kind == "one":
        return F.lit(1).cast("long")
    if source.kind == "size":
        return F.coalesce(F.octet_length("value"), F.lit(0)).cast("long")
    return _field(Field(parse_path(source.name), WEIGHT), document)


def _time(source: Source, document: _Document) -> Column:
    if source.kind == "timestamp":
        return F.unix_millis("timestamp")
    path = parse_path(source.name)
    if source.unit == "iso":
        return _iso_millis(_text(path, document))
    return F.try_multiply(_number(path, document)["whole"], F.lit(UNIT_MS[source.unit]))


def _iso_millis(text: Column) -> Column:
    """Milliseconds of an RFC 3339 text, cut off as by `keygrouping.instants`.

    The offset is applied by hand: Spark knows none beyond 18 hours.
    """
    day, clock, fraction, sign, hours, minutes = (F.regexp_extract(text, _ISO, group) for group in range(1, 7))
    local = F.unix_seconds(F.try_to_timestamp(F.concat(day, F.lit(" "), clock))) * 1000
    offset = F.coalesce(hours.try_cast("long"), F.lit(0)) * 60 + F.coalesce(minutes.try_cast("long"), F.lit(0))
    milliseconds = F.rpad(fraction, 3, "0").cast("long")
    return local + milliseconds + F.when(sign == "-", offset).otherwise(-offset) * 60_000


class _Layer(dict[str, "DataType | _Layer"]):
    """Members of a JSON object that can be read together: each has one type."""

    def fits(self, path: tuple[str, ...], kind: DataType) -> bool:
        """Whether a path can be read as `kind` beside what is already here."""
        head, rest = path[0], path[1:]
        taken = self.get(head)
        if isinstance(taken, _Layer):
            return bool(rest) and taken.fits(rest, kind)
        return taken is None or (not rest and taken == kind)

    def add(self, path: tuple[str, ...], kind: DataType) -> None:
        """Adds a member that fits."""
        inner: _Layer = self
        for name in path[:-1]:
            below = inner.setdefault(name, _Layer())
            assert isinstance(below, _Layer)
            inner = below
        inner[path[-1]] = kind

    def schema(self) -> StructType:
        members = ((name, kind.schema() if isinstance(kind, _Layer) else kind) for name, kind in self.items())
        return StructType([StructField(name, kind) for name, kind in members])


@dataclass
class _Document:
    """The JSON value, parsed once; once more for members that are wanted as two types."""

    layers: list[_Layer] = field(default_factory=list)

    def member(self, path: tuple[str, ...], kind: DataType) -> Column:
        """The member at a path, null if it is missing."""
        index = next((i for i, layer in enumerate(self.layers) if layer.fits(path, kind)), len(self.layers))
        if index == len(self.layers):
            self.layers.append(_Layer())
        self.layers[index].add(path, kind)
        column = F.col(f"document{index}")
        for name in path:
            column = column.getField(name)
        return column

    def written(self, path: tuple[str, ...]) -> Column:
        """The member at a path as text, by a parse of its own where it is asked for: to be used in a branch."""
        layer = _Layer()
        layer.add(path, StringType())
        column = F.from_json(F.col("value").cast("string"), layer.schema(), _JSON_OPTIONS)
        for name in path:
            column = column.getField(name)
        return column

    def columns(self) -> dict[str, Column]:
        """One parse of the value per layer."""
        text = F.col("value").cast("string")
        return {
            f"document{index}": F.from_json(text, layer.schema(), _JSON_OPTIONS)
            for index, layer in enumerate(self.layers)
        }


_READERS: dict[FieldKind, Callable[[tuple[str, ...], _Document], Column]] = {
    "number": _number,
    "text": _text,
    "any": _present,
}
_DOCUMENTS: dict[Format, type[_Document]] = {"json": _Document}
"""What reads the values of each format, beside the library's codec."""
