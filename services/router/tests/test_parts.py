"""Laws of the router's settings."""

from typing import Any

import pytest
from keygrouping_router.settings import RouterSettings
from keygrouping_service.settings import load


@pytest.mark.parametrize(
    ("name", "value", "fault"),
    [
        ("GROUPING", "magic", "KEYGROUPING_ROUTER_GROUPING: unknown grouping 'magic'"),
        ("GROUPING_SETTINGS", '{"speed": 1}', "unknown setting speed"),
        ("GROUPING_SETTINGS", '{"interval": null}', "interval must be a number of seconds"),
        ("SHARING", "some", "KEYGROUPING_ROUTER_SHARING: Input should be 'shared'"),
        ("GROUPING_SETTINGS", "no json", "KEYGROUPING_ROUTER_GROUPING_SETTINGS: Invalid JSON"),
        (
            "MAX_RECORD_BYTES",
            "12",
            "KEYGROUPING_ROUTER_MAX_RECORD_BYTES: Input should be greater than or equal to 1024",
        ),
        ("START", "yesterday", "KEYGROUPING_ROUTER_START: 'yesterday' is no past time with its zone"),
        ("START", "9999-01-01T00:00:00Z", "KEYGROUPING_ROUTER_START: '9999-01-01T00:00:00Z' is no past time"),
        ("UNTIL", "9999-01-01T00:00:00Z", "KEYGROUPING_ROUTER_UNTIL: '9999-01-01T00:00:00Z' is no past time"),
        (
            "UNTIL",
            "earliest",
            "KEYGROUPING_ROUTER_UNTIL=earliest ends before anything: give latest, a time, or nothing",
        ),
        ("DELIVERY", "at_most_once", "KEYGROUPING_ROUTER_DELIVERY: Input should be 'exactly_once'"),
    ],
)
def test_wrong_settings_stop_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, value: str, fault: str
) -> None:
    monkeypatch.setenv("KEYGROUPING_BOOTSTRAP_SERVERS", "k:1")
    monkeypatch.setenv("KEYGROUPING_JOB", '{"aggregates": [{"name": "n", "op": "count"}]}')
    monkeypatch.setenv(f"KEYGROUPING_ROUTER_{name}", value)
    with pytest.raises(SystemExit):
        load(RouterSettings)
    assert fault in capsys.readouterr().err


def test_a_range_ends_behind_its_start() -> None:
    given: dict[str, Any] = {"bootstrap_servers": "k:1", "job": '{"aggregates": [{"name": "n", "op": "count"}]}'}
    start, until = "2026-11-01T00:00:00Z", "2026-11-01T00:00:00.001Z"
    assert RouterSettings(**given, start=start, until=until).range == (1_793_491_200_000, 1_793_491_200_001)
    with pytest.raises(ValueError, match="UNTIL is no later than KEYGROUPING_ROUTER_START"):
        RouterSettings(**given, start=start, until=start)
