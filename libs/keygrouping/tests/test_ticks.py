"""Passings of a time."""

from hypothesis import example, given
from hypothesis import strategies as st
from keygrouping.grouping._ticks import Ticks

moments = st.lists(st.floats(0, 1e6), min_size=1).map(sorted)


@given(moments=moments, interval=st.floats(0.01, 1e4))
@example(moments=[100.4, 4100.4], interval=1.0)
def test_every_interval_passes_once(moments: list[float], interval: float) -> None:
    ticks = Ticks(interval)
    passed = 0
    for now in moments:
        passed += ticks.passed(now)
        assert ticks.passed(now) == 0
    assert abs(passed - (moments[-1] - moments[0]) / interval) <= 1 + 1e-6
