"""Streams with `skewed` whose driver and executors are killed at random moments: each row counts once."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from keygrouping_local.small_spark import java_options
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from .same import rows_of

pytestmark = [pytest.mark.spark, pytest.mark.fault]

KILLS = 20
ROWS = 200
AHEAD = 4
"""Files that are there and not read, so that a kill always finds work under way."""
BATCH_SECONDS = 900
"""Whoever waits longer for a batch waits for nothing, on a busy machine too."""
SCHEMA = "user string, ts timestamp, amount long, item string"
PROGRAM = """
import os, sys
import pandas as pd
import pyspark
os.environ.setdefault("SPARK_HOME", os.path.dirname(pyspark.__file__))
from keygrouping.spark import skewed
from pyspark.sql import SparkSession, functions as F

source, folder, spread, width, rest, schema, options = sys.argv[1:]
settings = {"spark.executor.memory": "500m", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1",
            "spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "3",
            "spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            "spark.deploy.maxExecutorRetries": "-1",
            "spark.task.maxFailures": "100", "spark.stage.maxConsecutiveAttempts": "100",
            "spark.driver.extraJavaOptions": options, "spark.executor.extraJavaOptions": options}
builder = SparkSession.builder.master("local-cluster[2,1,600]")
for name, value in settings.items():
    builder = builder.config(name, value)
spark = builder.getOrCreate()
spark.sparkContext.setLogLevel("ERROR")
clicks = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(source).withWatermark("ts", "2 minutes")

def sums(key, frames, state):
    total, rows, last = state.get if state.exists else (0, 0, "")
    if not state.hasTimedOut:
        for frame in frames:
            total, rows, last = total + int(frame.amount.sum()), rows + len(frame), max(last, frame["item"].max())
        if key[0] >= state.getCurrentWatermarkMs():
            state.update((total, rows, last))
            state.setTimeoutTimestamp(int(key[0]))
            return
    state.remove()
    yield pd.DataFrame({"end": [key[0]], "user": [key[1]], "total": [total], "rows": [rows], "last": [last]})

def merged(parts):
    return parts.groupby(["end", "user"], as_index=False).agg({"total": "sum", "rows": "sum", "last": "max"})

if spread == "states":
    timed = clicks.withColumn("end", F.unix_millis(F.date_trunc("minute", "ts")) + 60_000)
    ended = skewed(timed, "user", widths={"hot": int(width)}).groupBy("end", "user").applyInPandasWithState(
        sums, "end long, user string, total long, rows long, last string", "total long, rows long, last string",
        "append", "EventTimeTimeout", merge=merged)
    start, end = F.timestamp_millis(F.col("end") - 60_000), F.timestamp_millis("end")
    window = F.struct(start.alias("start"), end.alias("end")).alias("window")
    found = ended.select(window, "user", "total", "rows", "last")
else:
    keys = F.window("ts", "1 minute"), "user"
    groups = skewed(clicks, "user", widths={"hot": int(width)}, spread=spread).groupBy(*keys)
    found = groups.agg(F.sum("amount").alias("total"), F.count("*").alias("rows"), F.max("item").alias("last"))
writer = found.writeStream.outputMode("append").format("json").option("checkpointLocation", f"{folder}/checkpoint")
if rest == "rest":
    writer = writer.trigger(availableNow=True)
writer.start(f"{folder}/found").awaitTermination()
"""


class Stream:
    """The source, a driver that reads it in a process of its own, and what it has done so far."""

    def __init__(self, folder: Path, spread: str, chance: random.Random) -> None:
        self._folder, self._spread, self._chance = folder, spread, chance
        self.source = folder / "clicks"
        self.source.mkdir()
        self._files = 0
        self._driver: subprocess.Popen[bytes] | None = None

    def write(self, *, minutes_on: int = 0) -> None:
        """One more file, half a minute later than the one before; whole as soon as it is seen."""
        file, self._files = self._files, self._files + 1
        second = file * 30 + minutes_on * 60
        rows = (
            {
                "user": "hot" if n % 5 else f"k{n % 3}",
                "ts": f"2026-01-{1 + second // 86400:02}T{second // 3600 % 24:02}:{second // 60 % 60:02}:{n % 60:02}Z",
                "amount": file * ROWS + n,
                "item": f"i{n % 7}",
            }
            for n in range(ROWS)
        )
        path = self._folder / f"{file}.json"
        path.write_text("\n".join(map(json.dumps, rows)))
        os.utime(path, (file, file))
        path.rename(self.source / path.name)

    @property
    def done(self) -> int:
        """Micro-batches that have been committed."""
        folder = self._folder / "checkpoint" / "commits"
        return sum(path.name.isdecimal() for path in folder.iterdir()) if folder.is_dir() else 0

    def start(self, width: int, rest: str = "") -> None:
        arguments = [str(self.source), str(self._folder), self._spread, str(width), rest, SCHEMA, java_options([])]
        with (self._folder / "driver.log").open("ab") as log:
            self._driver = subprocess.Popen([sys.executable, "-c", PROGRAM, *arguments], stdout=log, stderr=log)

    def ended(self) -> int | None:
        """The driver's exit status, if it has ended."""
        assert self._driver is not None
        return self._driver.poll()

    def flow(self, batches: int) -> None:
        """Returns after so many further batches, and keeps files ahead of them meanwhile."""
        wanted, deadline = self.done + batches, time.monotonic() + BATCH_SECONDS
        while self.done < wanted:
            assert self.ended() is None, self._log()
            assert time.monotonic() < deadline, self._log()
            while self._files < self.done + AHEAD:
                self.write()
            time.sleep(0.05)

    def finish(self) -> None:
        """Waits for a driver that ends with the files that are there."""
        assert self._driver is not None
        assert self._driver.wait(2 * BATCH_SECONDS) == 0, self._log()

    def kill(self, victim: str) -> bool:
        """Kills one process; says whether the driver went with it, which is over then, with all its children."""
        assert self._driver is not None
        children = psutil.Process(self._driver.pid).children(recursive=True)
        executors = [child for child in children if "CoarseGrainedExecutorBackend" in _words(child)]
        if victim == "executor":
            if executors:
                self._chance.choice(executors).kill()
            return False
        machines = [child for child in children if "PythonGatewayServer" in _words(child)]
        for process in machines if victim == "driver's JVM" else [psutil.Process(self._driver.pid)]:
            process.kill()
        self.stop(children)
        return True

    def stop(self, children: list[psutil.Process] | None = None) -> None:
        """Ends the driver, and what it may have left."""
        if self._driver is None:
            return
        left = children if children is not None else _children(self._driver.pid)
        if children is None:
            self._driver.kill()
        for process in psutil.wait_procs(left, 10)[1]:
            process.kill()
        self._driver.wait(60)
        self._driver = None

    def _log(self) -> str:
        return (self._folder / "driver.log").read_text()[-3000:]


def _words(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


def _children(pid: int) -> list[psutil.Process]:
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def totals(frame: DataFrame) -> DataFrame:
    """What plain Spark gives of the windows that the stream has closed."""
    groups = frame.groupBy(F.window("ts", "1 minute"), "user")
    return groups.agg(F.sum("amount").alias("total"), F.count("*").alias("rows"), F.max("item").alias("last"))


@pytest.mark.parametrize("spread", ["partials", "rows", "states"])
def test_each_row_counts_once_whoever_is_killed(spark: SparkSession, tmp_path: Path, spread: Any) -> None:
    chance = random.Random(spread)
    stream = Stream(tmp_path, spread, chance)
    victims = [("executor", "driver's JVM", "driver")[n % 3] for n in range(KILLS)]
    chance.shuffle(victims)
    try:
        stream.start(width=3)
        for victim in victims:
            stream.flow(1)
            time.sleep(chance.uniform(0, 1.5))
            if stream.kill(victim):
                # Widths may change with a new start.
                stream.start(width=chance.randint(2, 5))
        stream.flow(1)
        stream.stop()
        # Far later than all others: the first ends their windows, and the next ones let Spark send them on.
        for _ in range(3):
            stream.write(minutes_on=600)
        stream.start(width=4, rest="rest")
        stream.finish()
    finally:
        stream.stop()
    found = spark.read.schema(
        "window struct<start: timestamp, end: timestamp>, user string, total long, rows long, last string"
    )
    plain = totals(spark.read.schema(SCHEMA).json(str(stream.source)))
    closed = plain.where(F.col("window.end") < F.lit("2026-01-01 08:00:00").cast("timestamp"))
    assert rows_of(found.json(str(tmp_path / "found"))) == rows_of(closed)
    assert closed.count() > KILLS
