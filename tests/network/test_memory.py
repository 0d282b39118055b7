"""Trends of memory are those of warm processes, in megabytes per hour."""

from __future__ import annotations

import os

import pytest

from .memory import WARM_SECONDS, Memory, resident


def test_a_steady_rise_is_told_in_megabytes_per_hour() -> None:
    memory = Memory()
    for minute in range(120):
        memory.add("router-0", minute * 60, minute * 60, 100_000_000 + minute * 500_000)
        memory.add("worker-0", minute * 60, minute * 60, 80_000_000)
    worker, router = sorted(memory.trends(600), key=lambda trend: trend.per_hour)
    assert worker.name == "worker-0"
    assert worker.per_hour == pytest.approx(0, abs=1e-6)
    assert router.per_hour == pytest.approx(30)
    assert (router.first, router.last) == (105, 159.5)


def test_what_was_just_started_does_not_count() -> None:
    memory = Memory()
    for second in range(600, 1200, 5):
        young = second % 300 < WARM_SECONDS
        memory.add("router-1", second, second % 300, 20_000_000 if young else 90_000_000)
    (trend,) = memory.trends(600)
    assert trend.first == 90
    assert trend.per_hour == pytest.approx(0, abs=1e-6)


def test_a_process_without_warm_samples_has_no_trend() -> None:
    memory = Memory()
    memory.add("observer-0", 700, 1, 1_000_000)
    assert memory.trends(600) == []


def test_resident_memory_is_that_of_the_process() -> None:
    assert resident(os.getpid()) > 10_000_000
    assert resident(2**22 + 1) == 0
