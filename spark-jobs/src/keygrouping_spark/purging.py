"""What Spark's queries have read may go: of `routed` what is committed, of `partials` what no open window needs.

The aggregator's checkpoint holds its open windows; one that is lost is made good by reading `partials` again, as long
as those of open windows are there. Spark does not say where they begin. But an event can't be further ahead of the
clock than the job allows: what was read by a moment is in windows that end soon after it, and may go once these are
final.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import partial

from keygrouping.job import JobSpec
from keygrouping_service.kafka.progress import Committed, stage_watermark
from keygrouping_service.kafka.purging import Purger, Ripening, Sample, readers_of

from keygrouping_spark.settings import SparkSettings
from keygrouping_spark.stages import Stage


def latest_end(job: JobSpec, wall_ms: int) -> int:
    """End (ms) of the last window that any event may be in that was routed by a moment (ms)."""
    return job.window_of(wall_ms + job.max_future_ms) + job.window_ms


def is_final(job: JobSpec, committed: Callable[[], Mapping[int, Committed]]) -> Callable[[Sample], bool]:
    """Whether all windows are final that anything in a sample may be in, by what the aggregator has committed."""

    def check(sample: Sample) -> bool:
        watermark = stage_watermark({partition: entry.progress for partition, entry in committed().items()})
        return watermark >= latest_end(job, sample.wall_ms)

    return check


def purgers(settings: SparkSettings, stages: list[Stage]) -> Iterator[Purger]:
    """A purger for what each stage reads."""
    for stage in stages:
        committed = partial(_last, stage)
        group, keep = settings.group(stage.name), settings.purge_after
        if stage.name == "worker":
            readers = readers_of(group, settings.routed_readers)
            yield Purger(settings.routed_topic, readers, Ripening(keep), committed)
        else:
            readers = readers_of(group, settings.partials_readers, guests=[settings.observer_group])
            yield Purger(settings.partials_topic, readers, Ripening(keep, is_final(settings.job, committed)), committed)


def _last(stage: Stage) -> Mapping[int, Committed]:
    return stage.progress.last
