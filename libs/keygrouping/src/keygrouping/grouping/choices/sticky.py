"""What the groupings share that leave a key where its first event went."""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from keygrouping.grouping._assignments import MAX_KEYS, Assignments
from keygrouping.grouping.base import BaseGrouping, loads_from
from keygrouping.grouping.protocol import Explanation, Space, Weights
from keygrouping.hashing import hash_key
from keygrouping.settings import Settings, setting


@dataclass(frozen=True)
class StickySettings(Settings):
    """Settings of a grouping that remembers the workers of keys."""

    remembered_keys: int = setting(
        100_000,
        "the workers of at least so many keys are remembered, those seen last; a key that was forgotten is a new one",
        least=1,
        most=MAX_KEYS,
    )


StickySettingsType = TypeVar("StickySettingsType", bound=StickySettings)


class Sticky(BaseGrouping[StickySettingsType]):
    """A grouping with loads that count from the start or the last change of W, and assignments of keys."""

    def __init__(self, workers: int, settings: StickySettingsType | None = None) -> None:
        super().__init__(workers, settings)
        self._loads = np.zeros(workers)
        self._assignments = Assignments(self._settings.remembered_keys)

    @property
    def epoch(self) -> int:
        """Changes of the number of workers, and times at which keys were forgotten."""
        return self._epoch + self._assignments.forgotten

    @property
    def assignments(self) -> Assignments:
        """The workers of the keys that it has seen lately."""
        return self._assignments

    @property
    def _arrays(self) -> tuple[Weights, NDArray[Any], NDArray[Any]]:
        return self._loads, self._assignments.tables, self._assignments.generations

    def explain(self, key: bytes | str) -> Explanation:
        worker = self._assignments.find(hash_key(key, self.seeds[0]))
        if worker is None:
            return self._explain_new(key)
        why = "it stays on the worker of its first event"
        space = "young" if self._assignments.is_young(hash_key(key, self.seeds[0])) else "old"
        return Explanation(None, (worker,), 1, None, None, why, space)

    def spaces(self) -> tuple[Space, ...]:
        most = self._settings.remembered_keys
        young, old = self._assignments.hashes()
        passing = "keys that are forgotten if they aren't seen before the young space is full"
        return (
            Space("old", len(old), most, passing, old),
            Space("young", len(young), most, "keys seen lately, each with its worker", young),
        )

    @abstractmethod
    def _explain_new(self, key: bytes | str) -> Explanation:
        """Why the first event of a key goes where it goes."""

    def _resized(self) -> None:
        """Everybody's load starts from nothing, or newcomers would get every new key."""
        self._loads = np.zeros(self._workers)

    def _fitted(self, state: Any, other: Self) -> Any:  # noqa: ARG002
        """With less room some are forgotten."""
        most, known = self._settings.remembered_keys, state["assignments"]
        kept = {
            generation: {name: column[:most] for name, column in known[generation].items()}
            for generation in ("young", "old")
        }
        return {**state, "assignments": {**known, **kept}}

    def _state(self) -> Any:
        return {"loads": self._loads.tolist(), "assignments": self._assignments.to_data()}

    def _restore_state(self, state: Any, shift: float) -> None:  # noqa: ARG002
        loads = loads_from(state["loads"], self._workers)
        self._assignments = Assignments.from_data(self._settings.remembered_keys, self._workers, state["assignments"])
        self._loads = loads
