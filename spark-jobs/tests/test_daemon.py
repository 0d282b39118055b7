"""Spark's Python processes begin a task without reading again what has not changed."""

import logging
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark]


def directories_read(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: how many archives Python knows, and of how many it reads the directory before a task."""
    import importlib
    import sys
    import zipimport

    list(batches)
    known = sum(isinstance(finder, zipimport.zipimporter) for finder in sys.path_importer_cache.values())
    read: list[str] = []
    inside: Any = zipimport
    original = inside._read_directory

    def counted(archive: str) -> Any:
        read.append(archive)
        return original(archive)

    inside._read_directory = counted
    importlib.invalidate_caches()
    inside._read_directory = original
    yield pa.record_batch({"known": [known], "read": [len(read)]})


def test_no_directory_of_an_archive_is_read_before_each_task(spark: SparkSession) -> None:
    found = spark.range(1, numPartitions=1).mapInArrow(directories_read, "known bigint, read bigint").collect()
    assert [row.known > 0 for row in found] == [True]
    assert [row.read for row in found] == [0]


def levels(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """In a task: from which level on Kafka's clients say anything."""
    import logging

    list(batches)
    yield pa.record_batch({"level": [logging.getLogger("aiokafka.client").getEffectiveLevel()]})


def test_clients_of_tasks_fill_no_log_while_a_broker_is_away(spark: SparkSession) -> None:
    (row,) = spark.range(1, numPartitions=1).mapInArrow(levels, "level bigint").collect()
    assert row.level == logging.CRITICAL
