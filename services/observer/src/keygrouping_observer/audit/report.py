"""The JSON of `GET /audit`: what has been proven, and what differs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, Literal

from keygrouping.receipt import Tally
from keygrouping_service.kafka.progress import END, MIN_TIME
from pydantic import BaseModel, Field

from keygrouping_observer.audit.books import Books
from keygrouping_observer.audit.windows import Window
from keygrouping_observer.report import Count, Moment

MOST = 1000


class Sum(BaseModel):
    """A number of events, and the sum of their hashes modulo 2^128 in hexadecimal."""

    events: Count
    receipt: str = Field(pattern="^[0-9a-f]{32}$")


class AuditedInput(BaseModel):
    """A partition of the input: every offset from `first` up to `after` is accounted for, unless a difference says."""

    topic_id: str
    partition: Count
    first: Count
    after: Count
    events: Count
    routed: Count
    late: Count
    dead_letters: Count


class AuditedWindow(BaseModel):
    """A window (times in ms): what was routed into it, what its results hold, what workers could not use."""

    start: int
    end: int
    verdict: Literal["open", "proven", "differs", "unknown"]
    routed: Sum
    results: Sum
    dead_letters: Sum
    keys: Count = Field(description="results of the window")
    detail: str | None = Field(description="what differs")


class AuditedRange(BaseModel):
    """Offsets of the input that are not accounted for, or more than once."""

    kind: str
    partition: Count
    first: Count
    after: Count
    events: Count
    detail: str
    found: Moment


class AuditReport(BaseModel):
    """How far the proof is."""

    state: Literal["standby", "auditing"]
    verdict: Literal["nothing differs", "differs"]
    proven_until: Moment | None = Field(description="event time: windows that end by then have been compared")
    proven_since: Moment | None = Field(description="windows that start before it are unknown if they don't add up")
    open_windows: Count
    differing_windows: Count
    differing_ranges: Count
    inputs: list[AuditedInput]
    windows: list[AuditedWindow] = Field(
        description="those that differ, then those that are judged, the newest first; then open ones, the oldest first"
    )
    ranges: list[AuditedRange] = Field(description="the newest differences of the input, the oldest first")


class LatestAudit:
    """What the HTTP side shows of the audit."""

    def __init__(self) -> None:
        self._books: Books | None = None

    def show(self, books: Books) -> None:
        """This process audits."""
        self._books = books

    def stand_by(self) -> None:
        """Another process audits, or nobody."""
        self._books = None

    def as_json(self, limit: int) -> dict[str, Any]:
        """An `AuditReport` with at most so many windows and ranges."""
        return _NOTHING if self._books is None else report_of(self._books, limit)


_NOTHING: dict[str, Any] = {
    "state": "standby",
    "verdict": "nothing differs",
    "proven_until": None,
    "proven_since": None,
    "open_windows": 0,
    "differing_windows": 0,
    "differing_ranges": 0,
    "inputs": [],
    "windows": [],
    "ranges": [],
}


def report_of(books: Books, limit: int) -> dict[str, Any]:
    """An `AuditReport` of these books with at most so many windows and ranges."""
    differing = books.windows.differing
    return {
        "state": "auditing",
        "verdict": "differs" if differing or books.found else "nothing differs",
        "proven_until": _moment(books.time),
        "proven_since": _moment(books.windows.since),
        "open_windows": books.windows.open,
        "differing_windows": len(differing),
        "differing_ranges": books.found,
        "inputs": [
            {
                "topic_id": str(lane.topic),
                "partition": lane.partition,
                "first": lane.since,
                "after": lane.proven,
                "events": lane.consumed,
                "routed": lane.routed,
                "late": lane.late,
                "dead_letters": lane.dead,
            }
            for lane in books.lanes.values()
        ],
        "windows": [_window(books, window) for window in books.windows.listed(limit)],
        "ranges": [
            {
                **{name: getattr(found, name) for name in ("kind", "partition", "first", "after", "events", "detail")},
                "found": _moment(found.at),
            }
            for found in books.differences[-limit:]
        ],
    }


def _window(books: Books, window: Window) -> dict[str, Any]:
    return {
        "start": window.start,
        "end": window.start + books.job.window_ms,
        "verdict": window.verdict,
        "routed": _sum(window.routed),
        "results": _sum(window.found),
        "dead_letters": _sum(window.dead),
        "keys": window.results,
        "detail": books.explain(window) if window.verdict == "differs" else None,
    }


def _sum(tally: Tally) -> dict[str, Any]:
    return dict(zip(("events", "receipt"), tally.as_json(), strict=True))


def _moment(time_ms: int) -> str | None:
    if time_ms <= MIN_TIME:
        return None
    return (
        datetime.fromtimestamp(min(time_ms, END) / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    )
