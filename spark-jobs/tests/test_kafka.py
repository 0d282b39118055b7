"""Options of Spark's Kafka source."""

from keygrouping_spark.kafka import source_options
from keygrouping_spark.settings import SparkSettings


def test_a_poll_brings_many_records_as_spark_asks_for_offsets_after_each() -> None:
    settings = SparkSettings(bootstrap_servers="none:9", checkpoint="none", job='{"aggregates": []}', batch_records=7)
    options = source_options(settings, "routed")
    assert int(options["kafka.max.poll.records"]) >= 10_000
    assert int(options["kafka.max.partition.fetch.bytes"]) > 1 << 20
    assert options["maxOffsetsPerTrigger"] == "7"
