"""Static power of two choices: a key's first event goes to the less loaded of two workers, and so do all others.

Source: Nasir and others, "Partial Key Grouping: Load-Balanced Partitioning of Distributed Streams", sections 3.1
("static PoTC") and 6.2 Q1.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from keygrouping.grouping.base import NO_WEIGHTS, kernel_arrays
from keygrouping.grouping.choices.sticky import Sticky, StickySettings
from keygrouping.grouping.protocol import Explanation, Hashes, Weights, Workers
from keygrouping.hashing import SECOND_SEED, SEED, hash_key, worker_of
from keygrouping.settings import setting


@dataclass(frozen=True)
class PotcSettings(StickySettings):
    """Settings of `potc`."""

    distinct_choices: bool = setting(
        True, "a second hash that meets the first moves on to the next worker; false: it has one choice then"
    )


class Potc(Sticky[PotcSettings]):
    """A new key goes to the one of its two choices with less weight from this instance, a tie to the first; it stays.

    The paper has a table of all keys, and all sources agree on it. Here every source decides by itself, so several
    sources may disagree on a key, and a key that was forgotten chooses again: both split it.
    After a change of W all keys are new. Memory: one number per worker, and 16 bytes x 4 to 8 x `remembered_keys`.
    """

    name: ClassVar[str] = "potc"
    settings = PotcSettings
    seeds = (SEED, SECOND_SEED)

    @property
    def cold_width(self) -> int:
        """Two as long as a key is new."""
        return min(2, self._workers)

    def route_batch(self, hashes: Hashes, weights: Weights | None, now: float) -> Workers:  # noqa: ARG002
        from keygrouping.grouping.choices.sticky_kernel import route_potc

        hashes, weights = kernel_arrays(hashes, weights, 2)
        return route_potc(hashes, weights, *self._arrays, self._settings.distinct_choices)

    def _decisions(self, event: Hashes, now: float) -> Iterator[int]:  # noqa: ARG002
        from keygrouping.grouping.choices.sticky_kernel import each_by_potc

        return each_by_potc(event, NO_WEIGHTS, *self._arrays, self._settings.distinct_choices)

    def _explain_new(self, key: bytes | str) -> Explanation:
        first = worker_of(hash_key(key, SEED), self._workers)
        second = worker_of(hash_key(key, SECOND_SEED), self._workers)
        if first == second and self._settings.distinct_choices:
            second = (second + 1) % self._workers
        candidates = (first,) if first == second else (first, second)
        loads = ", ".join(f"{worker}: {self._loads[worker]:g}" for worker in candidates)
        why = f"not seen lately: its next event goes to the less loaded of its two choices (load of worker {loads})"
        return Explanation(first, candidates, len(candidates), None, None, why)

    def _resized(self) -> None:
        super()._resized()
        self._assignments.keep_workers(0)
