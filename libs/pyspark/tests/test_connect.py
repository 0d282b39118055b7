"""The same with Spark Connect, in a process of its own: a process has sessions of one kind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from keygrouping_local.small_spark import submit_arguments

pytestmark = pytest.mark.spark

PROGRAM = """
from keygrouping.spark import NotMergeableError, skewed, skewed_join
from pyspark.sql import SparkSession, functions as F

spark = (
    SparkSession.builder.remote("local[1]")
    .config("spark.sql.shuffle.partitions", 2)
    .config("spark.sql.codegen.wholeStage", "false")
    .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    .getOrCreate()
)
assert "connect" in type(spark).__module__
user = F.when(F.col("id") % 5 > 0, "hot").otherwise("cold")
frame = spark.range(200).select(user.alias("user"), "id", (F.col("id") % 7).alias("item"))
asked = [
    F.sum("id").alias("sum", metadata={"of": "id"}), F.count("*"), F.stddev("item"), F.count_distinct("item"),
    F.count_distinct("id", "item"), F.median("id"), F.expr("avg(DISTINCT id) FILTER (WHERE item > 3) AS mean"),
    F.count_distinct("*"),
]

def told(frame):
    rows = [[round(each, 12) if isinstance(each, float) else each for each in row] for row in frame.collect()]
    return sorted(map(str, rows))

for spread in ("partials", "rows"):
    found = skewed(frame, "user", widths=["hot"], spread=spread).groupBy("user").agg(*asked)
    plain = frame.groupBy("user").agg(*asked)
    assert found.schema == plain.schema, (found.schema, plain.schema)
    assert told(found) == told(plain), (told(found), told(plain))
learned = skewed(frame, "user", sample=1.0)
for asked, combined in ((F.size(F.collect_set("item")), False), (F.round(F.avg("item").cast("float"), 2) + 1, True)):
    found, plain = learned.groupBy("user").agg(asked), frame.groupBy("user").agg(asked)
    assert sorted(found.collect()) == sorted(plain.collect())
    assert ("width" not in vars(learned)) == combined, "found for what is spread alone"
    learned = skewed(frame, "user", sample=1.0)
sketched = skewed(frame, "user", widths=["hot"], spread="partials").groupBy("user")
assert {row[1] for row in sketched.agg(F.approx_count_distinct("item", 0.02)).collect()} == {7}
table = spark.createDataFrame([("hot", 2)], "user string, parts int")
starred = F.collect_list(F.struct("*"))
found, plain = skewed(frame, "user", widths=table).groupBy("user").agg(starred), frame.groupBy("user").agg(starred)
assert found.schema == plain.schema and found.count() == plain.count()
for refused, why in (
    (starred, "* has more columns"),
    (F.max(F.expr("to_json(struct(*))")), "* has more columns"),
    (F.expr("collect_set(parse_json('1'))"), "Spark can't aggregate it in parts"),
):
    try:
        skewed(frame, "user", widths=table, spread="partials").groupBy("user").agg(refused)
    except NotMergeableError as error:
        assert why in str(error), error
    else:
        raise AssertionError(f"not refused: {refused}")
mean = F.pandas_udf(lambda values: float(values.mean()), "double", F.PandasUDFType.GROUPED_AGG)
for refused in (mean("id"), mean("id").alias("mean"), mean("id") + 1):
    try:
        sketched.agg(F.sum("id"), refused)
    except NotMergeableError as error:
        assert "applyInPandas" in str(error), error
    else:
        raise AssertionError("a Python aggregate was not refused")

def sizes(rows):
    return rows[["user"]][:1].assign(rows=len(rows))

def added(parts):
    return parts.groupby("user", as_index=False).sum()

groups = skewed(frame, "user", widths=["hot"]).groupBy("user")
found = groups.applyInPandas(sizes, "user string, rows long", merge=added)
assert sorted(map(tuple, found.collect())) == [("cold", 40), ("hot", 160)]
plans = spark.createDataFrame([("hot", 1), ("hot", 2)], "user string, plan int")
assert skewed_join(frame, plans, "user", widths=["hot"]).count() == 320
spark.stop()
print("all is the same")
"""


@pytest.mark.timeout(600)
def test_a_client_of_connect_has_the_rows_of_plain_spark(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=tmp_path,
        env=os.environ | {"PYSPARK_PYTHON": sys.executable, "PYSPARK_SUBMIT_ARGS": submit_arguments()},
        capture_output=True,
        text=True,
        check=False,
        timeout=580,  # three sessions of Spark start beside it
    )
    assert done.stdout.endswith("all is the same\n"), done.stderr[-4000:]
