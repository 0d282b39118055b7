"""Executors follow the workers in use: on a cluster of local processes, with real executors."""

import asyncio
import subprocess
import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest
from keygrouping_local.small_spark import java_options
from keygrouping_spark.executors import Executors

# Mocks of what Java answers; the whole is tested below on a cluster.
CASES = {"one process": (True, False), "dynamic allocation": (False, True)}


@pytest.mark.parametrize("case", CASES)
async def test_where_the_number_is_not_the_routers_it_is_left_alone(case: str) -> None:
    local, dynamic = CASES[case]
    spark = MagicMock()
    context = spark.sparkContext._jsc.sc()
    context.isLocal = MagicMock(return_value=local)
    answers = {"spark.dynamicAllocation.enabled": dynamic}
    context.getConf().getBoolean = MagicMock(side_effect=lambda name, other: answers.get(name, other))
    async with asyncio.timeout(10):
        await Executors(spark).follow(lambda: 3, 0.01)
    context.requestTotalExecutors.assert_not_called()


PROGRAM = """
import asyncio, os, sys, time
import pyspark
os.environ.setdefault("SPARK_HOME", os.path.dirname(pyspark.__file__))
from pyspark.sql import SparkSession
from keygrouping_spark.executors import Executors

settings = {"spark.executor.memory": "500m", "spark.driver.host": "127.0.0.1", "spark.ui.enabled": "false",
            "spark.driver.bindAddress": "127.0.0.1", "spark.driver.extraJavaOptions": sys.argv[1],
            "spark.executor.extraJavaOptions": sys.argv[1]}
builder = SparkSession.builder.master("local-cluster[2,1,600]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
executors = Executors(spark)

async def becomes(number):
    deadline = time.monotonic() + 300
    while len(executors.ids()) != number and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
    print(number, len(executors.ids()), spark.sparkContext.parallelize(range(100), 4).sum(), flush=True)

async def main():
    workers = 0
    following = asyncio.create_task(executors.follow(lambda: workers, 0.2))
    for workers in (2, 1, 2):
        await becomes(workers)
    following.cancel()

assert executors.are_apart
asyncio.run(main())
spark.stop()
"""


@pytest.mark.spark
@pytest.mark.long
@pytest.mark.timeout(1100)
def test_there_are_as_many_executors_as_workers_and_no_task_is_lost(tmp_path: Path) -> None:
    # A process of its own: there is one Spark context in each, and the other tests have theirs.
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, java_options([])], cwd=tmp_path, capture_output=True, text=True, timeout=1000
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == ["2 2 4950", "1 1 4950", "2 2 4950"]
