"""The record of schedules adds up over runs."""

from __future__ import annotations

from pathlib import Path

from .checker import Finding
from .record import Record
from .schedule import Possible, draw
from .trial import Outcome


def outcome(seed: int, runner: str, *findings: Finding) -> Outcome:
    return Outcome(draw(seed, Possible(["router-0"])), runner, list(findings), [], [], 40.0, 5.0, 6000)


def test_runs_add_up_and_go_on_behind_the_last_seed(tmp_path: Path) -> None:
    file = tmp_path / "network" / "schedules.jsonl"
    assert Record(file).next_seed("native") == 1
    Record(file).add(outcome(1, "native"))
    Record(file).add(outcome(2, "native", Finding("routed", "lost", (7,), "events-0@7")))
    Record(file).add(outcome(5, "spark"))
    assert (Record(file).next_seed("native"), Record(file).next_seed("spark")) == (3, 6)
    summary = Record(file).summary()
    assert "native: 2 schedules, 1 with findings" in summary
    assert "spark: 1 schedules, 0 with findings" in summary


def test_an_outcome_names_what_was_found() -> None:
    assert "schedule 3 (native): exact" in str(outcome(3, "native"))
    told = str(outcome(3, "native", Finding("routed", "lost", (7,), "events-0@7")))
    assert "1 FINDING" in told
    assert "routed: lost: event 7: events-0@7" in told
