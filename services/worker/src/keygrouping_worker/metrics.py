"""The metrics of a native worker."""

from __future__ import annotations

from keygrouping.job import REASONS
from keygrouping_service.events.lateness import LATE_REASONS
from keygrouping_service.observability.metrics import READER_REASONS, Registration

_own = Registration("worker")

EVENTS = _own.counter("events_total", "events", "Events whose partials are committed.")
FLUSHES = _own.counter("flushes_total", "flushes", "Flushes of one partition's partials.")
PARTIALS = _own.counter("partials_total", "partials", "Partials written.")
DEAD = _own.counter(
    "dead_letters_total",
    "events",
    "Events that the job can't use.",
    "reason",
    values=(*REASONS, *READER_REASONS),
)
LATE = _own.counter(
    "late_total", "events", "Events sent to the late topic; with `stages: combine`.", "reason", values=LATE_REASONS
)
SKIPPED_FIELDS = _own.counter(
    "skipped_fields_total",
    "events",
    "Events with a value of the wrong type: the field's aggregates skip it; with `stages: combine`.",
    "field",
)
GROUPS = _own.gauge("groups", "groups", "Keys times windows held in memory until the next flush.")
RESULT_WAIT = _own.gauge(
    "result_wait_seconds",
    "seconds",
    "With `stages: combine`, length of a window and the allowed lateness: while events flow, results come at least "
    "that often. Behind routers 0: theirs counts.",
)
