"""What is said when Spark does not start, and how much when it runs."""

import subprocess
import sys
from typing import Any

import pytest
from keygrouping_service.errors import Fatal
from keygrouping_spark import session
from keygrouping_spark.settings import SparkSettings
from py4j.protocol import Py4JError
from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            Py4JError("An error occurred\n\tat org.x\nCaused by: java.A: outer\nCaused by: java.B: connection refused"),
            "Spark does not start: java.B: connection refused",
        ),
        (OSError("java: not found"), "Spark does not start: java: not found: is a JDK 17 or 21 installed?"),
    ],
)
def test_one_line_names_the_cause(monkeypatch: pytest.MonkeyPatch, error: Exception, told: str) -> None:
    def fail(_: object) -> None:
        raise error

    monkeypatch.setattr("pyspark.sql.SparkSession.Builder.getOrCreate", fail)
    settings = SparkSettings(bootstrap_servers="k:1", job='{"aggregates": []}', checkpoint="/c")
    with pytest.raises(Fatal) as refused:
        session.create(settings)
    assert str(refused.value) == told


@pytest.mark.parametrize(
    ("version", "place"),
    [("4.0.5", ""), ("4.1.1", "runtime."), ("4.2.0", "runtime."), ("4.10.0.dev1", "runtime.")],
)
def test_inner_classes_are_named_as_the_version_has_them(version: str, place: str) -> None:
    found = session.inner_class("runtime", "MicroBatchExecution", version)
    assert found == f"org.apache.spark.sql.execution.streaming.{place}MicroBatchExecution"


def test_a_version_that_cannot_start_a_query_again_is_refused_in_one_line() -> None:
    with pytest.raises(
        Fatal, match=r"Spark 4\.1\.1 can't run this job.*SPARK-55271.*Use Spark 4\.2 or 4\.0"
    ) as refused:
        session.require_version("4.1.1")
    assert "\n" not in str(refused.value)
    for version in ("4.0.5", "4.2.0", "4.10.0.dev1"):
        session.require_version(version)


@pytest.mark.spark
def test_the_inner_classes_are_there_in_the_version_that_runs(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    for package, name in (
        ("checkpointing", "FileSystemBasedCheckpointFileManager"),
        ("runtime", "MicroBatchExecution"),
        ("runtime", "ProcessingTimeExecutor"),
    ):
        assert jvm.java.lang.Class.forName(session.inner_class(package, name)).getSimpleName() == name


@pytest.mark.parametrize(
    ("checkpoint", "local"), [("/a b", True), ("file:/a", True), ("c", True), ("s3a://b/c", False)]
)
def test_only_a_folder_that_a_driver_has_locked_is_written_without_care_for_others(
    checkpoint: str, local: bool
) -> None:
    settings = SparkSettings(bootstrap_servers="none:9", checkpoint=checkpoint, job='{"aggregates": []}')
    assert ("spark.sql.streaming.checkpointFileManagerClass" in session.configuration(settings)) == local


_A_JOB = """
from keygrouping_spark import session
from keygrouping_spark.settings import SparkSettings

settings = SparkSettings(
    bootstrap_servers="none:9", checkpoint="none", job='{"aggregates": []}', spark_log_level="INFO"
)
session.create(settings).range(3).count()
"""


@pytest.mark.spark
def test_spark_says_more_if_it_shall() -> None:
    done = subprocess.run([sys.executable, "-c", _A_JOB], capture_output=True, text=True, check=True)
    assert "INFO DAGScheduler" in done.stderr
