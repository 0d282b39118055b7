"""The metrics of a native worker."""

from __future__ import annotations

from keygrouping.job import REASONS
from keygrouping_service.observability.metrics import READER_REASONS, Registration

_own = Registration("worker")

EVENTS = _own.counter("events_total", "events", "Routed events whose partials are committed.")
FLUSHES = _own.counter("flushes_total", "flushes", "Flushes of one partition's partials.")
PARTIALS = _own.counter("partials_total", "partials", "Partials written.")
DEAD = _own.counter(
    "dead_letters_total",
    "events",
    "Routed events that the job can't use.",
    "reason",
    values=(*REASONS, *READER_REASONS),
)
GROUPS = _own.gauge("groups", "groups", "Keys times windows held in memory until the next flush.")
