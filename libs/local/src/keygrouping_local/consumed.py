"""How many events have been routed: offsets count the markers of transactions, too, receipts don't."""

from __future__ import annotations

from collections.abc import Mapping

from keygrouping.receipt import Receipt


class Consumed:
    """Counts on from the offsets that the router had committed by partition of the input when this began."""

    def __init__(self, committed: Mapping[int, int]) -> None:
        self.events = sum(committed.values())
        self._committed = dict(committed)

    def add(self, receipt: Receipt) -> None:
        """Takes in what a transaction consumed, unless the offsets at the beginning have it already."""
        if receipt.first >= self._committed.get(receipt.partition, 0):
            self.events += receipt.consumed.events
