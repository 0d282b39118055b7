"""What calls have cost, counted."""

from __future__ import annotations

import pytest
from keygrouping_app.tally import HANDLED, Tally, Typical


@pytest.mark.parametrize("seconds", [1e-5, 0.001, 0.2, 30.0])
def test_what_is_typical_is_what_most_calls_take_whatever_others_take(seconds: float) -> None:
    """Quick calls go to a process by the dozen, though each fourth waits for the CPU for long."""
    typical = Typical()
    for number in range(1000):
        typical.add(100 * seconds if number % 4 == 0 else seconds)
    assert 0.5 * seconds < typical.seconds < 3 * seconds


def test_what_is_typical_changes_with_the_calls() -> None:
    typical = Typical()
    for seconds in (0.0001, 0.5):
        for _ in range(200):
            typical.add(seconds)
        assert 0.8 * seconds < typical.seconds < 1.25 * seconds


def test_calls_that_are_told_together_count_as_they_would_one_by_one() -> None:
    together, single = Tally(), Tally()
    seconds = [0.0005, 0.001, 0.3, 100.0]
    together.add_all(HANDLED, seconds)
    for each in seconds:
        single.add(HANDLED, each)
    assert (together.calls, together.seconds) == (single.calls, single.seconds)
