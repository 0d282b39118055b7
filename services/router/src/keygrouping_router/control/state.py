"""The control document: all that can be set while the routers run, and which all replicas follow."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, NamedTuple, Self, TypeVar, cast

from keygrouping.grouping import (
    Description,
    GroupingError,
    UrgentlyPlanned,
    create,
    describe,
    live_names,
    names,
    secret_setting,
    shared_settings,
)
from keygrouping.grouping.overrides import Layout
from pydantic import JsonValue

from keygrouping_router.control.orders import (
    GroupingChange,
    KeyOverride,
    ShadowChange,
    ShadowGrouping,
    Sharing,
    Values,
    WorkersChange,
)
from keygrouping_router.control.overrides import layout_of
from keygrouping_router.control.seeds import drawn
from keygrouping_router.errors import Refused
from keygrouping_router.limits import LARGEST, MAX_OVERRIDES

Item = TypeVar("Item")

OBSERVING = "key"
"""The grouping that routes while the configured one is only observed."""

INTERVAL = "interval"
"""The setting of groupings that says how often they plan."""

_CAPACITIES = "capacities"
INTERVALS = (0.1, 3600.0)
"""Shortest and longest interval of routers."""
SIZES_KEPT = 32
"""How many of the last numbers of workers a document knows."""


class Compared(NamedTuple):
    """A grouping in the shadow: its settings as they were set, and all that it would route by."""

    name: str
    settings: Values
    used: Values


@dataclass(frozen=True)
class Control:
    """What is in force. Every change makes a new one; `change`s raise `Refused` with one line.

    `base` is the epoch that a change of the routing begins with, above all epochs before it. `generation` counts
    changes by which plans made before are of no use any more. `configured` is the environment that it was last
    configured from. `began` is the version after which the store counts from 1 again. `sizes` are the last numbers of
    workers that the grouping had, each with the base that it came with. `overrides` say where single keys go. `seed` is
    the deployment's secret, by which groupings that ask for one scramble hashes (0: none; None: not drawn yet).
    """

    grouping: str
    workers: int
    settings: Values = field(default_factory=dict)
    sharing: Sharing = "independent"
    observe_only: bool = False
    auto: bool = False
    capacities: Mapping[int, float] = field(default_factory=dict)
    shadow: tuple[ShadowGrouping, ...] = ()
    sample: float = 1.0
    base: int = 0
    generation: int = 0
    configured: Values = field(default_factory=dict)
    began: int = 0
    sizes: tuple[tuple[int, int], ...] = ()
    overrides: tuple[KeyOverride, ...] = ()
    seed: int | None = field(default=None, repr=False)

    # what it means for the routing

    @property
    def routed_by(self) -> str:
        """Name of the grouping that decides."""
        return OBSERVING if self.observe_only else self.grouping

    @property
    def planned_in_rounds(self) -> bool:
        """Whether the routers make the plans, together or each its own, rather than the grouping while it routes."""
        if self.observe_only or shared_settings(self.grouping) is None:
            return False
        return self.sharing == "shared" or _plans_urgently(self.grouping)

    @property
    def layout(self) -> Layout:
        """What the overrides of keys make of the workers."""
        return layout_of(self.overrides, self.workers)

    @property
    def grouped(self) -> int:
        """Number of the workers that the grouping has: all but those that belong to one key alone."""
        return len(self.layout.shared)

    @property
    def alone_settings(self) -> Values:
        """Settings by which an instance of the configured grouping decides all by itself."""
        return self._fitted(self.grouping, self.settings)

    @property
    def routing_settings(self) -> Values:
        """Settings of the grouping that decides."""
        if self.observe_only:
            return {}
        return {**self.alone_settings, **(self._owned if self.planned_in_rounds else {})}

    @property
    def _owned(self) -> Values:
        """The settings that leave planning to the routers; empty if the grouping has nothing to share."""
        return cast(Values, dict(shared_settings(self.grouping) or {}))

    @property
    def interval(self) -> float | None:
        """Seconds between two plans, where the routers make them and this was set."""
        value = self.settings.get(INTERVAL) if self.planned_in_rounds else None
        return float(value) if isinstance(value, int | float) else None

    @property
    def tunable(self) -> tuple[Description, ...]:
        """The settings of the configured grouping that may be set.

        Those that leave planning to the routers are not, but for the interval, which then is that of the routers; nor
        is a secret, which the routers draw.
        """
        owned = self._owned if self.planned_in_rounds else {}
        return tuple(entry for entry in settable(self.grouping) if entry.name not in owned or entry.name == INTERVAL)

    def _fitted(self, grouping: str, settings: Values) -> Values:
        """The settings, with the capacities of the grouping's workers where it takes account of them, and the seed.

        Those that are set in the settings count before all others. Raises GroupingError if there is no such grouping.
        """
        secret = secret_setting(grouping)
        if secret is not None and self.seed:
            settings = {**settings, secret: self.seed}
        given = settings.get(_CAPACITIES)
        if isinstance(given, list) and given:
            return {**settings, _CAPACITIES: self._of_shared(given)}
        known = range(max(self.capacities, default=-1) + 1)
        capacities = self._of_shared([self.capacities.get(worker, 1.0) for worker in known])
        takes = any(entry.name == _CAPACITIES for entry in describe(grouping))
        return {**settings, _CAPACITIES: [*capacities]} if takes and capacities else dict(settings)

    def _of_shared(self, by_worker: list[Item]) -> list[Item]:
        """Without those of workers that belong to one key alone."""
        own = set(range(self.workers)) - set(self.layout.shared)
        return [item for worker, item in enumerate(by_worker) if worker not in own]

    @property
    def capacity_by_worker(self) -> Mapping[int, float]:
        """By which loads are judged, 1 for those not named: the grouping's own setting, if it has one in force."""
        own = self.settings.get(_CAPACITIES)
        if not isinstance(own, list) or not own or self.observe_only:
            return self.capacities
        return {worker: float(capacity) for worker, capacity in enumerate(own) if isinstance(capacity, int | float)}

    # changes

    def with_thresholds(self, values: Mapping[str, Any], *, partial: bool) -> Self:
        """With these settings of the grouping in force; those not named keep their value, or get their default."""
        known = {entry.name for entry in self.tunable}
        given = {name: value for name, value in values.items() if name in known}
        faults = []
        if unknown := sorted(set(values) - known):
            faults.append(f"unknown setting {', '.join(unknown)}; {self.grouping} has {', '.join(sorted(known))}")
        settings = {**self.settings, **given} if partial else given
        changed = replace(self, settings=settings, generation=self.generation + 1)
        try:
            changed.check()
        except Refused as refused:
            faults.append(str(refused))
        if faults:
            raise Refused("; ".join(faults))
        return changed

    def with_grouping(self, change: GroupingChange) -> Self:
        """With another grouping, or other settings or manners of the same, which keeps those that aren't given."""
        kept = self.settings if change.name == self.grouping else {}
        return self._checked(
            grouping=change.name,
            settings=kept if change.settings is None else change.settings,
            sharing=change.sharing or self.sharing,
            observe_only=self.observe_only if change.observe_only is None else change.observe_only,
            seed=self.seed if change.seed is None else drawn() if change.seed == "new" else change.seed,
            generation=self.generation + 1,
        )

    def with_seed(self, seed: int) -> Self:
        """With this seed, if none was drawn yet."""
        return self if self.seed is not None else self._checked(seed=seed, generation=self.generation + 1)

    def with_workers(self, change: WorkersChange, most: int) -> Self:
        """With another W of at most `most`, or one that follows the running workers from now on."""
        workers = self.workers if change.workers == "auto" else change.workers
        given = change.capacities
        capacities = self.capacities if given is None else given
        if workers > most:
            raise Refused(f"workers must be at most {most}, the partitions of the routed topic, not {workers}")
        beyond = sorted(worker for worker in given or () if worker >= most)
        if beyond:
            raise Refused(f"capacities for workers {beyond}: there are at most {most}, numbered from 0")
        changed = replace(self, capacities=capacities)
        heeded = changed.routing_settings != self.routing_settings
        generation = self.generation + (1 if heeded else 0)
        auto = change.workers == "auto"
        return self._checked(workers=workers, auto=auto, capacities=capacities, generation=generation)

    def with_shadow(self, change: ShadowChange) -> Self:
        """With other groupings to compare."""
        sample = self.sample if change.sample is None else change.sample
        return self._checked(shadow=tuple(change.groupings), sample=sample)

    def with_override(self, override: KeyOverride) -> Self:
        """With this override, in the place of another one of its key."""
        others = tuple(entry for entry in self.overrides if entry.key != override.key)
        if len(others) >= MAX_OVERRIDES:
            raise Refused(f"{MAX_OVERRIDES} keys have an override, which is the most: end one first")
        changed = self._with_overrides((*others, override))
        if resting := changed.layout.resting.get(override.key):
            raise Refused(resting)
        return changed

    def without_override(self, key: bytes) -> Self:
        """Without the override of this key, if there is one."""
        return self._with_overrides(tuple(entry for entry in self.overrides if entry.key != key))

    def without_ended(self, now: float) -> Self:
        """Without the overrides that have ended by then, in seconds since 1970."""
        return self._with_overrides(self._lasting(now))

    def as_of(self, now: float) -> Self:
        """As it is followed once overrides have ended, before anybody has taken them out of the document."""
        lasting = self._lasting(now)
        return self if lasting == self.overrides else replace(self, overrides=lasting)

    def _lasting(self, now: float) -> tuple[KeyOverride, ...]:
        return tuple(entry for entry in self.overrides if entry.until > now)

    def _with_overrides(self, overrides: tuple[KeyOverride, ...]) -> Self:
        changed = replace(self, overrides=overrides)
        heeded = changed.routing_settings != self.routing_settings
        return self._checked(overrides=overrides, generation=self.generation + (1 if heeded else 0))

    @property
    def compared(self) -> tuple[Compared, ...]:
        """The groupings in the shadow. Where the configured grouping is only observed it is the first of them."""
        wanted = [(entry.name, entry.settings) for entry in self.shadow]
        if self.observe_only:
            wanted.insert(0, (self.grouping, self.settings))
        return tuple(Compared(name, settings, self.as_if(name, settings).routing_settings) for name, settings in wanted)

    def as_if(self, grouping: str, settings: Values) -> Self:
        """As it would be if events were routed by this grouping."""
        return replace(self, grouping=grouping, settings=settings, observe_only=False)

    def beginning_at(self, base: int) -> Self:
        """With this base."""
        sizes = self.sizes
        if not sizes or sizes[-1][1] != self.grouped:
            sizes = (*sizes, (base, self.grouped))[-SIZES_KEPT:]
        return replace(self, base=base, sizes=sizes)

    def sizes_after(self, base: int) -> list[int]:
        """The numbers of workers that the grouping had since a base, the present one last.

        Whoever has missed some goes through them all the same: 10, 20, 30 leaves cold keys elsewhere than 10, 30.
        """
        missed = [workers for began, workers in self.sizes if began > base]
        return [*missed[:-1], self.grouped]

    def routes_like(self, other: Control) -> bool:
        """Whether the routing is the same."""
        return (self.workers, self.overrides) == (other.workers, other.overrides) and self.groups_like(other)

    def groups_like(self, other: Control) -> bool:
        """Whether the grouping is the same, but for its number of workers."""
        mine = (self.routed_by, self.routing_settings, self.generation)
        return mine == (other.routed_by, other.routing_settings, other.generation)

    def compares_like(self, other: Control) -> bool:
        """Whether the same is compared, and judged by the same capacities."""
        mine = (self.compared, self.sample, self.capacity_by_worker)
        return mine == (other.compared, other.sample, other.capacity_by_worker)

    def _checked(self, **changes: Any) -> Self:
        changed = replace(self, **changes)
        changed.check()
        return changed

    def check(self) -> None:
        """Builds all groupings that it names; `Refused` if one of them can't be built."""
        for settings in (self.settings, *(entry.settings for entry in self.shadow)):
            if large := [name for name, value in settings.items() if _too_large(value)]:
                raise Refused(f"{large[0]} must be at most {LARGEST}")
        for name, settings in ((self.grouping, self.settings), *((each.name, each.settings) for each in self.shadow)):
            if name in names() and secret_setting(name) in settings:
                raise Refused(f"{secret_setting(name)} is a secret of all routers: set it by the seed of PUT /grouping")
            if name in names() and name not in live_names():
                raise Refused(
                    f"{name} has to know the whole stream beforehand, so it can't route a live one; "
                    f"choose from {', '.join(live_names())}"
                )
        try:
            self._check_interval()
            left = [name for name, value in self._owned.items() if self.settings.get(name, _MISSING) == value]
            if left:
                raise Refused(f"{left[0]}={self.settings[left[0]]} leaves the plan to the routers: use sharing=shared")
            create(self.grouping, self.grouped, self.alone_settings)
            create(self.routed_by, self.grouped, self.routing_settings)
            for entry in self.shadow:
                create(entry.name, self.grouped, self._fitted(entry.name, entry.settings))
        except GroupingError as error:
            raise Refused(str(error)) from None

    def _check_interval(self) -> None:
        shortest, longest = INTERVALS
        if self.interval is not None and not shortest <= self.interval <= longest:
            raise Refused(f"interval must be from {shortest:g} to {longest:g} s for routers, not {self.interval:g}")
        if self.planned_in_rounds and self.settings.get(INTERVAL, _MISSING) is None:
            raise Refused("interval must be a number of seconds: routers plan, and need to know when")


_MISSING = object()


def settable(grouping: str) -> tuple[Description, ...]:
    """The settings of a grouping, but for a secret, which the routers draw."""
    return tuple(entry for entry in describe(grouping) if entry.name != secret_setting(grouping))


@cache
def _plans_urgently(grouping: str) -> bool:
    """Whether it makes plans inside of intervals, which would take too long for the routing path."""
    return isinstance(create(grouping, 1), UrgentlyPlanned)


def _too_large(value: JsonValue) -> bool:
    if isinstance(value, list):
        return any(map(_too_large, value))
    return isinstance(value, int) and abs(value) > LARGEST
