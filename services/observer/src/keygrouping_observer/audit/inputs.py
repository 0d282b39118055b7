"""The input's side of the proof: receipts tile each partition; late events and dead letters are where they say."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from keygrouping.identity import partition_seeds, tally
from keygrouping.receipt import NOTHING, Receipt, Tally

KINDS = ("late", "dead")

Letters = dict[str, dict[int, int]]
"""How many records in `late` and in `dead-letters` came from which offset of one partition."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Offsets [first, after) of a partition of the input that are not accounted for, or more than once."""

    kind: str
    partition: int
    first: int
    after: int
    events: int
    detail: str
    at: int = 0
    """When it was found, in ms."""


@dataclass(slots=True)
class _Claim:
    """What a receipt says of late events and dead letters, until it can be compared."""

    first: int
    after: int
    late: Tally
    dead: Tally


@dataclass(slots=True)
class Lane:
    """One partition of the input: receipts cover it from `since` up to `next`, and are compared up to `proven`."""

    topic: str
    partition: int
    since: int
    next: int
    proven: int
    consumed: int = 0
    routed: int = 0
    late: int = 0
    dead: int = 0
    ranges: int = 0
    _claims: list[_Claim] = field(default_factory=list)

    @classmethod
    def of(cls, receipt: Receipt) -> Lane:
        """A partition of which this is the first receipt."""
        return cls(receipt.topic, receipt.partition, receipt.first, receipt.first, receipt.first)

    def add(self, receipt: Receipt) -> Iterator[Difference]:
        """Takes a receipt in; tells where it doesn't follow the one before or doesn't add up."""
        if receipt.first < self.next:
            end = min(receipt.after, self.next)
            if end > receipt.first:
                detail = f"a router began again at {receipt.first} though {self.next} had been reached: routed twice"
                yield self._difference("doubled", receipt.first, end, receipt.consumed.events, detail)
        elif receipt.first > self.next:
            gap = receipt.first - self.next
            detail = (
                f"no router has read these {gap} offsets: deleted before they were read, or a group's offsets reset"
            )
            yield self._difference("lost", self.next, receipt.first, gap, detail)
        yield from self._check(receipt)
        self.next = max(self.next, receipt.after)
        self.consumed += receipt.consumed.events
        self.routed += receipt.routed.events
        self.late += receipt.late.events
        self.dead += receipt.dead.events
        if receipt.after > receipt.first:
            self._claims.append(_Claim(receipt.first, receipt.after, receipt.late, receipt.dead))

    def _check(self, receipt: Receipt) -> Iterator[Difference]:
        rest = receipt.consumed.minus(receipt.routed).minus(receipt.late).minus(receipt.dead)
        if rest != (0, 0):
            detail = "what was read is not what was routed, late or dead"
            yield self._difference("unaccounted", receipt.first, receipt.after, abs(rest.events), detail)
        sent = sum(receipt.by_worker().values())
        counted = sum(window.events for window in receipt.by_window().values())
        if receipt.after > receipt.first and (sent != receipt.routed.events or (sent != counted and not receipt.more)):
            detail = f"{receipt.routed.events} events were routed, {sent} to workers, {counted} into windows"
            yield self._difference("unaccounted", receipt.first, receipt.after, abs(sent - counted), detail)

    def judge(self, letters: Letters, uncompared: Sequence[str] = ()) -> Iterator[Difference]:
        """Compares what the receipts so far say with the records there are, which are taken out.

        Kinds that are `uncompared` are taken out only.
        """
        offsets = {kind: sorted(letters[kind]) for kind in KINDS}
        for claim, kind, claimed in self._claimed():
            found = self._tally(taken := _within(offsets[kind], claim), letters[kind])
            for offset in taken:
                letters[kind].pop(offset, None)
            if found != claimed and kind not in uncompared:
                missing = claimed.events - found.events
                detail = f"{claimed.events} were written, {found.events} are there"
                yield self._difference(_TOPICS[kind], claim.first, claim.after, abs(missing), detail)
        for kind in KINDS:
            for offset in offsets[kind][: bisect_left(offsets[kind], self.next)]:
                count = letters[kind].pop(offset, 0)
                if count and offset >= self.since:
                    detail = "a record that no receipt speaks of, or a second one of the same event"
                    yield self._difference(_TOPICS[kind], offset, offset + 1, count, detail)

    def end(self, letters: Letters) -> None:
        """Takes out what the last receipts speak of, as the topic is no more.

        Letters tell the topic's name and not its id: what does not fit is of the topic that has taken its place.
        """
        offsets = {kind: sorted(letters[kind]) for kind in KINDS}
        for claim, kind, claimed in self._claimed():
            taken = _within(offsets[kind], claim)
            if self._tally(taken, letters[kind]) == claimed:
                for offset in taken:
                    letters[kind].pop(offset, None)

    def _claimed(self) -> Iterator[tuple[_Claim, str, Tally]]:
        """What is to be compared, of each kind; from then on it is."""
        claims, self._claims, self.proven = self._claims, [], self.next
        self.ranges += len(claims)
        for claim in claims:
            yield claim, "late", claim.late
            yield claim, "dead", claim.dead

    def _tally(self, offsets: Sequence[int], letters: dict[int, int]) -> Tally:
        if not offsets:
            return NOTHING
        found = [offset for offset in offsets for _ in range(letters.get(offset, 0))]
        return tally(np.array(found, np.int64), partition_seeds(self.topic, self.partition))

    def _difference(self, kind: str, first: int, after: int, events: int, detail: str) -> Difference:
        return Difference(kind, self.partition, first, after, events, detail)

    def as_json(self) -> dict[str, Any]:
        """All of it, for a restart."""
        data: dict[str, Any] = {name: getattr(self, name) for name in _PLAIN}
        data["topic"] = self.topic
        data["claims"] = [[c.first, c.after, c.late.as_json(), c.dead.as_json()] for c in self._claims]
        return data

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Lane:
        """Reads what `as_json` has written."""
        plain: dict[str, Any] = {name: int(data[name]) for name in _PLAIN}
        lane = cls(data["topic"], **plain)
        read = Tally.from_json
        lane._claims = [_Claim(first, after, read(late), read(dead)) for first, after, late, dead in data["claims"]]
        return lane


def _within(offsets: Sequence[int], claim: _Claim) -> Sequence[int]:
    return offsets[bisect_left(offsets, claim.first) : bisect_left(offsets, claim.after)]


_TOPICS = {"late": "late", "dead": "dead-letters"}
_PLAIN = ("partition", "since", "next", "proven", "consumed", "routed", "late", "dead", "ranges")
