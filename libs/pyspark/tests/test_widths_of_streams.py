"""A table of widths that changes while a stream runs."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from keygrouping.spark import skewed
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.datasource import DataSource, DataSourceReader

from .same import results

pytestmark = pytest.mark.spark

BATCHES = 5
WIDTHS: list[dict[str, int]] = [{}, {"hot": 4}, {"hot": 2, "k1": 3}, {"k1": 1, "gone": 9}, {}]
"""As they are when each micro-batch begins."""


class Table(DataSource):
    """Keys and widths of a JSON file, as it is when it is read."""

    @classmethod
    def name(cls) -> str:
        return "table_of_widths"

    def schema(self) -> str:
        return "key string, width int"

    def reader(self, schema: Any) -> DataSourceReader:
        del schema
        return Reader(Path(self.options["file"]))


class Reader(DataSourceReader):
    def __init__(self, file: Path) -> None:
        self._file = file

    def read(self, partition: Any) -> Iterator[tuple[Any, ...]]:
        del partition
        yield from json.loads(self._file.read_text()).items()


def write_clicks(folder: Path) -> None:
    """A file for each micro-batch, ten seconds later than the one before; one row in each ends the windows before."""
    folder.mkdir()
    for batch in range(BATCHES):
        rows = [
            {"user": "hot" if n % 3 else f"k{n % 4}", "ts": f"2026-01-01T00:{batch:02}:{n % 60:02}Z", "n": n}
            for n in range(300)
        ]
        path = folder / f"{batch}.json"
        path.write_text("\n".join(map(json.dumps, rows)))
        os.utime(path, (batch, batch))  # by which Spark orders them


def test_widths_may_change_from_one_micro_batch_to_the_next(spark: SparkSession, tmp_path: Path) -> None:
    """Windows that are open meanwhile lose nothing; a key has as many sub-keys as the table says."""
    spark.dataSource.register(Table)
    table = tmp_path / "widths.json"
    write_clicks(tmp_path / "source")
    stream = spark.readStream.schema("user string, ts timestamp, n long").option("maxFilesPerTrigger", 1)
    clicks = stream.json(str(tmp_path / "source")).withWatermark("ts", "90 seconds")
    keys = F.window("ts", "2 minutes"), F.col("user")
    plain = results(clicks.groupBy(*keys).agg(F.sum("n"), F.count("*")), "append", tmp_path / "plain")
    rows: list[list[Any]] = []

    def seen(frame: DataFrame, number: int) -> None:
        rows.append(sorted(map(tuple, frame.collect()), key=repr))
        table.write_text(json.dumps(WIDTHS[min(number + 1, BATCHES - 1)]))

    table.write_text(json.dumps(WIDTHS[0]))
    widths = spark.read.format(Table.name()).option("file", str(table)).load()
    found = skewed(clicks, "user", widths=widths, spread="partials").groupBy(*keys).agg(F.sum("n"), F.count("*"))
    query = found.writeStream.outputMode("append").option("checkpointLocation", str(tmp_path / "found"))
    running = query.foreachBatch(seen).trigger(availableNow=True).start()
    assert running.awaitTermination(560)
    assert rows == plain
    assert any(plain)
    sub_keys = [told.stateOperators[-1].numRowsUpdated for told in running.recentProgress]
    assert sub_keys[:BATCHES] == [5, 5 + 3, 5 + 1 + 2, 5, 5], "five keys, and the further parts that WIDTHS says"
