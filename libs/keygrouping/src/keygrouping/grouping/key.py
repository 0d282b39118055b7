"""Key grouping: one worker per key, at the mercy of the hottest."""

from typing import Any, ClassVar

from keygrouping.grouping.base import BaseGrouping, kernel_arrays
from keygrouping.grouping.protocol import Explanation, Hashes, Weights, Workers
from keygrouping.hashing import SEED, hash_key, worker_of
from keygrouping.settings import Settings
from keygrouping.weights import check_weight


class Key(BaseGrouping[Settings]):
    """Worker = abs(hash) mod W. Memory: none."""

    name: ClassVar[str] = "key"
    seeds = (SEED,)

    def route(self, key: bytes | str, weight: float = 1.0, now: float | None = None) -> int:  # noqa: ARG002
        check_weight(weight)
        return worker_of(hash_key(key), self._workers)

    def route_batch(self, hashes: Hashes, weights: Weights | None, now: float) -> Workers:  # noqa: ARG002
        from keygrouping.grouping._kernels import route_key

        return route_key(kernel_arrays(hashes, weights, 1)[0], self._workers)

    def explain(self, key: bytes | str) -> Explanation:
        home = worker_of(hash_key(key), self._workers)
        return Explanation(home, (home,), 1, None, None, "every event of the key goes to its home")

    def _resized(self) -> None:
        pass

    def _state(self) -> Any:
        return {}

    def _restore_state(self, state: Any, shift: float) -> None:  # noqa: ARG002
        if state != {}:
            raise ValueError("state must be empty")
