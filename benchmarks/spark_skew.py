"""What `keygrouping.spark` gains and costs on this machine: seconds against plain Spark, and how even its tasks are.

Each pair of figures is of one run, the two in turn, on the same rows. λ is the most over the average of the tasks
of the stage that does the work: by the rows that they read from the shuffle, and by their seconds, both from
Spark's event log.

    .venv/bin/python benchmarks/spark_skew.py --rows 1000000 --cores 2
"""

import argparse
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from keygrouping.spark import learned_widths, skewed, skewed_join
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

TASKS_PER_CORE = 4
KEYS = 1000
ROUNDS = 3


def keys() -> dict[str, Column]:
    """Skews by name: the key of each row, a number."""
    uniform = F.pmod(F.xxhash64("id"), F.lit(KEYS))
    # Inverse of the distribution function of a Pareto law that ends at KEYS: its integer part is near Zipf's with 1.2.
    least = KEYS**-0.2
    fraction = least + (1 - least) * (F.pmod(F.xxhash64("id"), F.lit(1_000_000)) + 0.5) / 1_000_000
    return {
        "80 %": F.when(F.pmod(F.hash("id"), F.lit(5)) > 0, F.lit(-1)).otherwise(uniform),
        "zipf 1.2": F.pow(fraction, -5.0).cast("long"),
        "uniform": uniform,
    }


def slow_sum(rows: Any) -> Any:
    """A Python aggregate that Spark can't combine: some ten microseconds a row."""
    total = 0.0
    for each in rows["amount"]:
        for _ in range(300):
            total += each * 0.5
    return rows[["user"]][:1].assign(total=total, rows=len(rows))


def added(parts: Any) -> Any:
    """The merge of its parts."""
    return parts.groupby("user", as_index=False).sum()


def works(frame: DataFrame, widths: dict[Any, int], tasks: int) -> Iterator[tuple[str, DataFrame, DataFrame]]:
    """Kinds of work: plain, and spread."""
    schema = "user long, total double, rows long"
    groups = skewed(frame, "user", widths=widths, partitions=tasks).groupBy("user")
    sums = (F.sum("amount"), F.count("*"))
    yield "built-in sums", frame.groupBy("user").agg(*sums), groups.agg(*sums)
    yield (
        "applyInPandas",
        frame.groupBy("user").applyInPandas(slow_sum, schema),
        groups.applyInPandas(slow_sum, schema, merge=added),
    )
    right = frame.select("user").distinct().withColumn("factor", F.lit(2.0)).hint("shuffle_hash")
    costly = F.aggregate(
        F.sequence(F.lit(1), F.lit(300)), F.lit(0.0), lambda a, n: a + n * F.col("amount") * F.col("factor")
    )
    plain, spread = (
        joined.select("user", costly.alias("cost"))
        for joined in (frame.join(right, "user"), skewed_join(frame, right, "user", widths=widths, partitions=tasks))
    )
    yield "join, costly rows", plain, spread


def seconds(frame: DataFrame, group: str) -> float:
    """How long all rows take; its jobs get this name in the event log."""
    frame.sparkSession.sparkContext.setJobGroup(group, group)
    begun = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begun


def evenness(log: Path) -> dict[str, tuple[float, float]]:
    """λ of tasks by rows and by seconds, of the longest stage of each group that reads a shuffle."""
    groups: dict[int, str] = {}
    tasks: dict[int, list[tuple[int, int]]] = defaultdict(list)
    for line in (line for file in log.rglob("events_*") for line in file.read_text().splitlines()):
        event = json.loads(line)
        if event["Event"] == "SparkListenerJobStart":
            for stage in event["Stage IDs"]:
                groups[stage] = event["Properties"].get("spark.jobGroup.id", "")
        elif event["Event"] == "SparkListenerTaskEnd" and "Task Metrics" in event:
            metrics = event["Task Metrics"]
            read = metrics["Shuffle Read Metrics"]["Total Records Read"]
            tasks[event["Stage ID"]].append((read, metrics["Executor Run Time"]))
    longest: dict[str, tuple[int, tuple[float, float]]] = {}
    for stage, measured in tasks.items():
        rows, times = zip(*measured, strict=True)
        group = groups.get(stage, "")
        if sum(rows) and sum(times) > longest.get(group, (0, (0.0, 0.0)))[0]:
            longest[group] = (sum(times), (lam(rows), lam(times)))
    return {group: figures for group, (_, figures) in longest.items()}


def lam(loads: tuple[int, ...]) -> float:
    """λ: the most over the average."""
    return max(loads) * len(loads) / max(sum(loads), 1)


def measured(given: argparse.Namespace, session: Callable[[], SparkSession]) -> list[tuple[str, str, float, float]]:
    """Best seconds of each kind of work, plain and spread."""
    spark = session()
    found = []
    tasks = TASKS_PER_CORE * given.cores
    for skew, key in keys().items():
        rows = spark.range(given.rows, numPartitions=2 * given.cores).select(
            key.alias("user"), F.rand(1).alias("amount")
        )
        frame = rows.cache()
        frame.count()
        begun = time.perf_counter()
        widths = learned_widths(frame, "user", partitions=tasks)
        print(f"{skew}: {len(widths)} hot keys learned in {time.perf_counter() - begun:.1f} s")
        for work, plain, spread in works(frame, widths, tasks):
            pairs = [
                (seconds(plain, f"{skew}|{work}|plain"), seconds(spread, f"{skew}|{work}|spread"))
                for _ in range(ROUNDS)
            ]
            found.append((skew, work, min(first for first, _ in pairs), min(second for _, second in pairs)))
        frame.unpersist()
    spark.stop()
    return found


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--cores", type=int, default=2)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder)

        # Python processes of Spark with what this one has: pandas and pyarrow.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

        def session() -> SparkSession:
            return (
                SparkSession.builder.master(f"local[{given.cores}]")
                .config("spark.sql.shuffle.partitions", TASKS_PER_CORE * given.cores)
                .config("spark.driver.memory", "2g")
                .config("spark.eventLog.enabled", "true")
                .config("spark.eventLog.compress", "false")
                .config("spark.eventLog.dir", log.as_uri())
                .config("spark.ui.enabled", "false")
                .config("spark.ui.showConsoleProgress", "false")
                .getOrCreate()
            )

        found = measured(given, session)
        even = evenness(log)
    none = (float("nan"), float("nan"))
    print(f"{'keys':9} {'work':18} {'plain s':>8} {'spread s':>8} {'ratio':>6}   λ rows, seconds: plain, spread")
    for skew, work, plain, spread in found:
        figures = [even.get(f"{skew}|{work}|{how}", none) for how in ("plain", "spread")]
        lambdas = ", ".join(f"{rows:.2f} {times:.2f}" for rows, times in figures)
        print(f"{skew:9} {work:18} {plain:8.2f} {spread:8.2f} {plain / spread:6.2f}   {lambdas}")


if __name__ == "__main__":
    main()
