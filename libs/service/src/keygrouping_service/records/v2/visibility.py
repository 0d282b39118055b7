"""Which batches of a partition a reader of committed records sees."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from keygrouping_service.records.v2.layout import CONTROL, TRANSACTIONAL, Header

ABORT_MARKER = 0
"""Type in the key of a control record by which a transaction is aborted."""


class Visibility:
    """Hides the batches of aborted transactions, given as a fetch's answer names them, and all control batches.

    `aborted` are pairs of a producer's id and the first offset of its transaction. Batches are asked for in their
    order, each once.
    """

    def __init__(self, aborted: Iterable[tuple[int, int]] = ()) -> None:
        self._coming = deque(sorted(aborted, key=lambda transaction: transaction[1]))
        self._aborted: set[int] = set()

    @property
    def shows_all(self) -> bool:
        """Whether no transaction is hidden from here on."""
        return not self._coming and not self._aborted

    def shows(self, header: Header, marker: int | None) -> bool:
        """Whether a batch's records are to be seen; `marker` is the type of a control batch's, None for none."""
        while self._coming and self._coming[0][1] <= header.base_offset:
            self._aborted.add(self._coming.popleft()[0])
        if header.attributes & CONTROL:
            if marker == ABORT_MARKER:
                self._aborted.discard(header.producer_id)
            return False
        return not (header.attributes & TRANSACTIONAL and header.producer_id in self._aborted)
