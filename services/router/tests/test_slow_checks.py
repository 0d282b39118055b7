"""A router whose users' code holds it up says so at its start."""

from __future__ import annotations

import logging

import pytest
from keygrouping.job import JobSpec
from keygrouping_router import service

JOB = JobSpec.from_json(
    {
        "aggregates": [
            {"name": "n", "op": "count"},
            {"name": "mean", "op": "keygrouping_local.picky:GeometricMean", "field": "x"},
        ]
    }
)


def test_slow_checks_are_told_with_what_they_allow(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "microseconds_of_check", lambda _: 50.0)
    with caplog.at_level(logging.WARNING):
        service.tell_slow_checks(JOB)
    (said,) = caplog.messages
    assert said.startswith(
        "aggregate 'mean' (keygrouping_local.picky:GeometricMean): to check an event takes the router 50 µs, so it "
        "routes at most 20000 events per second"
    )


def test_quick_checks_are_not_worth_a_word(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(service, "microseconds_of_check", lambda _: 5.0)
    service.tell_slow_checks(JOB)
    assert caplog.messages == []
