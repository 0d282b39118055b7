"""A plan of the routers: its number, the round that it was made in, and what its grouping is to route by."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from keygrouping_router.control.orders import Values
from keygrouping_router.control.state import Control

_PLAIN = (str, int, float, bool, type(None))
_NAMED = ("hashes", "keys", "table")
"""Under one of these a plan has a row, or an entry of a column, for each key that it knows by itself."""
_MOST_DETAILS = 20

TOLD = ("hot_keys", "moved_keys", "moved_state", "feasible")
"""What every plan of a grouping says of itself."""


@dataclass(frozen=True)
class PlanRecord:
    """What a plan changed and cost. What is not known is None.

    `made` is in seconds since 1970. `part` is 0 for a plan made at the end of an interval; else it was made inside of
    one, after this part of it. `plan_ms` is the time that it took to make it.
    """

    epoch: int
    made: float | None
    round: int | None
    by: str | None
    grouping: str
    workers: int
    part: float = 0.0
    hot_keys: int | None = None
    moved_keys: int | None = None
    moved_state: float | None = None
    feasible: bool | None = None
    plan_ms: float | None = None
    details: Values = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Contribution:
    """What a replica adds to a plan: the epoch that it is in, and what its grouping has seen."""

    epoch: int
    statistics: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Plan:
    """A plan that was made in a round: for which control document, what to route by, and the record of it.

    `workers` are those of the grouping, which may be fewer than W.
    """

    generation: int
    base: int
    workers: int
    content: Mapping[str, Any]
    record: PlanRecord

    @property
    def epoch(self) -> int:
        """Its number: above that of every plan before it that routes otherwise."""
        return self.record.epoch

    def fits(self, control: Control) -> bool:
        """Whether it was made under this control document."""
        return (self.generation, self.workers) == (control.generation, control.grouped)

    @property
    def made(self) -> float:
        """When, in seconds since 1970."""
        return self.record.made or 0.0

    @property
    def reshuffles(self) -> bool:
        """Whether it gives at least half of the keys that it names to other workers: noise moves fewer."""
        moved = self.record.moved_keys or 0
        return moved > 0 and 2 * moved >= max(len(self.content.get(name, ())) for name in _NAMED)


def details_of(content: Mapping[str, Any]) -> Values:
    """What else a plan says of itself in single values, and the sizes of its lists."""
    plain = {
        name: value for name, value in content.items() if isinstance(value, _PLAIN) and name not in (*TOLD, "workers")
    }
    sizes = {f"{name}_size": len(value) for name, value in content.items() if isinstance(value, list | dict)}
    return dict(list({**plain, **sizes}.items())[:_MOST_DETAILS])
