"""Laws of event time in one input partition."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping.job import MOST_CONFIRMATIONS, JobSpec
from keygrouping_local.oracle import Oracle
from keygrouping_service.events.lateness import ACCEPTED, FINISHED, LATE, REASONS, WAS_IDLE, PartitionClock
from keygrouping_service.kafka.progress import END, MIN_TIME, Progress, router_watermark
from keygrouping_service.records.record import Record

LATENESS = 100
HOUR = 3_600_000
NOON = 1_700_000_000_000

event_times = st.lists(st.integers(0, 1000), max_size=60)
quorums = st.integers(1, 4)


def clock(committed: Progress = Progress(), now: float = 0.0, confirmations: int = 1) -> PartitionClock:  # noqa: B008
    return PartitionClock(committed, LATENESS, confirmations, 15.0, now)


def by_default(committed: Progress = Progress()) -> PartitionClock:  # noqa: B008
    """The clock of a job that says nothing of it."""
    job = JobSpec(())
    return PartitionClock(committed, job.lateness_ms, job.confirmations, 15.0, 0.0)


def array(times: list[int]) -> np.ndarray:
    return np.array(times, np.int64)


def reference(times: list[int], quorum: int = 1) -> list[int]:
    """The rule as it is told: no state but all events so far."""
    verdicts, confirmed = [], MIN_TIME
    for number, time in enumerate(times, 1):
        verdicts.append(LATE if time < confirmed - LATENESS else ACCEPTED)
        last = sorted(times[max(0, number - 2 * quorum) : number], reverse=True)
        if len(last) >= quorum:
            confirmed = max(confirmed, last[quorum - 1])
    return verdicts


@given(event_times)
def test_an_event_is_late_by_what_the_allowed_lateness_lacks(times: list[int]) -> None:
    verdicts, late_by = clock().judge(array(times))
    for place, (verdict, by) in enumerate(zip(verdicts.tolist(), late_by.tolist(), strict=True)):
        assert (by > 0) == (verdict == LATE)
        if by:
            enough, too_little = (PartitionClock(Progress(), LATENESS + by - less, 1, 15.0, 0.0) for less in (0, 1))
            assert enough.judge(array(times)).verdict[place] == ACCEPTED
            assert too_little.judge(array(times)).verdict[place] == LATE


@given(event_times)
def test_where_every_event_is_believed_one_is_late_only_behind_the_newest_before_it(times: list[int]) -> None:
    newest, verdicts = MIN_TIME, []
    for time in times:
        verdicts.append(LATE if time < newest - LATENESS else ACCEPTED)
        newest = max(newest, time)
    assert clock().judge(array(times)).verdict.tolist() == verdicts


@given(event_times, quorums)
def test_an_event_is_late_only_behind_what_half_of_the_last_have_reached(times: list[int], quorum: int) -> None:
    assert clock(confirmations=quorum).judge(array(times)).verdict.tolist() == reference(times, quorum)


@given(st.lists(st.integers(0, 30), max_size=60), quorums)
def test_the_oracle_judges_alike(times: list[int], quorum: int) -> None:
    job = JobSpec((), lateness_ms=5, confirmations=quorum)
    oracle = Oracle(job, now_ms=0)
    oracle.add(Record("e", 0, offset, time, b"k", b"") for offset, time in enumerate(times))
    verdicts = PartitionClock(Progress(), 5, quorum, 15.0, 0.0).judge(array(times)).verdict
    assert {offset for _, offset in oracle.finish().late} == set(np.flatnonzero(verdicts == LATE).tolist())


def test_one_fast_clock_makes_nobody_late() -> None:
    times = NOON + 1000 * np.arange(3000)
    times[0] += 59 * 60_000
    assert not by_default().judge(times).verdict.any()


@pytest.mark.parametrize("ahead", [60_000, 59 * 60_000, 24 * HOUR])
def test_a_tenth_of_fast_clocks_makes_nobody_late(ahead: int) -> None:
    rng = np.random.default_rng(1)
    times = NOON + 10 * np.arange(1_000_000)
    times[rng.random(len(times)) < 0.1] += ahead
    judged = by_default()
    assert not judged.judge(times).verdict.any()
    assert judged.time < NOON + 10 * len(times)


@given(st.lists(st.tuples(st.integers(0, 90), st.integers(0, HOUR)), min_size=1, max_size=200), st.integers(2, 8))
def test_while_fewer_than_asked_for_are_fast_only_the_other_clocks_count(rows: list[tuple[int, int]], n: int) -> None:
    fast = [number % (2 * n) < n - 1 for number in range(len(rows))]
    right = [number + lag for number, (lag, _) in enumerate(rows)]
    times = [time + (ahead if is_fast else 0) for time, is_fast, (_, ahead) in zip(right, fast, rows, strict=True)]
    verdicts = clock(confirmations=n).judge(array(times)).verdict.tolist()
    alone = (
        clock().judge(array([time for time, is_fast in zip(right, fast, strict=True) if not is_fast])).verdict.tolist()
    )
    others = [verdict for verdict, is_fast in zip(verdicts, fast, strict=True) if not is_fast]
    assert all(mine <= its for mine, its in zip(others, alone, strict=True)), "late at most where it would be without"


@given(st.lists(st.integers(0, 24 * HOUR), min_size=1, max_size=200), quorums)
def test_sorted_events_with_any_gaps_hold_time_back_by_few_events(gaps: list[int], quorum: int) -> None:
    times = np.cumsum(gaps)
    judged = clock(confirmations=quorum)
    assert not judged.judge(times).verdict.any()
    assert judged.time == (times[-quorum] if len(times) >= quorum else MIN_TIME)


@given(event_times, quorums, st.data())
def test_how_events_are_cut_into_batches_changes_nothing(times: list[int], quorum: int, data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(times)))
    one, two = clock(confirmations=quorum), clock(confirmations=quorum)
    whole = one.judge(array(times)).verdict.tolist()
    assert two.judge(array(times[:cut])).verdict.tolist() + two.judge(array(times[cut:])).verdict.tolist() == whole
    assert one.progress(0) == two.progress(0)


@given(event_times, quorums, st.data())
def test_a_restart_from_the_committed_progress_changes_nothing(
    times: list[int], quorum: int, data: st.DataObject
) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(times)), max_size=4)))
    committed, verdicts = Progress(), []
    for start, end in pairwise([0, *cuts, len(times)]):
        judged = clock(committed, confirmations=quorum)
        verdicts += judged.judge(array(times[start:end])).verdict.tolist()
        committed = Progress.decode(judged.progress(3).encode())
        assert committed == judged.progress(3)
    assert verdicts == reference(times, quorum)


def test_what_is_committed_fits_the_metadata_of_an_offset_at_worst() -> None:
    judged = PartitionClock(Progress(), 0, MOST_CONFIRMATIONS, 15.0, 0.0)
    judged.judge(np.array([0, END - 1] * MOST_CONFIRMATIONS * 2)[1:])
    assert len(judged.progress(2**31).encode()) < 4096


@given(event_times)
def test_time_is_that_of_the_newest_believed_event_and_never_goes_back(times: list[int]) -> None:
    judged = clock()
    judged.judge(array(times))
    assert judged.time == max(times, default=MIN_TIME)


def test_silence_makes_idle_only_after_the_timeout_and_once() -> None:
    judged = clock(now=100.0)
    assert not judged.is_due(114.9)
    assert judged.is_due(115.0)
    judged.go_idle(NOON)
    assert not judged.is_due(200.0)
    assert judged.progress(1) == Progress(MIN_TIME, 1, idle=True)


def test_with_idleness_the_newest_event_counts_that_is_not_ahead_of_the_wall_clock() -> None:
    judged = by_default()
    assert not judged.judge(array([NOON, NOON + 1000, NOON + HOUR])).verdict.any()
    assert judged.time == MIN_TIME, "too few to confirm anything"
    judged.go_idle(NOON + 2000)
    assert judged.time == NOON + 1000
    judged.resuming(0)
    judged.resume(floor=MIN_TIME)
    job = JobSpec(())
    assert judged.judge(array([NOON + 1000 - job.lateness_ms, NOON])).verdict.tolist() == [ACCEPTED, ACCEPTED]
    assert judged.judge(array([NOON - job.lateness_ms])).verdict.tolist() == [WAS_IDLE]


def test_records_put_idleness_off() -> None:
    judged = clock()
    judged.saw_records(10.0)
    assert not judged.is_due(24.0)
    assert judged.is_due(25.0)


def test_a_finished_partition_is_not_idle() -> None:
    assert not clock(Progress(END)).is_due(1000.0)


def test_after_an_idle_time_the_floor_decides_until_newer_events_come() -> None:
    judged = clock(Progress(500, idle=True))
    assert judged.must_resume
    assert judged.resuming(2) == Progress(500, 2, resuming=True)
    judged.resume(floor=800)
    assert not judged.must_resume
    verdicts = judged.judge(array([799, 800, 950, 849, 851])).verdict
    assert verdicts.tolist() == [WAS_IDLE, ACCEPTED, ACCEPTED, LATE, ACCEPTED]
    assert judged.judge(array([2000, 1899])).verdict.tolist() == [ACCEPTED, LATE]


def test_a_death_between_the_two_steps_of_coming_back_is_remembered() -> None:
    dying = clock(Progress(500, idle=True))
    committed = Progress.decode(dying.resuming(0).encode())
    heir = clock(committed)
    assert heir.must_resume and not heir.idle
    assert heir.progress(0).resuming, "nothing else may be committed before the floor is known"


def test_a_floor_behind_its_own_time_changes_nothing() -> None:
    judged = clock(Progress(5000, idle=True))
    judged.resuming(0)
    judged.resume(floor=100)
    assert judged.judge(array([4900, 4899])).verdict.tolist() == [ACCEPTED, WAS_IDLE]
    assert judged.time == 5000


def test_after_the_end_everything_is_late_for_that_reason() -> None:
    assert clock(Progress(END)).judge(array([5, 6])).verdict.tolist() == [FINISHED, FINISHED]
    assert REASONS[FINISHED][0] == "input-was-finished"


others_progress = st.lists(st.builds(Progress, st.integers(0, 1000), st.just(0), st.booleans()), min_size=1, max_size=4)


@given(st.integers(0, 1000), others_progress, event_times)
def test_nothing_is_accepted_that_others_may_have_gone_past_while_it_was_idle(
    own: int, others: list[Progress], times: list[int]
) -> None:
    partitions = {0: Progress(own, idle=True), **dict(enumerate(others, 1))}
    derived = router_watermark(partitions, LATENESS)
    judged = clock(partitions[0])
    judged.resuming(0)
    judged.resume(derived)
    verdicts = judged.judge(array(times)).verdict
    assert all(time >= derived for time, verdict in zip(times, verdicts, strict=True) if verdict == ACCEPTED)
    assert router_watermark({0: judged.progress(0)}, LATENESS) >= min(derived, own - LATENESS)
