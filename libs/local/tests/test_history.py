"""Laws of the names of runs."""

from pathlib import Path

import pytest
from keygrouping_local.history import History


def test_a_live_run_keeps_its_name(tmp_path: Path) -> None:
    assert History(tmp_path / "runs").turn("a", once=False) == History(tmp_path / "runs").turn("a", once=False)


def test_an_interrupted_run_goes_on_under_its_name(tmp_path: Path) -> None:
    first = History(tmp_path / "runs").turn("a", once=True)
    assert History(tmp_path / "runs").turn("a", once=True) == first


def test_after_a_complete_run_the_next_starts_afresh_and_knows_what_can_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: 1_800_000_000.0)  # Both begin at the same time.
    history = History(tmp_path / "runs")
    first = history.turn("a", once=True)
    history.turn("b", once=True)
    history.complete("a")
    second = history.turn("a", once=True)
    assert second.application != first.application
    assert second.predecessor == first.application


def test_different_runs_never_share_a_name(tmp_path: Path) -> None:
    history = History(tmp_path / "runs")
    names = [history.turn(identity, once).application for identity in ("a", "b") for once in (True, False)]
    assert len(set(names)) == 4
