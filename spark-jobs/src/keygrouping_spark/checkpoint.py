"""What is kept beside Spark's checkpoint of a query: whose it is, which plan it can serve, and that one driver uses it.

All through Hadoop's file system, so that a checkpoint may lie anywhere Spark can write.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import pyspark
from keygrouping.aggregate.base import Aggregate, roles_of
from keygrouping_service.errors import Fatal
from py4j.protocol import Py4JJavaError
from pyspark.errors.exceptions.captured import CapturedException
from pyspark.sql import SparkSession

from keygrouping_spark.kafka import read_offsets
from keygrouping_spark.settings import SparkSettings

log = logging.getLogger(__name__)

STATE = 1
"""Version of the state that the aggregator's query keeps. It changes with the columns of partials and the expressions
that merge them: Spark would read a state of other columns wrong, or end again at each start without saying why."""

_STATE = "version of the state"
_PARTITIONS = "shuffle partitions"
_SHUFFLE_PARTITIONS = "spark.sql.shuffle.partitions"

REPARTITIONS_SINCE = (4, 2)
"""The first version of Spark that brings a state into another number of partitions."""

ANOTHER = "a driver with another one has gone on since"
"""Why a checkpoint is out of date."""


@dataclass(frozen=True)
class Identity:
    """Id of a checkpoint, the plan it was made for, and the event time (ms) up to which all was final before it."""

    id: str
    plan: Mapping[str, Any]
    floor: int


def worker_plan(settings: SparkSettings, topic_id: str) -> dict[str, Any]:
    """What must not change while the worker's checkpoint is used; `topic_id` is that of `routed`."""
    return {"routed topic": settings.routed_topic, "routed topic's id": topic_id}


def aggregator_plan(settings: SparkSettings, topic_id: str) -> dict[str, Any]:
    """What must not change while the aggregator's checkpoint is used; `topic_id` is that of `partials`."""
    job = settings.job
    return {
        "partials topic": settings.partials_topic,
        "partials topic's id": topic_id,
        "progress topic": settings.progress_topic,
        "aggregates": [_declaration(aggregate) for aggregate in job.aggregates],
        "window": [job.window_ms, job.window_offset_ms],
        "weight": "fraction" if job.weight.kind == "field" else "whole",
        _PARTITIONS: settings.shuffle_partitions,
        _STATE: STATE,
    }


def _message_of(error: Py4JJavaError | CapturedException) -> str:
    text = error.java_exception.getMessage() if isinstance(error, Py4JJavaError) else error
    return " ".join(str(text).split())


def _declaration(aggregate: Aggregate) -> list[Any]:
    """What decides on the columns of an aggregate's state."""
    fields = [given.field for given in aggregate.inputs] or (None,)
    settings = aggregate.model_dump(exclude={"name", *roles_of(type(aggregate))})
    return [aggregate.name, aggregate.op, *fields, *filter(None, [settings])]


def out_of_date(root: str, stage: str, since: str) -> Fatal:
    """What is told of a checkpoint that is not the newest one."""
    return Fatal(
        f"the checkpoint {root} of the {stage} is out of date, as {since}: start the newest one, or set "
        "KEYGROUPING_SPARK_CHECKPOINT to a new folder, which goes on where that one was. Run one driver for each "
        "application"
    )


class Checkpoint:
    """The checkpoint of one stage's query."""

    def __init__(self, spark: SparkSession, root: str, stage: str) -> None:
        self._spark = spark
        self._jvm: Any = spark._jvm
        self._root = root
        self._stage = stage
        path = self._path("")
        self._files = path.getFileSystem(spark._jsc.hadoopConfiguration())
        self._files.mkdirs(path)
        self._lock: Any = None

    def lock(self, timeout: float) -> bool:
        """Keeps other drivers away for as long as the JVM lives; False if one stays for `timeout` seconds.

        The JVM holds the lock, so that it outlasts a killed Python driver until its JVM has ended too. Only a local
        folder can be locked. Elsewhere the platform must run one driver (a StatefulSet), and Spark itself stops the
        second writer of a batch.
        """
        uri = self._files.makeQualified(self._path(f"{self._stage}.lock")).toUri()
        if uri.getScheme() != "file":
            return True
        channel = self._jvm.java.io.RandomAccessFile(uri.getPath(), "rw").getChannel()
        deadline = time.monotonic() + timeout
        while (lock := channel.tryLock()) is None and time.monotonic() < deadline:
            time.sleep(0.1)
        self._lock = lock
        return lock is not None

    def read(self) -> Identity | None:
        """Whose checkpoint this is; None if it is new."""
        text = self._read(f"{self._stage}.json")
        return Identity(**json.loads(text)) if text else None

    def create(self, identity: Identity) -> Identity:
        """Makes the checkpoint ours."""
        stream = self._files.create(self._path(f"{self._stage}.json.new"), True)
        stream.write(bytearray(json.dumps(asdict(identity)).encode()))
        stream.close()
        self._files.rename(self._path(f"{self._stage}.json.new"), self._path(f"{self._stage}.json"))
        return identity

    def require(self, identity: Identity, plan: Mapping[str, Any]) -> None:
        """`Fatal` if the checkpoint was made by a plan whose state this plan can't read.

        The number of the state's partitions is left to `repartition`: it may have changed since.
        """
        wanted = json.loads(json.dumps(plan))
        names = {*wanted, *identity.plan} - {_PARTITIONS}
        changed = sorted(name for name in names if wanted.get(name) != identity.plan.get(name))
        if _STATE in changed:
            raise Fatal(
                f"the checkpoint {self._root} was made by another version of keygrouping, whose state of the "
                f"{self._stage} this one can't read (was {identity.plan.get(_STATE)}, is {wanted[_STATE]}): set "
                "KEYGROUPING_SPARK_CHECKPOINT to a new folder. Results stay exact: what is final stays, and open "
                "windows are computed again from the partials. Or start the version that made it"
            )
        if changed:
            raise Fatal(
                f"the checkpoint {self._root} can't serve this plan of the {self._stage}: {', '.join(changed)} changed "
                f"(was {[identity.plan.get(n) for n in changed]}, is {[wanted.get(n) for n in changed]}): "
                "undo the change, or set KEYGROUPING_SPARK_CHECKPOINT to a new folder"
            )

    def repartition(self, number: int, version: str = pyspark.__version__) -> None:
        """Brings the state into so many partitions if it has others, or if that was broken off.

        Spark is told to refuse it while a batch has not ended. It would forget that batch, to plan it again by another
        number: what is written of it would be written twice, and its state may be there already.
        `Fatal` if this version of Spark can't do it, or can't now.
        """
        planned, ended = (self._partitions(batch) for batch in (self.last_planned, self._last_of("commits")))
        found = [each for each in (ended, planned) if each not in (None, number)]
        if not found:
            return
        if tuple(map(int, version.split(".")[:2])) < REPARTITIONS_SINCE:
            raise Fatal(
                f"the checkpoint {self._root} has {found[0]} shuffle partitions, not {number}, which Spark {version} "
                "can't change: undo the change, set KEYGROUPING_SPARK_CHECKPOINT to a new folder, or use Spark 4.2"
            )
        log.warning("the state in %s gets %d partitions in place of %d", self._root, number, found[0])
        # It asks what knows of all state stores, which only this starts.
        _ = self._spark.streams.active
        try:
            self._spark._streamingCheckpointManager.repartition(f"{self._root}/{self._stage}", number, True)
        except (Py4JJavaError, CapturedException) as error:
            raise Fatal(
                f"the state in {self._root} can't get {number} partitions now: {_message_of(error)}. Start with "
                f"KEYGROUPING_SPARK_SHUFFLE_PARTITIONS={found[0]} until a batch has ended, or set "
                "KEYGROUPING_SPARK_CHECKPOINT to a new folder"
            ) from None

    def _partitions(self, batch: int) -> int | None:
        """How many partitions the state has since a batch; None if there is no such batch."""
        lines = (self._read(f"{self._stage}/offsets/{batch}") or "").splitlines()
        return int(json.loads(lines[1])["conf"][_SHUFFLE_PARTITIONS]) if lines else None

    @property
    def last_planned(self) -> int:
        """Number of the last batch that Spark has planned in it; -1 if there is none."""
        return self._last_of("offsets")

    def offsets(self, topic: str) -> dict[int, int]:
        """Where the last completed batch ended in a topic; empty if there is none."""
        return self.planned(self._last_of("commits"), topic)

    def planned(self, batch: int, topic: str) -> dict[int, int]:
        """Where a batch ends in a topic, as is fixed before it begins; empty if it does not read the topic."""
        lines = (self._read(f"{self._stage}/offsets/{batch}") or "").splitlines()
        found = (read_offsets(line, topic) for line in lines[2:] if line.startswith("{"))
        return next((offsets for offsets in found if offsets), {})

    def last_ends(self, topic: str) -> dict[int, int]:
        """How far in a topic it has planned to read, by the last two batches: where a broker has lost records, the last
        one ends before the other."""
        last = self.last_planned
        before, ends = (self.planned(batch, topic) for batch in (last - 1, last))
        return before | {partition: max(end, before.get(partition, end)) for partition, end in ends.items()}

    def _last_of(self, kind: str) -> int:
        folder = self._path(f"{self._stage}/{kind}")
        if not self._files.exists(folder):
            return -1
        names = (status.getPath().getName() for status in self._files.listStatus(folder))
        return max((int(name) for name in names if name.isdigit()), default=-1)

    def _path(self, name: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self._root}/{name}")

    def _read(self, name: str) -> str | None:
        path = self._path(name)
        if not self._files.exists(path):
            return None
        stream = self._files.open(path)
        try:
            return str(self._jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8"))
        finally:
            stream.close()
