"""What is said when Spark does not start."""

import pytest
from keygrouping_service.errors import Fatal
from keygrouping_spark import session
from keygrouping_spark.settings import SparkSettings
from py4j.protocol import Py4JError


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
    ("checkpoint", "local"), [("/a b", True), ("file:/a", True), ("c", True), ("s3a://b/c", False)]
)
def test_only_a_folder_that_a_driver_has_locked_is_written_without_care_for_others(
    checkpoint: str, local: bool
) -> None:
    settings = SparkSettings(bootstrap_servers="none:9", checkpoint=checkpoint, job='{"aggregates": []}')
    assert ("spark.sql.streaming.checkpointFileManagerClass" in session.configuration(settings)) == local
