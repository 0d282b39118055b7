"""What the groupings share that can leave the widths of keys to one plan of all sources."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import NDArray

from keygrouping.grouping._wide_keys import WideKeys
from keygrouping.grouping.base import BaseGrouping
from keygrouping.grouping.protocol import HotKey
from keygrouping.settings import Settings, setting

_ROUNDING = 1e-9


@dataclass(frozen=True)
class SharedSettings(Settings):
    """Settings of all groupings that can."""

    shared: bool = setting(
        False,
        "true: which keys are hot and how wide is planned by the owner from the counts of all sources; false: every "
        "source decides by its own counts, as in the paper",
    )


SharedSettingsType = TypeVar("SharedSettingsType", bound=SharedSettings)


class SharedWidths(BaseGrouping[SharedSettingsType]):
    """A grouping of which a shared instance takes the widths of keys from `apply`, and by itself changes none."""

    shared_settings: ClassVar[Mapping[str, object] | None] = {"shared": True}

    def __init__(self, workers: int, settings: SharedSettingsType | None = None) -> None:
        super().__init__(workers, settings)
        self._wide = WideKeys()

    def resize(self, workers: int) -> None:
        before = self._workers
        super().resize(workers)
        if workers != before:
            self._wide = self._wide.resized(self._widths_for(self._wide.known()["width"], before))

    @property
    def shared(self) -> bool:
        """Whether it leaves planning to its owner."""
        return self._settings.shared

    def statistics(self, now: float | None = None) -> dict[str, Any]:
        """Its counts and loads as they have faded by now; raises ValueError if it isn't shared."""
        if not self.shared:
            raise ValueError(f"{self.name!r} goes by its own counts: it has statistics for others if `shared` is true")
        self._advance(self._now if now is None else now)
        return {"workers": self._workers, **self._statistics()}

    def plan(self, statistics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The next widths; raises ValueError if these are not statistics for the present number of workers.

        `keys` holds [hash, width, time of the last change of the width, time since when it is hot], times in seconds
        counted from now, so not above 0; where nothing was counted they stay as they are. `feasible`: no key has more
        weight per worker than the mean of all workers.
        """
        try:
            if any(source["workers"] != self._workers for source in statistics):
                raise ValueError("they are for another number")
            widths, shares = self._planned(statistics)
        except (LookupError, TypeError, ValueError, OverflowError, AttributeError) as error:
            raise ValueError(f"not statistics for {self._workers} workers: {error}") from error
        cold = self.cold_width
        after = self._wide.next(widths if shares else self._wide.widths(0), self._now, cold)
        most = max((share / widths.get(key, cold) for key, share in shares.items()), default=0.0)
        plan = self._wide.plan(after, self._workers, cold, self._now)
        return {"changed": plan["moved_keys"] > 0, **plan, "feasible": most * self._workers <= 1 + _ROUNDING}

    def apply(self, plan: Mapping[str, Any]) -> None:
        """Route by this plan; raises ValueError, and changes nothing, if it is none for the present workers."""
        if not self.shared:
            raise ValueError(f"{self.name!r} goes by its own counts: it takes plans if `shared` is true")
        try:
            changed = bool(plan["changed"])
            if plan["workers"] != self._workers:
                raise ValueError(f"it is for {plan['workers']!r} workers instead of {self._workers}")
            self._wide = WideKeys.from_data(plan["keys"], self._workers, self._now)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"not a plan for {self._workers} workers: {error}") from error
        self._epoch += changed

    @abstractmethod
    def _advance(self, now: float) -> None:
        """Do what has become due since the last call."""

    @abstractmethod
    def _widths_for(self, widths: NDArray[np.int32], before: int) -> NDArray[np.int32]:
        """What becomes of planned widths for another number of workers than before until the next plan."""

    @abstractmethod
    def _statistics(self) -> dict[str, Any]:
        """What this grouping adds to statistics()."""

    @abstractmethod
    def _planned(self, statistics: Sequence[Mapping[str, Any]]) -> tuple[dict[int, int], dict[int, float]]:
        """The next width of keys that aren't cold, and the shares of the heaviest keys.

        Any of KeyError, TypeError, ValueError and OverflowError if these are no statistics.
        """

    @abstractmethod
    def _share_of(self, hashed: int) -> float | None:
        """The part of all weight that a key has by the counts of this instance; None if it isn't counted."""

    def _hot_by_plan(self, limit: int) -> list[HotKey]:
        rows = ((hashed, width, self._share_of(hashed) or 0.0) for hashed, width, *_ in self._wide.to_data())
        ranked = sorted(rows, key=lambda row: (-row[1], -row[2], row[0]))
        return [HotKey(*row) for row in ranked[: max(0, limit)]]

    def _hot_since_by_plan(self, hashed: int) -> float | None:
        key = self._wide.find(hashed)
        hot = key is not None and key["width"] > self.cold_width
        return self._now - float(key["since"]) if key is not None and hot else None
