"""Laws of event time in one input partition."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from keygrouping_router.clock import ACCEPTED, FINISHED, LATE, REASONS, WAS_IDLE, PartitionClock
from keygrouping_service.progress import END, MIN_TIME, Progress, router_watermark

LATENESS = 100

event_times = st.lists(st.integers(0, 1000), max_size=60)


def clock(committed: Progress = Progress(), now: float = 0.0) -> PartitionClock:  # noqa: B008
    return PartitionClock(committed, LATENESS, 15.0, now)


def array(times: list[int]) -> np.ndarray:
    return np.array(times, np.int64)


def reference(times: list[int], newest: int = MIN_TIME) -> list[int]:
    verdicts = []
    for time in times:
        verdicts.append(LATE if time < newest - LATENESS else ACCEPTED)
        newest = max(newest, time)
    return verdicts


@given(event_times)
def test_an_event_is_late_only_behind_the_newest_before_it(times: list[int]) -> None:
    assert clock().judge(array(times)).tolist() == reference(times)


@given(event_times, st.data())
def test_how_events_are_cut_into_batches_changes_nothing(times: list[int], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(times)))
    one, two = clock(), clock()
    whole = one.judge(array(times)).tolist()
    assert two.judge(array(times[:cut])).tolist() + two.judge(array(times[cut:])).tolist() == whole
    assert one.progress(0) == two.progress(0)


@given(event_times, st.data())
def test_a_restart_from_the_committed_progress_changes_nothing(times: list[int], data: st.DataObject) -> None:
    cut = data.draw(st.integers(0, len(times)))
    first = clock()
    before = first.judge(array(times[:cut])).tolist()
    after = clock(Progress.decode(first.progress(3).encode())).judge(array(times[cut:])).tolist()
    assert before + after == reference(times)


@given(event_times)
def test_time_is_that_of_the_newest_event_and_never_goes_back(times: list[int]) -> None:
    judged = clock()
    judged.judge(array(times))
    assert judged.time == max(times, default=MIN_TIME)


def test_silence_makes_idle_only_after_the_timeout_and_once() -> None:
    judged = clock(now=100.0)
    assert not judged.is_due(114.9)
    assert judged.is_due(115.0)
    judged.go_idle()
    assert not judged.is_due(200.0)
    assert judged.progress(1) == Progress(MIN_TIME, 1, idle=True)


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
    verdicts = judged.judge(array([799, 800, 950, 849, 851]))
    assert verdicts.tolist() == [WAS_IDLE, ACCEPTED, ACCEPTED, LATE, ACCEPTED]
    assert judged.judge(array([2000, 1899])).tolist() == [ACCEPTED, LATE]


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
    assert judged.judge(array([4900, 4899])).tolist() == [ACCEPTED, LATE]


def test_after_the_end_everything_is_late_for_that_reason() -> None:
    assert clock(Progress(END)).judge(array([5, 6])).tolist() == [FINISHED, FINISHED]
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
    verdicts = judged.judge(array(times))
    assert all(time >= derived for time, verdict in zip(times, verdicts, strict=True) if verdict == ACCEPTED)
    assert router_watermark({0: judged.progress(0)}, LATENESS) >= min(derived, own - LATENESS)
