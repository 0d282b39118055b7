"""How many events a member may write to a slot, by what the slot's owner has granted: see docs/decisions/hand-over.md.

The owner grants a number of open events. It tells how far it has read the slot, and how many events of each input are
open among those. A member adds what it has written behind that. Who takes over an input does not know what the former
owner has written: until the slot's owner has read all that the slot has then, it writes nothing to it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable


class Window:
    """Of one slot, as one member sees it.

    What it has written has its place in the log below an end of the slot that was asked for afterwards: `ask` before,
    `answer` with it.
    """

    def __init__(self) -> None:
        self._dealt = 0
        """To be written."""
        self._written = 0
        """Since the last question."""
        self._asked = 0
        self._behind: deque[tuple[int, int]] = deque()
        """Ends of the slot, and how many were written between them."""
        self._unsure = True
        self._asked_unsure = False
        self._former = 0
        """The end of what others may have written for inputs that are ours now."""
        self._position = -1
        self._open: dict[int, int] = {}
        self._grant = 0

    @property
    def needs_end(self) -> bool:
        """Whether the slot's end is to be asked for."""
        return bool(self._written or self._asked or self._unsure or self._asked_unsure)

    def room(self, inputs: Iterable[int]) -> int:
        """How many further events may be written; `inputs` are the partitions that are ours."""
        if self._unsure or self._asked_unsure or self._position < self._former:
            return 0
        behind = self._dealt + self._written + self._asked + sum(count for _, count in self._behind)
        return max(0, self._grant - behind - sum(self._open.get(each, 0) for each in inputs))

    def deal(self) -> None:
        """An event is to be written."""
        self._dealt += 1

    def wrote(self) -> None:
        """It is in the slot, or it won't be."""
        self._dealt -= 1
        self._written += 1

    def take_over(self) -> None:
        """We have another input than before."""
        self._unsure = True

    def ask(self) -> None:
        """The slot's end is asked for."""
        self._asked += self._written
        self._asked_unsure |= self._unsure
        self._written, self._unsure = 0, False

    def answer(self, end: int) -> None:
        """The answer: the offset behind the slot's last record, committed or not."""
        if self._asked:
            self._behind.append((end, self._asked))
        if self._asked_unsure:
            self._former = end
        self._asked, self._asked_unsure = 0, False
        self._forget_read()

    def hear(self, position: int, still_open: dict[int, int], grant: int) -> None:
        """What the slot's owner has told last."""
        self._position, self._open, self._grant = position, still_open, grant
        self._forget_read()

    def revoke(self) -> None:
        """The slot has no owner that grants anything."""
        self._grant = 0

    def _forget_read(self) -> None:
        while self._behind and self._behind[0][0] <= self._position:
            self._behind.popleft()
