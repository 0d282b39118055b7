"""Where an app begins and ends, as users say it, and as it stands in a commit's metadata."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from keygrouping_app import App, AppError, Event
from keygrouping_app.kafka.ranges import MOST_END, End, split_end, with_end
from keygrouping_app.moments import moment_of


def checked(**given: Any) -> list[str]:
    app = App("billing", **given)

    @app.on("orders")
    async def charge(event: Event) -> None: ...

    try:
        app.check()
    except AppError as wrong:
        return wrong.faults
    return []


def test_a_time_has_a_zone_in_whatever_form_it_comes() -> None:
    wanted = 1_790_000_000_000
    at = datetime.fromtimestamp(wanted / 1000, UTC)
    assert moment_of(at) == moment_of(at.isoformat()) == moment_of(at.isoformat().replace("+00:00", "Z")) == wanted
    assert moment_of(at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S+00:00")) == wanted
    assert [moment_of("earliest"), moment_of("latest")] == ["earliest", "latest"]


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"start": "latest"},
        {"start": "2026-11-01T00:00:00Z", "until": "latest"},
        {"start": "2026-11-01T00:00:00+01:00", "until": "2026-11-01T00:00:00Z"},
        {"until": datetime(2026, 11, 1, tzinfo=UTC)},
    ],
)
def test_what_makes_a_range_is_taken(given: dict[str, Any]) -> None:
    assert checked(**given) == []


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"start": "yesterday"}, "start is 'yesterday': give 'earliest', 'latest', or a time with its zone"),
        ({"start": "2026-11-01"}, "start is '2026-11-01': give"),
        ({"start": datetime(2026, 11, 1)}, "start is datetime.datetime(2026, 11, 1, 0, 0): give"),
        ({"start": None}, "start is None: give"),
        ({"start": datetime.now(UTC) + timedelta(hours=1)}, "that is not in the future"),
        ({"until": "earliest"}, "until is 'earliest': give 'latest', a time with its zone"),
        ({"until": "9999-01-01T00:00:00Z"}, "until is '9999-01-01T00:00:00Z': give 'latest'"),
        ({"start": "2026-11-02T00:00:00Z", "until": "2026-11-01T00:00:00Z"}, "is no later than start"),
    ],
)
def test_what_makes_none_is_told_with_what_to_do(given: dict[str, Any], fault: str) -> None:
    (told,) = checked(**given)
    assert fault in told


@pytest.mark.parametrize("end", [End(0, "latest"), End(2**63 - 1, 1_790_000_000_000)])
@pytest.mark.parametrize("metadata", ["", "kg1:AAEC"])
def test_an_end_stands_behind_the_gaps(end: End, metadata: str) -> None:
    both = with_end(metadata, end)
    assert len(both) <= len(metadata) + MOST_END
    assert split_end(both) == (metadata, end)
    assert with_end(metadata, None) == metadata


@pytest.mark.parametrize("said", ["", "kg1:AAEC", " until:", " until:x:latest", " until:5:", " until:5:earliest"])
def test_what_says_no_end_is_none(said: str) -> None:
    assert split_end(said) == (said.partition(" until:")[0], None)
