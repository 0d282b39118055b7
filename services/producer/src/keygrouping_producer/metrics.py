"""The producer's metrics, defined like those of all services."""

from __future__ import annotations

from keygrouping_service import metrics

SENT = metrics.counter("producer_sent_total", "events", "Replayed events that the broker has acknowledged.")
BAD_LINES = metrics.counter("producer_bad_lines_total", "lines", "Pieces of a source that went to dead-letters.")
ACCEPTED = metrics.counter(
    "producer_accepted_total", "events", "Events taken by HTTP that the broker has acknowledged."
)
REFUSED = metrics.counter("producer_refused_total", "requests", "Requests refused, by HTTP status.", "status")
