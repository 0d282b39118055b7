"""Round robin: perfect balance, every key on every worker."""

from typing import Any, ClassVar

import numpy as np

from keygrouping.grouping.base import BaseGrouping
from keygrouping.grouping.protocol import Explanation, Hashes, Weights, Workers
from keygrouping.settings import Settings
from keygrouping.weights import check_weight, check_weights


class Shuffle(BaseGrouping[Settings]):
    """Event i goes to worker i mod W, whatever its key and weight. Memory: one number."""

    name: ClassVar[str] = "shuffle"
    seeds = ()

    def __init__(self, workers: int, settings: Settings | None = None) -> None:
        super().__init__(workers, settings)
        self._next = 0

    @property
    def cold_width(self) -> int:
        return self._workers

    def route(self, key: bytes | str, weight: float = 1.0, now: float | None = None) -> int:  # noqa: ARG002
        check_weight(weight)
        worker = self._next
        self._next = (worker + 1) % self._workers
        return worker

    def route_batch(self, hashes: Hashes, weights: Weights | None, now: float) -> Workers:  # noqa: ARG002
        if weights is not None:
            check_weights(weights)
        routed = (np.arange(self._next, self._next + len(hashes)) % self._workers).astype(np.int32)
        self._next = (self._next + len(hashes)) % self._workers
        return routed

    def explain(self, key: bytes | str) -> Explanation:  # noqa: ARG002
        everybody = tuple(range(self._workers))
        why = f"round robin over all workers whatever the key; next is worker {self._next}"
        return Explanation(None, everybody, self._workers, None, None, why)

    def _resized(self) -> None:
        self._next %= self._workers

    def _state(self) -> Any:
        return {"next": self._next}

    def _restore_state(self, state: Any, shift: float) -> None:  # noqa: ARG002
        following = int(state["next"])
        if not 0 <= following < self._workers:
            raise ValueError("next is no worker")
        self._next = following
