"""What `keygrouping.spark` gains and costs on this machine: seconds against plain Spark, and how even its tasks are.

Each pair of figures is of one run, the two in turn, on the same rows. Those of batches are cached before the time runs,
so it has no reading of a source in it; streams read them from files, in two micro-batches. λ is the most over the
average of the tasks of the stage that does the work: by the rows that they read from the shuffle, and by their seconds,
both from Spark's event log.

    .venv/bin/python benchmarks/spark_skew.py --rows 1000000 --cores 2 [--picture tasks.png]
    .venv/bin/python benchmarks/spark_skew.py --skews "80 %" --works "with state x5" --keys 100 --micros 20
    .venv/bin/python benchmarks/spark_skew.py --cores 3 --executors --waits --micros 100 --rows 200000

Executors are processes of one core each. Rows that wait, as for an answer of a service, show what more of them give
than the machine has cores.

The picture has the tasks of one work on the cores, plain and spread, on one scale of time.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from keygrouping.spark import learned_widths, skewed, skewed_join
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F

TASKS_PER_CORE = 4
FILES = 4
COSTLY = "applyInPandas x5"
PICTURED = ("80 %", COSTLY)
"""Keys and work of the picture."""
SKEWS = ("80 %", "zipf 1.2", "uniform")
COSTS = {"applyInPandas": (1, 1.0), COSTLY: (5, 0.2)}
"""How many times the asked cost a row has, and the share of the rows: they take as long."""
WORKS = ("built-in sums", *COSTS, "with state x5", "join, costly rows")
SCHEMA = "user long, total double, rows long"


def keys(number: int) -> dict[str, Column]:
    """Skews by name: the key of each row, one of so many numbers."""
    uniform = F.pmod(F.xxhash64("id"), F.lit(number))
    # Inverse of the distribution function of a Pareto law that ends at `number`: its integer part is near Zipf's.
    least = number**-0.2
    fraction = least + (1 - least) * (F.pmod(F.xxhash64("id"), F.lit(1_000_000)) + 0.5) / 1_000_000
    hot = F.when(F.pmod(F.hash("id"), F.lit(5)) > 0, F.lit(-1)).otherwise(uniform)
    return dict(zip(SKEWS, (hot, F.pow(fraction, -5.0).cast("long"), uniform), strict=True))


@dataclass(frozen=True)
class Cost:
    """What a row costs in Python: steps that compute, and seconds in which it waits."""

    steps: int
    waits: float = 0.0

    def times(self, number: int) -> Cost:
        """So many times as much."""
        return Cost(self.steps * number, self.waits * number)


def slow_sum(cost: Cost) -> Callable[[Any], Any]:
    """A Python aggregate that Spark can't combine. Rows of a group wait together: a sleep is longer than asked."""
    steps, waits = cost.steps, cost.waits

    def total(rows: Any) -> Any:
        found = 0.0
        time.sleep(waits * len(rows))
        for each in rows["amount"]:
            for _ in range(steps):
                found += each * 0.5
        return rows[["user"]][:1].assign(total=found, rows=len(rows))

    return total


def slow_state(cost: Cost) -> Callable[..., Iterator[Any]]:
    """The same in a stream, of a micro-batch's rows, with a state of all that were before."""

    def total(_: Any, frames: Iterator[Any], state: Any) -> Iterator[Any]:
        rows = pd.concat(frames)
        (seen,) = state.getOption or (0,)
        state.update((seen + len(rows),))
        yield slow_sum(cost)(rows)

    return total


def steps_of(microseconds: float) -> int:
    """How many take so long on this machine, now; the best of some trials."""
    rows, steps = pd.DataFrame({"user": [0] * 1000, "amount": [0.5] * 1000}), 1000
    taken = []
    for _ in range(5):
        begun = time.process_time()
        slow_sum(Cost(steps))(rows)
        taken.append((time.process_time() - begun) * 1000)
    return max(1, round(microseconds * steps / min(taken)))


def added(parts: Any) -> Any:
    """The merge of its parts."""
    return parts.groupby("user", as_index=False).sum()


def streamed(rows: DataFrame, folder: Path) -> DataFrame:
    """These rows from files, half of them in each of two micro-batches."""
    rows.repartition(FILES).write.mode("overwrite").parquet(str(folder))
    reader = rows.sparkSession.readStream.schema(rows.schema).option("maxFilesPerTrigger", FILES // 2)
    return reader.parquet(str(folder))


def stateful(stream: DataFrame, widths: dict[Any, int], tasks: int, cost: Cost) -> tuple[DataFrame, DataFrame]:
    """A Python function with a state: plain, and spread."""
    asked: tuple[Any, ...] = (slow_state(cost), SCHEMA, "seen long", "append", "NoTimeout")
    groups = skewed(stream, "user", widths=widths, partitions=tasks).groupBy("user")
    return stream.groupBy("user").applyInPandasWithState(*asked), groups.applyInPandasWithState(*asked, merge=added)


def works(
    frame: DataFrame, widths: dict[Any, int], tasks: int, folder: Path, cost: Cost
) -> Iterator[tuple[DataFrame, DataFrame]]:
    """Those of `WORKS`, in their order: plain, and spread; a row has this cost in Python, or some times as much."""
    groups = skewed(frame, "user", widths=widths, partitions=tasks).groupBy("user")
    sums = (F.sum("amount"), F.count("*"))
    yield frame.groupBy("user").agg(*sums), groups.agg(*sums)
    for times, share in COSTS.values():
        work = slow_sum(cost.times(times))
        rows = frame.sample(share, seed=1) if share < 1 else frame
        spread = skewed(rows, "user", widths=widths, partitions=tasks).groupBy("user")
        yield (
            rows.groupBy("user").applyInPandas(work, SCHEMA),
            spread.applyInPandas(work, SCHEMA, merge=added),
        )
    times, share = COSTS[COSTLY]
    stream = streamed(frame.sample(share, seed=1), folder)
    yield stateful(stream, widths, tasks, cost.times(times))
    right = frame.select("user").distinct().withColumn("factor", F.lit(2.0)).hint("shuffle_hash")
    costly = F.aggregate(
        F.sequence(F.lit(1), F.lit(300)), F.lit(0.0), lambda a, n: a + n * F.col("amount") * F.col("factor")
    )
    plain, salted = (
        joined.select("user", costly.alias("cost"))
        for joined in (frame.join(right, "user"), skewed_join(frame, right, "user", widths=widths, partitions=tasks))
    )
    yield plain, salted


def seconds(frame: DataFrame, group: str) -> float:
    """How long all rows take; its jobs get this name in the event log."""
    begun = time.perf_counter()
    if frame.isStreaming:
        with tempfile.TemporaryDirectory() as checkpoint:
            writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint).queryName(group)
            writer.trigger(availableNow=True).start().awaitTermination()
    else:
        frame.sparkSession.sparkContext.setJobGroup(group, group)
        frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - begun


@dataclass(frozen=True)
class Task:
    """What the event log says of one; times are in milliseconds, those of a clock and how long it ran."""

    stage: int
    query: int
    begun: int
    ended: int
    ran: int
    rows: int
    """That it read from the shuffle."""


def tasks_of(log: Path) -> dict[str, list[Task]]:
    """The tasks of each group of jobs."""
    queries: dict[int, tuple[str, int]] = {}
    tasks: dict[str, list[Task]] = defaultdict(list)
    for line in (line for file in sorted(log.rglob("events_*")) for line in file.read_text().splitlines()):
        event = json.loads(line)
        if event["Event"] == "SparkListenerJobStart":
            query = int(event["Properties"].get("spark.sql.execution.root.id", -1))
            queries |= dict.fromkeys(event["Stage IDs"], (name_of(event["Properties"]), query))
        elif event["Event"] == "SparkListenerTaskEnd" and "Task Metrics" in event:
            metrics, info, stage = event["Task Metrics"], event["Task Info"], event["Stage ID"]
            group, query = queries.get(stage, ("", -1))
            read = metrics["Shuffle Read Metrics"]["Total Records Read"]
            times = (info["Launch Time"], info["Finish Time"], metrics["Executor Run Time"])
            tasks[group].append(Task(stage, query, *times, read))
    return tasks


def evenness(tasks: Mapping[str, list[Task]]) -> dict[str, tuple[float, float]]:
    """λ of tasks by rows and by seconds, of the longest stage of each group that reads a shuffle."""
    found: dict[str, tuple[float, float]] = {}
    for group, all_of_it in tasks.items():
        stages: dict[int, list[Task]] = defaultdict(list)
        for task in all_of_it:
            stages[task.stage].append(task)
        reading = [each for each in stages.values() if any(task.rows for task in each)]
        if reading:
            longest = max(reading, key=lambda each: sum(task.ran for task in each))
            found[group] = (lam([task.rows for task in longest]), lam([task.ran for task in longest]))
    return found


def picture(tasks: Mapping[str, list[Task]], cores: int, rounds: int, path: Path) -> None:
    """The tasks of the last round of the work that is pictured, a row per core, plain above spread."""
    figure = Figure(figsize=(9, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(2, 1, sharex=True)
    for one, how in zip(axes, ("plain", "spread"), strict=True):
        found = tasks["|".join((*PICTURED, how))]
        last = sorted({task.query for task in found})[rounds - 1]  # What runs after the rounds has their name, too.
        draw(one, sorted((task for task in found if task.query == last), key=lambda task: task.begun), cores)
        one.set_title({"plain": "plain Spark", "spread": "skewed"}[how], loc="left", fontsize=10)
    axes[1].set_xlabel("seconds")
    figure.savefig(path, dpi=90, metadata={"Software": None})


def draw(axes: Axes, tasks: Sequence[Task], cores: int) -> None:
    """Each task as a bar on the core that was free first."""
    free = [0] * cores
    for task in tasks:
        core = free.index(min(free))
        free[core] = task.ended
        begun, length = ((ms - first) / 1000 for first, ms in ((tasks[0].begun, task.begun), (task.begun, task.ended)))
        axes.barh(core, length, left=begun, color="tab:orange" if task.rows else "tab:gray", edgecolor="white")
    axes.set_yticks(range(cores), [f"core {core + 1}" for core in range(cores)])


def name_of(job: dict[str, str]) -> str:
    """The name that `seconds` has given; jobs of a stream have its name in the first line of what describes them."""
    if "sql.streaming.queryId" in job:
        return job.get("spark.job.description", "").partition("\n")[0]
    return job.get("spark.jobGroup.id", "")


def lam(loads: Sequence[int]) -> float:
    """λ: the most over the average."""
    return max(loads) * len(loads) / max(sum(loads), 1)


def both(plain: DataFrame, spread: DataFrame, name: str) -> tuple[float, float]:
    """Seconds of both in turn."""
    first, second = seconds(plain, f"{name}|plain"), seconds(spread, f"{name}|spread")
    print(f"  {name}: {first:.2f} s, spread {second:.2f} s", flush=True)
    return first, second


def measured(
    given: argparse.Namespace, session: Callable[[], SparkSession], folder: Path
) -> list[tuple[str, str, float, float]]:
    """Best seconds of each kind of work, plain and spread."""
    spark = session()
    cost = Cost(1, given.micros / 1e6) if given.waits else Cost(steps_of(given.micros))
    print(f"a row {'waits' if given.waits else 'computes'} {given.micros:g} µs in Python, or five times as long")
    found = []
    tasks = TASKS_PER_CORE * given.cores
    for skew, key in keys(given.keys).items():
        if skew not in given.skews:
            continue
        rows = spark.range(given.rows, numPartitions=2 * given.cores).select(
            key.alias("user"), F.rand(1).alias("amount")
        )
        frame = rows.cache()
        frame.count()
        begun = time.perf_counter()
        widths = learned_widths(frame, "user", partitions=tasks)
        print(f"{skew}: {len(widths)} hot keys learned in {time.perf_counter() - begun:.1f} s")
        made = works(frame, widths, tasks, folder / skew.split()[0], cost)
        for work, (plain, spread) in zip(WORKS, made, strict=True):
            if work in given.works:
                pairs = [both(plain, spread, f"{skew}|{work}") for _ in range(given.rounds)]
                found.append((skew, work, *(min(column) for column in zip(*pairs, strict=True))))
        frame.unpersist()
    spark.stop()
    return found


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--micros", type=float, default=10, help="Python of a row, five times as much where it says so")
    parser.add_argument("--keys", type=int, default=1000, help="how many there are beside the hot one, or in all")
    parser.add_argument("--executors", action="store_true", help="processes of one core each, not threads of one")
    parser.add_argument("--waits", action="store_true", help="rows wait so long, and compute nothing")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--skews", nargs="+", choices=SKEWS, default=SKEWS)
    parser.add_argument("--works", nargs="+", choices=WORKS, default=WORKS)
    parser.add_argument("--picture", type=Path, metavar="FILE", help="PNG of the tasks")
    given = parser.parse_args()
    if given.picture and (PICTURED[0] not in given.skews or PICTURED[1] not in given.works):
        parser.error(f"the picture is of {PICTURED[1]!r} with {PICTURED[0]!r}: measure it, or leave out --picture")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "log")
        log.mkdir()

        # Python processes of Spark with what this one has: pandas and pyarrow.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)

        master = f"local-cluster[{given.cores},1,1024]" if given.executors else f"local[{given.cores}]"

        def session() -> SparkSession:
            return (
                SparkSession.builder.master(master)
                .config("spark.sql.shuffle.partitions", TASKS_PER_CORE * given.cores)
                .config("spark.driver.memory", "2g")
                .config("spark.eventLog.enabled", "true")
                .config("spark.eventLog.compress", "false")
                .config("spark.eventLog.dir", log.as_uri())
                .config("spark.ui.enabled", "false")
                .config("spark.ui.showConsoleProgress", "false")
                .getOrCreate()
            )

        found = measured(given, session, Path(folder))
        tasks = tasks_of(log)
    if given.picture:
        picture(tasks, given.cores, given.rounds, given.picture)
    even = evenness(tasks)
    none = (float("nan"), float("nan"))
    print(f"{'keys':9} {'work':18} {'plain s':>8} {'spread s':>8} {'ratio':>6}   λ rows, seconds: plain, spread")
    for skew, work, plain, spread in found:
        figures = [even.get(f"{skew}|{work}|{how}", none) for how in ("plain", "spread")]
        lambdas = ", ".join(f"{rows:.2f} {times:.2f}" for rows, times in figures)
        print(f"{skew:9} {work:18} {plain:8.2f} {spread:8.2f} {plain / spread:6.2f}   {lambdas}")


if __name__ == "__main__":
    main()
