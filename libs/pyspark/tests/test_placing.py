"""Spark puts a row on the very task that is asked for."""

import pytest
from keygrouping_pyspark.placing import salt
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("tasks", [1, 7, 200])
def test_a_salt_sends_a_row_to_its_task(spark: SparkSession, tasks: int) -> None:
    key = F.when(F.col("id") % 9 > 0, F.concat(F.lit("k"), F.col("id")))
    rows = spark.range(2000, numPartitions=1).select("id", key.alias("key"), (F.col("id") % tasks).alias("task"))
    alone = rows.repartition(tasks, salt(F.col("task"), tasks))
    after = rows.withColumn("salt", salt(F.col("task"), tasks, F.col("key"), F.col("id")))
    for placed in (alone, after.repartition(tasks, "key", "id", "salt")):
        assert placed.where(F.spark_partition_id() != F.col("task")).count() == 0
