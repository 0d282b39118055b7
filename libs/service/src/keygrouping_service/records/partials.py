"""What every reader of `partials` asks of a partial before it believes it."""

from __future__ import annotations

import math

from keygrouping.aggregate.base import MOST_EVENTS
from keygrouping.job import MAX_KEY_BYTES, MAX_WEIGHT, JobSpec
from keygrouping.partial import Partial, RecordError

from keygrouping_service.kafka.progress import END

OFFSET_BITS = 47
MOST_WORKERS = 1 << 16
MOST_EPOCH = 1 << 53


def check(key: bytes | None, partial: Partial, job: JobSpec) -> None:
    """Raises `RecordError` for members that no worker of this job writes: they could hold a window open for ever,
    or spoil what they are merged with. The Spark aggregator asks the same, see `keygrouping_spark.faults`.
    """
    check_members(key, partial)
    _check_window(partial, job)
    names = {aggregate.name for aggregate in job.aggregates}
    if partial.aggregates.keys() != names:
        wrong = ", ".join(sorted(partial.aggregates.keys() ^ names))[:200]
        raise RecordError(f"its aggregates are not the job's ({wrong} missing or too many): written for another job")


def check_members(key: bytes | None, partial: Partial) -> None:
    """The part of `check` that asks nothing of the job."""
    if key is None:
        raise RecordError("the record has no key")
    if len(key) > MAX_KEY_BYTES:
        raise RecordError(f"the key has {len(key)} bytes, more than {MAX_KEY_BYTES}")
    if not 0 <= partial.worker < MOST_WORKERS:
        raise RecordError(f"worker {partial.worker} must be in [0, {MOST_WORKERS})")
    if not 0 <= partial.epoch < MOST_EPOCH:
        raise RecordError(f"epoch {partial.epoch} must be in [0, {MOST_EPOCH})")
    if not 0 <= partial.first <= partial.last < 1 << OFFSET_BITS:
        raise RecordError(f"offsets {partial.first}..{partial.last} are no range of a partition")
    most = min(partial.last - partial.first + 1, MOST_EVENTS)
    if not 1 <= partial.events <= most:
        raise RecordError(f"events {partial.events} must be in [1, {most}], as many as there are offsets")
    if not math.isfinite(partial.weight) or not 0 <= partial.weight <= partial.events * MAX_WEIGHT:
        raise RecordError(f"weight {partial.weight} must be in [0, {MAX_WEIGHT:g}] for each event")


def _check_window(partial: Partial, job: JobSpec) -> None:
    window = f"[{partial.start}, {partial.end})"
    if not 0 < partial.end <= END:
        raise RecordError(f"{window} is no window of event times that there are")
    if partial.end != partial.start + job.window_ms or job.window_of(partial.start) != partial.start:
        raise RecordError(f"{window} is no window of this job, whose windows have {job.window_ms} ms")
