"""Laws of the token bucket, on a clock that moves only when told."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from keygrouping_producer.rate import TokenBucket


class FakeClock:
    """Seconds that pass by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_without_a_rate_everything_may_go() -> None:
    bucket = TokenBucket(0, FakeClock())
    assert bucket.take(5_000) == 5_000
    assert bucket.wait() == 0


@given(rate=st.floats(0.1, 1e6), pauses=st.lists(st.floats(0.0, 0.4), min_size=1, max_size=50))
def test_never_more_than_the_rate_plus_one_burst(rate: float, pauses: list[float]) -> None:
    clock = FakeClock()
    bucket = TokenBucket(rate, clock)
    taken = 0
    for pause in pauses:
        clock.now += pause
        taken += bucket.take(10**9)
    assert taken <= rate * (clock.now - 100.0) + max(1.0, rate / 2) + 1e-6


@given(rate=st.floats(0.5, 1e5))
def test_who_waits_as_told_gets_the_rate(rate: float) -> None:
    clock = FakeClock()
    bucket = TokenBucket(rate, clock)
    taken = 0
    for _ in range(1000):
        clock.now += max(bucket.wait(), 1e-6) * 1.000001
        taken += bucket.take(1)
    assert taken == pytest.approx(rate * (clock.now - 100.0), rel=0.02, abs=1.5)


def test_a_long_sleep_is_not_made_up_for() -> None:
    clock = FakeClock()
    bucket = TokenBucket(100, clock)
    clock.now += 3600
    assert bucket.take(10**9) == 50


def test_a_slow_rate_still_lets_single_events_go() -> None:
    clock = FakeClock()
    bucket = TokenBucket(0.1, clock)
    assert bucket.take(10) == 0
    assert bucket.wait() == pytest.approx(10)
    clock.now += 10.001
    assert bucket.take(10) == 1


def test_what_was_not_there_can_be_given_back() -> None:
    clock = FakeClock()
    bucket = TokenBucket(100, clock)
    clock.now += 0.4
    assert bucket.take(40) == 40
    bucket.give_back(30)
    assert bucket.take(100) == 30


def test_a_new_rate_holds_from_now_on() -> None:
    clock = FakeClock()
    bucket = TokenBucket(1000, clock)
    clock.now += 1
    bucket.set_rate(10)
    assert bucket.take(10**9) == 5
    clock.now += 0.2
    assert bucket.take(10**9) == 2
    bucket.set_rate(0)
    assert bucket.take(10**9) == 10**9
