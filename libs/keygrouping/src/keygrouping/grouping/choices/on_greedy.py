"""Online greedy: a new key goes to the least loaded worker, and stays there.

Source: Nasir and others, "Partial Key Grouping: Load-Balanced Partitioning of Distributed Streams", section 6.2 Q1
("On-Greedy").
"""

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from keygrouping.grouping.base import NO_WEIGHTS, kernel_arrays
from keygrouping.grouping.choices.sticky import Sticky, StickySettings
from keygrouping.grouping.protocol import Explanation, Hashes, Weights, Workers
from keygrouping.hashing import SEED


class OnGreedy(Sticky[StickySettings]):
    """A new key goes to the worker with least weight from this instance (a tie: the lowest number), and stays.

    As with `potc`, several sources may disagree on a key, and a key that was forgotten chooses again.
    After a change of W only the keys of workers that have gone are new.
    Memory: one number per worker, and 16 bytes x 4 to 8 x `remembered_keys`.
    """

    name: ClassVar[str] = "on-greedy"
    settings = StickySettings
    seeds = (SEED,)

    def route_batch(self, hashes: Hashes, weights: Weights | None, now: float) -> Workers:  # noqa: ARG002
        from keygrouping.grouping.choices.sticky_kernel import route_on_greedy

        hashes, weights = kernel_arrays(hashes, weights, 1)
        return route_on_greedy(hashes, weights, *self._arrays)

    def _decisions(self, event: Hashes, now: float) -> Iterator[int]:  # noqa: ARG002
        from keygrouping.grouping.choices.sticky_kernel import each_by_on_greedy

        return each_by_on_greedy(event, NO_WEIGHTS, *self._arrays)

    def _explain_new(self, key: bytes | str) -> Explanation:  # noqa: ARG002
        least = int(np.argmin(self._loads))
        why = f"not seen lately: its next event goes to the least loaded worker (load {self._loads[least]:g})"
        return Explanation(None, (least,), 1, None, None, why)

    def _resized(self) -> None:
        super()._resized()
        self._assignments.keep_workers(self._workers)
