"""Makes the Spark session: by itself with `python -m`, or inside of what spark-submit has set up."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyspark
from keygrouping_service.errors import Fatal
from py4j.protocol import Py4JError
from pyspark import SparkConf
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from keygrouping_spark.settings import SparkSettings

_STREAMING = "spark.sql.streaming"
_EXECUTION = "org.apache.spark.sql.execution.streaming"
_PACKAGES_SINCE = (4, 1)
"""Since then Spark's inner classes of streams lie in packages of their own."""
_FIXED = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.caseSensitive": "true",
    "spark.sql.adaptive.enabled": "false",
    # Sketches are aggregated as objects; beyond this many keys in a task Spark would sort instead.
    "spark.sql.objectHashAggregate.sortBased.fallbackThreshold": "100000",
    f"{_STREAMING}.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    f"{_STREAMING}.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    f"{_STREAMING}.stateStore.rocksdb.boundedMemoryUsage": "true",
    f"{_STREAMING}.stateStore.rocksdb.maxMemoryUsageMB": "256",
    f"{_STREAMING}.minBatchesToRetain": "20",
    # Results of all windows that close at once come to the driver; its heap bounds them.
    "spark.driver.maxResultSize": "0",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.daemon.module": "keygrouping_spark.daemon",
}

# In one process nothing needs to listen to the network; Spark does all the same, and is to listen to nobody.
_LOCAL = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.authenticate": "true",
}


# Spark's other way to write into a local folder starts a process `readlink` fifty times for each batch. No other driver
# writes there, see `Checkpoint.lock`.
_LOCAL_MANAGER = "FileSystemBasedCheckpointFileManager"


def inner_class(package: str, name: str, version: str = pyspark.__version__) -> str:
    """Full name of one of Spark's inner classes of streams, which lies in this package in current versions."""
    apart = tuple(map(int, version.split(".")[:2])) >= _PACKAGES_SINCE
    return ".".join([_EXECUTION, *([package] if apart else []), name])


def require_version(version: str = pyspark.__version__) -> None:
    """`Fatal` if the job can't use this version of Spark."""
    if version.startswith("4.1."):
        raise Fatal(
            f"Spark {version} can't run this job: its Kafka connector ends a query that is started again from its "
            "checkpoint (SPARK-55271). Use Spark 4.2 or 4.0, with the connector of that version"
        )


def configuration(settings: SparkSettings) -> dict[str, str]:
    """Spark's settings for this job."""
    return {
        **_FIXED,
        "spark.ui.enabled": str(settings.ui).lower(),
        "spark.driver.memory": settings.driver_memory,
        "spark.driver.extraJavaOptions": settings.java_options,
        "spark.sql.shuffle.partitions": str(settings.shuffle_partitions),
        **(_local_checkpoint() if urlsplit(settings.checkpoint).scheme in ("", "file") else {}),
    }


def _local_checkpoint() -> dict[str, str]:
    return {f"{_STREAMING}.checkpointFileManagerClass": inner_class("checkpointing", _LOCAL_MANAGER)}


def _connector(jars: Sequence[Path], local: bool) -> dict[str, str]:
    """Where Spark finds its Kafka connector. In one process that is the class path, so that the JVM may have the
    classes in its class-data archive, and nothing is copied."""
    if not jars:
        return {}
    if local:
        return {"spark.driver.extraClassPath": os.pathsep.join(str(jar.absolute()) for jar in jars)}
    return {"spark.jars": ",".join(jar.absolute().as_uri() for jar in jars)}


def create(settings: SparkSettings) -> SparkSession:
    """The session; `Fatal` if Spark can't start. A master given by spark-submit is kept."""
    builder = SparkSession.builder.appName(settings.application)
    master = settings.master or SparkConf().get("spark.master") or "local[2]"
    local = master.startswith("local")
    if local:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    connector = _connector(settings.connector_jars(), local)
    for name, value in {**configuration(settings), **connector, **(_LOCAL if local else {})}.items():
        builder = builder.config(name, value)
    try:
        spark = builder.master(master).getOrCreate()
    except (PySparkException, Py4JError, OSError) as error:
        raise Fatal(f"Spark does not start: {cause(str(error))}") from None
    _set_log_levels(spark, settings.spark_log_level)
    return spark


def cause(text: str) -> str:
    """What an error of Spark comes down to: its innermost cause, or that there may be no Java."""
    causes = [line.strip().removeprefix("Caused by: ") for line in text.splitlines() if "Caused by: " in line]
    return causes[-1] if causes else f"{text.splitlines()[0]}: is a JDK 17 or 21 installed?"


def expect_end(spark: SparkSession) -> None:
    """Says nothing of batches that are broken off from now on."""
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    _set_level(spark, inner_class("runtime", "MicroBatchExecution"), "OFF")
    _set_level(spark, "org.apache.spark.scheduler.DAGScheduler", "OFF")


def _set_log_levels(spark: SparkSession, level: str) -> None:
    """Sets Spark's level; that a batch outlasts its trigger is no news here, the next one just starts later."""
    spark.sparkContext.setLogLevel(level)
    # PySpark's filter shows less than a warning only of loggers that have a level of their own.
    _set_level(spark, "org.apache.spark", level)
    _set_level(spark, inner_class("runtime", "ProcessingTimeExecutor"), "ERROR")


def _set_level(spark: SparkSession, name: str, level: str) -> None:
    log4j: Any = spark._jvm.org.apache.logging.log4j  # type: ignore[union-attr]
    log4j.core.config.Configurator.setLevel(name, log4j.Level.toLevel(level))
