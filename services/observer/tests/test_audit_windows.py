"""Which windows of the audit are shown first."""

from __future__ import annotations

import pytest
from keygrouping.job import JobSpec
from keygrouping.receipt import Tally
from keygrouping_observer.audit.books import Books
from keygrouping_observer.audit.report import AuditReport, LatestAudit

JOB = JobSpec.from_json('{"window": 1000, "aggregates": [{"name": "events", "op": "count"}]}')
AHEAD = 10**12


@pytest.fixture
def latest() -> LatestAudit:
    """Windows 0 to 5 are complete, 1 and 4 without their results; three more are open, two of them of fast clocks."""
    books = Books("events", "routed", JOB, "A" * 22, lambda: 0)
    one = Tally(1, 7)
    for start in (*range(0, 7000, 1000), AHEAD, AHEAD + 1000):
        assert books.windows.routed(start, one)
        if start not in (1000, 4000):
            assert books.windows.found(start, one)
    books.judge(6000)
    latest = LatestAudit()
    latest.show(books)
    return latest


@pytest.mark.parametrize("limit", [0, 1, 3, 6, 100])
def test_what_is_complete_comes_before_what_is_open(latest: LatestAudit, limit: int) -> None:
    report = AuditReport.model_validate(latest.as_json(limit))
    differing, proven, waiting = [4000, 1000], [5000, 3000, 2000, 0], [6000, AHEAD, AHEAD + 1000]
    assert [window.start for window in report.windows] == [*differing, *proven, *waiting][:limit]
    assert (report.open_windows, report.differing_windows) == (3, 2)
