"""Laws of plans and settings: names are checked, and the environment says it all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from keygrouping_producer.plan import Pace, Plan, Workload
from keygrouping_producer.settings import ProducerSettings
from keygrouping_service.settings import load
from pydantic import ValidationError


@pytest.mark.parametrize(
    ("given", "name", "skew"),
    [
        ({}, "none", None),
        ({"workload": "flights"}, "flights", None),
        ({"workload": "flights", "key": "tailnum"}, "flights", None),
        ({"workload": "country-skew-0"}, "country-skew-0", 0),
        ({"workload": "country-skew", "skew": 100}, "country-skew-100", 100),
        ({"workload": "country-skew-80", "skew": 20}, "country-skew-20", 20),
        ({"skew": 30}, "country-skew-30", 30),
        ({"workload": "country-half-skew"}, "country-half-skew", None),
        ({"workload": "file", "file": "a.jsonl", "key": "id"}, "file", None),
    ],
)
def test_known_workloads(given: dict[str, Any], name: str, skew: int | None) -> None:
    workload = Workload.model_validate(given)
    assert (workload.workload, workload.skew) == (name, skew)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"workload": "fligths"}, "known are flights"),
        ({"workload": "country-skew"}, "known are"),
        ({"workload": "country-skew-101"}, "known are"),
        ({"workload": "country-skew", "skew": -1}, "known are"),
        ({"workload": "flights", "skew": 10}, "a skew goes with country-skew only"),
        ({"workload": "flights", "key": "pilot"}, "choose one of origin, carrier, dest, tailnum"),
        ({"workload": "file", "key": "id"}, "needs a file and a key"),
        ({"workload": "file", "file": "a"}, "needs a file and a key"),
        ({"wrokload": "flights"}, "not permitted"),
        ({"events": 0}, "greater than or equal to 1"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        Workload.model_validate(given)


def test_the_environment_makes_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {
        "BOOTSTRAP_SERVERS": "broker:9092",
        "PRODUCER_WORKLOAD": "file",
        "PRODUCER_FILE": "/data/a.csv",
        "PRODUCER_KEY": "id",
        "PRODUCER_TIME_FIELD": "at",
        "PRODUCER_RATE": "12.5",
        "PRODUCER_LOOP": "true",
    }
    for name, value in environment.items():
        monkeypatch.setenv(f"KEYGROUPING_{name}", value)
    workload = Workload(workload="file", file=Path("/data/a.csv"), key="id", time_field="at")
    assert load(ProducerSettings).plan() == Plan(workload=workload, pace=Pace(rate=12.5, loop=True))


def test_every_fault_of_the_environment_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {"PRODUCER_PROCESSES": "0", "PRODUCER_RAET": "1"}.items():
        monkeypatch.setenv(f"KEYGROUPING_{name}", value)
    with pytest.raises(SystemExit) as exit_:
        load(ProducerSettings)
    assert exit_.value.code == 2
    told = capsys.readouterr().err
    assert "KEYGROUPING_BOOTSTRAP_SERVERS" in told
    assert "KEYGROUPING_PRODUCER_PROCESSES" in told
    assert "KEYGROUPING_PRODUCER_RAET: unknown setting" in told


@pytest.mark.parametrize("name", ["PRODUCER_WORKLOAD", "PRODUCER_RATE"])
def test_a_plan_that_does_not_fit_stops_the_start(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("KEYGROUPING_BOOTSTRAP_SERVERS", "broker:9092")
    monkeypatch.setenv(f"KEYGROUPING_{name}", "-1")
    with pytest.raises(SystemExit):
        load(ProducerSettings)
    assert len(capsys.readouterr().err.splitlines()) == 1
