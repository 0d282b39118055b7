"""One Spark session for all tests that compare expressions with the library."""

import pytest
from keygrouping_local import archives
from keygrouping_local.jars import default_jars_dir
from keygrouping_local.small_spark import java_options
from keygrouping_spark import session
from keygrouping_spark.settings import SparkSettings
from keygrouping_spark.testing import spark_of
from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def spark() -> SparkSession:
    settings = SparkSettings(
        bootstrap_servers="none:9",
        checkpoint="none",
        job='{"aggregates": []}',
        jars=default_jars_dir() / "spark",  # unused, but the archive fits no other class path
        shuffle_partitions=2,
        driver_memory="1g",
        java_options=java_options(archives.reading("spark")),
    )
    return spark_of("spark-jobs", lambda: session.create(settings))
