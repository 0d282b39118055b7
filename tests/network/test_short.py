"""Two fixed schedules of the network suite, short enough for every change."""

from __future__ import annotations

from pathlib import Path

import pytest

from .schedule import Fault, Schedule
from .trial import trial_of
from .world import world

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(1800)]

LATE_COMMITS = Schedule(
    1,
    # They are let go once the clients have sent them again and their next transactions are under way.
    [Fault("hold", 0.5 + place, 20.0, "END_TXN", "request") for place in range(4)],
)


def outages(killed: str, frozen: str) -> Schedule:
    """Of these processes, and of brokers."""
    return Schedule(
        2,
        [
            # With what it has written and not committed: only a transaction takes that back.
            Fault("kill in commit", 0.5, 1.5, killed),
            Fault("cut", 2.0, 8.0, "broker-0", "from the broker"),
            Fault("freeze", 2.5, 9.0, frozen),
            Fault("lose", 3.0, 6.0, "END_TXN", "answer"),
            Fault("kill broker", 6.0, 2.0, "broker-1"),
        ],
    )


@pytest.mark.parametrize(
    ("runner", "killed", "frozen"), [("native", "router-0", "worker-0"), ("app-exactly-once", "app-0", "app-1")]
)
async def test_commits_that_arrive_late_and_outages_change_nothing(
    tmp_path: Path, application: str, runner: str, killed: str, frozen: str
) -> None:
    async with world(tmp_path, application, runner) as running:
        trial = trial_of(running, seed=1, events=4000, rate=180)
        for schedule in (LATE_COMMITS, outages(killed, frozen)):
            outcome = await trial.run(schedule)
            assert not outcome.findings, str(outcome)
            assert not outcome.not_done, str(outcome)
        assert not await trial.finish()
