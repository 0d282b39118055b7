"""DStream: hot keys are shuffled over all workers, all others stay at home.

Source: Chen, Zhang, Jin, "Popularity-aware Differentiated Distributed Stream Processing on Skewed Streams" (ICNP 2017),
and its code (CGCL-codes/DStream).
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np

from keygrouping.grouping.base import BaseGrouping, kernel_arrays
from keygrouping.grouping.protocol import Explanation, Hashes, HotKey, Space, Weights, Workers
from keygrouping.hashing import SEED, hash_key, worker_of
from keygrouping.keyspace.predictor import LEAST_DECLINE, HotKeyPredictor, PredictorRules, fitted
from keygrouping.settings import Settings, setting

_FAIR_SHARES = 0.5


@dataclass(frozen=True)
class DStreamSettings(Settings):
    """Settings of `dstream`; the paper's symbols in brackets."""

    decline: float | None = setting(
        None,
        "probability with which a candidate's bits are shifted at an update (p): keys with more than twice this share "
        "of the events are hot; null: 1 / (4 W), so keys from half a fair share on, instead of the code's 0.01",
        least=LEAST_DECLINE,
        most=0.5,
    )
    threshold: int = setting(
        6, "heads in a row that are not yet enough for an update (r): one event in 2 ** (r + 1) is", least=0, most=32
    )
    length: int = setting(16, "bits per candidate (l)", least=2, most=32)
    false_positive_rate: float = setting(
        0.001, "probability with which a key that is not hot is routed like one", least=1e-9, most=0.5
    )
    seed: int = setting(0, "of the coin flips", least=0, most=2**63 - 1)


class DStream(BaseGrouping[DStreamSettings]):
    """A key that the predictor announces as hot goes to all workers in turn, any other one home; see `HotKeyPredictor`.

    Weights play no part. Differences from the public code: a bit's number counts from the threshold, as in the paper;
    the filter is sized by the number of keys that can be hot instead of having 16 counters; only what was announced is
    taken out of it again. The predictor is this instance's own and sees an event before it is routed.

    Memory: by default 0.6 to 0.9 KB x W (24 bytes for each of 4 / p candidates, and a filter for 1 / p keys), at most
    20 MB.
    """

    name: ClassVar[str] = "dstream"
    settings = DStreamSettings
    seeds = (SEED,)

    def __init__(self, workers: int, settings: DStreamSettings | None = None) -> None:
        super().__init__(workers, settings)
        self._predictor = HotKeyPredictor(self._predictor_rules(), self._settings.seed)
        self._turn = np.zeros(1, np.int64)

    def _predictor_rules(self) -> PredictorRules:
        given = self._settings
        decline = given.decline or max(LEAST_DECLINE, _FAIR_SHARES / (2 * self._workers))
        return PredictorRules(decline, given.threshold, given.length, given.false_positive_rate)

    def route_batch(self, hashes: Hashes, weights: Weights | None, now: float) -> Workers:  # noqa: ARG002
        from keygrouping.grouping._dstream_kernel import route_dstream

        hashes, _ = kernel_arrays(hashes, weights, 1)
        routed, changes = route_dstream(hashes, *self._arrays)
        self._epoch += changes
        return routed

    def _decisions(self, event: Hashes, now: float) -> Iterator[int]:  # noqa: ARG002
        from keygrouping.grouping._dstream_kernel import each_by_dstream

        for worker, changes in each_by_dstream(event, *self._arrays):
            self._epoch += changes
            yield worker

    @property
    def _arrays(self) -> tuple[Any, ...]:
        known = self._predictor
        return self._workers, known.synopsis, known.rules, known.random, known.filter.counters, self._turn

    def explain(self, key: bytes | str) -> Explanation:
        hashed = hash_key(key)
        home = worker_of(hashed, self._workers)
        candidate = self._predictor.find(hashed)
        share = None if candidate is None else self._predictor.share(candidate)
        known = candidate is not None and bool(candidate["announced"])
        space = "announced" if known else None if candidate is None else "predictor"
        if hashed not in self._predictor.filter:
            why = "not in the filter of hot keys: it stays at home"
            return Explanation(home, (home,), 1, share, None, why, space)
        everybody = tuple((home + i) % self._workers for i in range(self._workers))
        found = "announced as hot" if known else "not announced, but the filter takes it for a hot key"
        why = f"{found}: to all workers in turn; next is worker {int(self._turn[0])}"
        return Explanation(home, everybody, self._workers, share, None, why, space)

    def spaces(self) -> tuple[Space, ...]:
        known = self._predictor
        candidates = known.synopsis[: len(known)]
        announced = candidates["hash"][candidates["announced"] != 0]
        most, often = len(known.synopsis), "candidates that were drawn often enough to be hot"
        return (
            Space("predictor", len(known), most, "candidates: keys that were drawn lately", candidates["hash"]),
            Space("announced", len(announced), most, often, announced),
        )

    def hot(self, limit: int) -> list[HotKey]:
        strongest = self._predictor.strongest()
        announced = strongest[strongest["announced"] != 0][: max(0, limit)]
        return [HotKey(int(key["hash"]), self._workers, self._predictor.share(key)) for key in announced]

    def _resized(self) -> None:
        """Another W means another p by default: keep as many candidates as there is room for, the strongest."""
        before = self._predictor
        self._predictor = HotKeyPredictor(self._predictor_rules(), int(before.random[0]))
        self._predictor.replace(before.strongest()[: len(self._predictor.synopsis)])
        self._turn[0] = 0

    def _fitted(self, state: Any, other: Self) -> Any:  # noqa: ARG002
        return {**state, "predictor": fitted(state["predictor"], self._predictor_rules())}

    def _state(self) -> Any:
        return {"turn": int(self._turn[0]), "predictor": self._predictor.to_data()}

    def _restore_state(self, state: Any, shift: float) -> None:  # noqa: ARG002
        turn = int(state["turn"])
        if not 0 <= turn < self._workers:
            raise ValueError("turn is no worker")
        self._predictor = HotKeyPredictor.from_data(self._predictor_rules(), state["predictor"])
        self._turn[0] = turn
