"""When events are due, and what becomes of a run's figures: arithmetic without a clock."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from keygrouping_load.latencies import Latencies
from keygrouping_load.report import Outcome, Report
from keygrouping_load.schedule import Schedule
from keygrouping_load.settings import EventLoadSettings

few = settings(max_examples=50)
rates = st.floats(0.1, 1e6)


@few
@given(rates, st.integers(1, 10_000), st.integers(1, 16))
def test_the_slots_share_all_events_each_once(rate: float, events: int, slots: int) -> None:
    schedules = [Schedule(rate, events, slot, slots) for slot in range(slots)]
    numbers = sorted(schedule.number(place) for schedule in schedules for place in range(schedule.size))
    assert numbers == list(range(events))


@few
@given(rates, st.integers(1, 1000), st.integers(1, 8), st.floats(0, 100))
def test_an_event_is_due_from_its_intended_time_on(rate: float, events: int, slots: int, passed: float) -> None:
    for slot in range(slots):
        schedule = Schedule(rate, events, slot, slots)
        due = schedule.due(passed)
        assert 0 <= due <= schedule.size
        if due:
            assert schedule.intended(due - 1) <= passed * (1 + 1e-9) + 1e-9
        if due < schedule.size:
            assert schedule.intended(due) > passed * (1 - 1e-9)


def test_what_is_due_does_not_depend_on_what_was_sent() -> None:
    schedule = Schedule(100, 1000)
    assert [schedule.due(passed) for passed in (-1, 0, 0.005, 0.01, 5, 9.99, 60)] == [0, 1, 1, 2, 501, 1000, 1000]
    assert schedule.intended_all(np.array([0, 1, 999])).tolist() == [0, 0.01, 9.99]


@few
@given(st.lists(st.floats(1e-6, 1e3), min_size=1, max_size=200), st.floats(0.01, 1), st.integers(0, 200))
def test_quantiles_are_two_per_cent_off_at_most(seconds: list[float], part: float, cut: int) -> None:
    first, second = Latencies(), Latencies()
    first.add(np.array(seconds[:cut]))
    second.add(np.array(seconds[cut:]))
    both = Latencies.model_validate_json(first.joined(second).model_dump_json())
    exact = sorted(seconds)[max(0, int(np.ceil(part * len(seconds))) - 1)]
    assert both.longest == max(seconds)
    assert exact * (1 - 1e-9) <= both.quantile(part) <= exact * 1.021


def test_without_latencies_there_is_nothing_to_tell() -> None:
    assert Latencies().quantile(0.99) == Latencies().longest == 0


def outcome(acknowledged: int, last: float, *, rate: float = 1000, failed: int = 0) -> Outcome:
    asked = EventLoadSettings(bootstrap_servers="unused:1", rate=rate, seconds=10, tolerance=0.01)
    half = Report(acknowledged=acknowledged // 2, last=last / 2, late=0.001)
    rest = Report(acknowledged=acknowledged - acknowledged // 2, last=last, failed=failed, late=0.002)
    return Outcome(asked, [half, rest])


@pytest.mark.parametrize(
    ("acknowledged", "last", "error", "held"),
    [
        (10_000, 9.999, 0.0, True),
        (10_000, 10.05, -0.005, True),
        (10_000, 10.2, -0.0196, False),
        (9_950, 9.9, -0.005, True),
        (9_800, 9.9, -0.02, False),
        (0, 0.0, -1.0, False),
    ],
)
def test_the_rate_is_held_if_what_was_acknowledged_in_time_is_what_was_asked_for(
    acknowledged: int, last: float, error: float, held: bool
) -> None:
    found = outcome(acknowledged, last)
    assert found.error == pytest.approx(error, abs=1e-4)
    assert found.held is held
    assert json.loads(found.as_json())["held"] is held


def test_people_and_programs_are_told_the_same() -> None:
    found = outcome(10_000, 10.2, failed=3)
    found.report.latencies.add(np.array([0.001] * 99 + [0.5]))
    assert found.as_text().splitlines() == [
        "events   10,000 of 10,000 acknowledged, 3 refused",
        "rate     980.4/s of 1,000.0/s: -1.96% (tolerance 1.00%)",
        "latency  p50 1.0 ms, p99 1.0 ms, max 500.0 ms from the intended time to the acknowledgement",
        "sending  at most 2.0 ms after the intended time",
    ]
    told = json.loads(found.as_json())
    assert (told["failed"], told["late_max_seconds"], told["latency_max_seconds"]) == (3, 0.002, 0.5)
