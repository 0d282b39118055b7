"""What Spark's aggregator may let go of: only what is certainly in windows that are final."""

from keygrouping.job import JobSpec
from keygrouping_service.kafka.progress import Committed, Progress
from keygrouping_service.kafka.purging import Sample
from keygrouping_spark.purging import is_final, latest_end

HOUR = 3_600_000
JOB = JobSpec.from_json('{"window": "1h", "lateness": "0s", "aggregates": [{"name": "n", "op": "count"}]}')


def test_the_latest_window_is_the_one_of_an_event_as_far_ahead_as_is_allowed() -> None:
    assert latest_end(JOB, 10 * HOUR) == 12 * HOUR
    assert latest_end(JOB, 10 * HOUR + 1) == 12 * HOUR
    assert latest_end(JOB, 11 * HOUR - 1) == 12 * HOUR
    assert latest_end(JOB, 11 * HOUR) == 13 * HOUR


def test_a_sample_is_final_once_every_partition_is_beyond_its_latest_window() -> None:
    committed = {0: Committed(5, Progress(12 * HOUR)), 1: Committed(5, Progress(12 * HOUR - 1))}
    check = is_final(JOB, lambda: committed)
    sample = Sample(0, {0: 5, 1: 5}, 10 * HOUR)
    assert not check(sample)
    committed[1] = Committed(6, Progress(12 * HOUR))
    assert check(sample)
