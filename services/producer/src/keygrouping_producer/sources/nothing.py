"""The empty source of a producer that only takes events by HTTP."""

from __future__ import annotations

from keygrouping_producer.sources.base import Block


class Nothing:
    """No events at all."""

    length = 0
    span_ms = 0

    def read(self, start: int, count: int) -> Block:
        """Always empty."""
        del start, count
        return Block([], [], lambda _: b"")
