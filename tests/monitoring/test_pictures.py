"""Dashboards as pictures: they show what a dashboard would."""

from __future__ import annotations

import math

import pytest
from dashboard_pictures import namespace_of
from monitoring.pictures import broken


def test_no_line_leads_over_a_time_in_which_nothing_was_known() -> None:
    pieces = broken([(0.0, 5.0), (2.0, 6.0), (30.0, 0.0), (32.0, 1.0)])
    assert [time for time, value in pieces if math.isnan(value)] == [2.0]
    assert [point for point in pieces if not math.isnan(point[1])] == [(0.0, 5.0), (2.0, 6.0), (30.0, 0.0), (32.0, 1.0)]


@pytest.mark.parametrize(
    ("expr", "namespace"),
    [
        ('max(keygrouping_spark_state_rows{namespace="$namespace"})', "with-spark"),
        ('keygrouping_lag_records{namespace="$namespace"} or keygrouping_spark_source_lag_records', "streams"),
        ('count(ALERTS{namespace="$namespace"})', "streams"),
    ],
)
def test_panels_of_spark_alone_show_the_pipeline_with_spark(expr: str, namespace: str) -> None:
    assert namespace_of(expr) == namespace
