"""What the HTTP interface may ask of the router, and order. All of it runs in the router's own event loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Protocol

from keygrouping_router.api.shapes import (
    DryRun,
    GroupingChange,
    GroupingReport,
    History,
    KeyReport,
    KeySpaceReport,
    OverrideChange,
    OverridesReport,
    PlanHistory,
    PlanInForce,
    Readiness,
    ServerEvent,
    ShadowChange,
    ShadowDryRun,
    ShadowReport,
    Thresholds,
    WorkersChange,
    WorkersReport,
)
from keygrouping_router.knowledge.keyspace import KeyQuery
from keygrouping_router.limits import TOP


class Plane(Protocol):
    """Questions and orders. They raise the errors of `keygrouping_router.errors`.

    `expected` is the version that a change is meant for, None for any; `by` says who makes it.
    """

    async def keyspace(self, query: KeyQuery) -> KeySpaceReport:
        """The KeySpace as a whole, and the keys that were asked for."""

    async def key(self, key: bytes, replica: str | None) -> KeyReport:
        """One key, and why it goes where it goes."""

    async def thresholds(self) -> Thresholds:
        """The settings of the grouping in force."""

    async def set_thresholds(
        self, values: Mapping[str, Any], *, partial: bool, expected: int | None, by: str
    ) -> Thresholds:
        """Sets these settings; the others get their defaults, or with `partial` stay as they are."""

    async def try_thresholds(self, values: Mapping[str, Any], *, partial: bool) -> DryRun:
        """What `set_thresholds` would change."""

    async def history(self, limit: int) -> History:
        """The last changes."""

    async def workers(self) -> WorkersReport:
        """The workers with their loads and lags."""

    async def set_workers(self, change: WorkersChange, *, expected: int | None, by: str) -> WorkersReport:
        """Routes to another number of workers."""

    async def try_workers(self, change: WorkersChange) -> DryRun:
        """What `set_workers` would change."""

    async def grouping(self) -> GroupingReport:
        """The grouping in force and all others."""

    async def set_grouping(self, change: GroupingChange, *, expected: int | None, by: str) -> GroupingReport:
        """Routes by another grouping."""

    async def try_grouping(self, change: GroupingChange) -> DryRun:
        """What `set_grouping` would change."""

    async def overrides(self) -> OverridesReport:
        """All keys that go where people say."""

    async def set_override(
        self, key: bytes, change: OverrideChange, *, expected: int | None, by: str
    ) -> OverridesReport:
        """Lets a key go where this says until its end, in the place of what was said of it before."""

    async def try_override(self, key: bytes, change: OverrideChange) -> DryRun:
        """What `set_override` would change."""

    async def end_override(self, key: bytes, *, expected: int | None, by: str) -> OverridesReport:
        """Leaves a key to the grouping again."""

    async def try_ending_override(self, key: bytes) -> DryRun:
        """What `end_override` would change."""

    async def plan(self, keys: int = TOP) -> PlanInForce:
        """The plan in force, with at most so many of the keys that it spreads."""

    async def plans(self, limit: int) -> PlanHistory:
        """The last plans."""

    async def shadow(self) -> ShadowReport:
        """The comparison of groupings."""

    async def set_shadow(self, change: ShadowChange, *, expected: int | None, by: str) -> ShadowReport:
        """Compares other groupings."""

    async def try_shadow(self, change: ShadowChange) -> ShadowDryRun:
        """What these groupings would give."""

    def events(self, last_id: int | None) -> AsyncIterator[ServerEvent]:
        """What happens from now on, after what is kept of that after the interval `last_id`."""

    def readiness(self) -> Readiness:
        """Whether this router has its partitions and routes them."""
