"""The metrics of a producer."""

from __future__ import annotations

from keygrouping_service.observability.metrics import Registration

_own = Registration("producer")

SENT = _own.counter("sent_total", "events", "Replayed events that the broker has acknowledged.")
BAD_LINES = _own.counter("bad_lines_total", "lines", "Pieces of a source that went to dead-letters.")
ACCEPTED = _own.counter("accepted_total", "events", "Events taken by HTTP that the broker has acknowledged.")
