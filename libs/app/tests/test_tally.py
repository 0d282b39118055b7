"""What calls have cost, counted."""

from __future__ import annotations

import pytest
from keygrouping_app.tally import Typical


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
