"""One small Spark for all tests of the package."""

import os
import sys

import pytest
from keygrouping_local.small_spark import fast_start
from keygrouping_spark.testing import spark_of
from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    return spark_of("libs/pyspark", start)


def start() -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    session = (
        SparkSession.builder.master("local[2]")
        .config(map={**fast_start()})
        .config("spark.driver.memory", "1g")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.session.timeZone", "Europe/Berlin")
        .config("spark.sql.shuffle.partitions", 2)
        # The tests' rows are few: compiling a query would take longer than running it.
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("FATAL")
    return session
