"""Spark's Python processes are forked from this one, which has loaded what they need: each begins at once."""

import gc
import logging
from argparse import ArgumentParser
from zipimport import zipimporter

import numpy as np
import pandas  # noqa: F401
from keygrouping.accumulator import Accumulator
from keygrouping.job import JobSpec
from keygrouping.version import add_version
from keygrouping_service.records.columns import Columns
from keygrouping_service.records.v2.precompile import warm_up
from pyspark.daemon import manager

import keygrouping_spark.pre_aggregation
import keygrouping_spark.reading  # noqa: F401


def load_kernels() -> None:
    """Reads a record batch and an event, for which compiled code is loaded."""
    warm_up()
    job = JobSpec.from_json({"aggregates": [{"name": "total", "op": "sum", "field": "x"}]})
    event = Columns("", 0, np.array([0]), np.array([0]), [b"k"], [b'{"x":1}'], [()])
    Accumulator(job, 0, "A" * 22).add(event)


def keep_archives() -> None:
    """Lets nobody read the directories of archives again.

    Before each task PySpark has Python forget what it knows of folders, as files may have come that a task needs.
    Python then reads the directory of Spark's own archive once for each of its packages: a tenth of a second of
    computing, and these archives never change.
    """
    zipimporter.invalidate_caches = _nothing  # type: ignore[assignment, method-assign]


def keep_clients_quiet() -> None:
    """Lets Kafka's clients say nothing: a task's error tells what is wrong, and between tasks a broker may be away."""
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


def _nothing(_: zipimporter) -> None:
    """There is nothing new to be found."""


if __name__ == "__main__":
    parser = ArgumentParser(prog="python -m keygrouping_spark.daemon", description=__doc__)
    add_version(parser)
    parser.add_argument("worker", help="the module of Spark's own that a process runs")
    parser.parse_args()
    load_kernels()
    keep_archives()
    keep_clients_quiet()
    # Each process looks for garbage after each task: not among what is loaded here, which takes a tenth of a second.
    gc.freeze()
    manager()
