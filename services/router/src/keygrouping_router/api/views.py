"""What the API shows, made of what the router has: the one place where the one becomes the other."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from datetime import UTC, datetime
from functools import cache
from typing import Any

from keygrouping.grouping import Description, Filling, create, live_names
from keygrouping.grouping.overrides import Layout
from keygrouping.measure import lambda_, least_share

from keygrouping_router.api.shapes import (
    AvailableGrouping,
    Changes,
    FillingReport,
    GroupingChange,
    GroupingReport,
    HistoryEntry,
    IntervalReport,
    KeyEntry,
    KeyReport,
    KeySpaceReport,
    OverrideChange,
    OverrideReport,
    OverridesReport,
    PlanInForce,
    PlannedKey,
    PlannedMember,
    PlannedWorker,
    PlanReport,
    ServerEvent,
    Setting,
    SettingDescription,
    ShadowChange,
    ShadowResult,
    SpaceReport,
    Thresholds,
    WidthChange,
    WorkerReport,
    WorkersChange,
    WorkersReport,
    as_text,
)
from keygrouping_router.api.shapes import Change as BeforeAfter
from keygrouping_router.control import orders
from keygrouping_router.control.feed import FeedEvent
from keygrouping_router.control.history import Change, What
from keygrouping_router.control.orders import KeyOverride, Values
from keygrouping_router.control.seeds import fingerprint
from keygrouping_router.control.state import INTERVAL, INTERVALS, Control, settable
from keygrouping_router.knowledge import shadow, trial
from keygrouping_router.knowledge.balance import Loads, capacities_of
from keygrouping_router.knowledge.keyspace import Interval, KeySpaceSummary, KeyState
from keygrouping_router.naming import named
from keygrouping_router.planning.plan import PlanRecord


def thresholds_of(control: Control, version: int, interval: float) -> Thresholds:
    """The settings of the configured grouping; `interval`: seconds between two plans unless it is set."""
    return Thresholds(grouping=control.grouping, version=version, settings=settings_of(control, interval))


def settings_of(control: Control, interval: float) -> list[Setting]:
    """All settings that may be set now, with their values."""
    described = [_of_routers(entry, interval) if control.planned_in_rounds else entry for entry in control.tunable]
    return [
        Setting(**_described(entry), value=_plain(control.settings.get(entry.name, entry.default)))
        for entry in described
    ]


def _of_routers(entry: Description, interval: float) -> Description:
    """The interval is theirs where they plan, with other bounds than in the library."""
    if entry.name != INTERVAL:
        return entry
    shortest, longest = INTERVALS
    bounds, meaning = f"from {shortest:g} to {longest:g}", "seconds between two plans of the routers"
    return entry._replace(default=interval, kind="a number", range=bounds, meaning=meaning)


def grouping_of(control: Control, version: int, epoch: int) -> GroupingReport:
    """The configured grouping and all others."""
    return GroupingReport(
        name=control.grouping,
        settings=control.settings,
        version=version,
        epoch=epoch,
        sharing=control.sharing,
        observe_only=control.observe_only,
        seed=fingerprint(control.seed),
        available=list(available()),
    )


@cache
def available() -> tuple[AvailableGrouping, ...]:
    """All groupings, each with its meaning in one line."""
    return tuple(
        AvailableGrouping(
            name=name,
            meaning=_meaning(name),
            settings=[SettingDescription(**_described(entry)) for entry in settable(name)],
        )
        for name in live_names()
    )


def workers_of(
    control: Control, version: int, epoch: int, loads: Loads, lags: Mapping[int, int] | None, most: int
) -> WorkersReport:
    """All workers: `loads` are those in use, `lags` None if they are not known."""
    capacities = capacities_of(control.capacity_by_worker, most)
    due = float(capacities[: control.workers].sum())
    total = float(loads.sum())
    used = capacities_of(control.capacity_by_worker, len(loads))
    items = []
    for worker in range(most):
        load = float(loads[worker]) if worker < len(loads) else 0.0
        capacity = float(capacities[worker])
        ideal = total * capacity / due
        lag = None if lags is None else lags.get(worker, 0)
        active = worker < control.workers
        items.append(
            WorkerReport(
                worker=worker,
                state="active" if active else "draining" if lag else "unused",
                load=load,
                share=load / total if total else 0.0,
                load_of_ideal=load / ideal if ideal and active else 0.0,
                capacity=capacity,
                lag=lag,
            )
        )
    return WorkersReport(
        workers=control.workers,
        mode="auto" if control.auto else "fixed",
        max_workers=most,
        total_lag=None if lags is None else sum(lags.values()),
        items=items,
        lambda_=lambda_(loads, used) if total else None,
        least_share=least_share(loads, used) if total else None,
        epoch=epoch,
        version=version,
    )


def overrides_of(control: Control, version: int, epoch: int) -> OverridesReport:
    """All overrides of keys."""
    items = [_override_of(entry, control.layout) for entry in control.overrides]
    return OverridesReport(items=items, version=version, epoch=epoch)


def _override_of(override: KeyOverride, layout: Layout) -> OverrideReport:
    return OverrideReport(
        **named(override.key),
        action=override.action,
        worker=override.worker,
        width=override.width,
        until=datetime.fromtimestamp(override.until, UTC),
        workers=list(layout.places.get(override.key, ())),
        resting=layout.resting.get(override.key),
    )


def workers_change_of(change: WorkersChange) -> orders.WorkersChange:
    """The order for another W."""
    given = change.capacities
    return orders.WorkersChange(change.workers, None if given is None else {int(w): c for w, c in given.items()})


def grouping_change_of(change: GroupingChange) -> orders.GroupingChange:
    """The order for another grouping."""
    return orders.GroupingChange(change.name, change.settings, change.sharing, change.observe_only, change.seed)


def shadow_change_of(change: ShadowChange) -> orders.ShadowChange:
    """The order for other comparisons."""
    groupings = [orders.ShadowGrouping(entry.name, entry.settings) for entry in change.groupings]
    return orders.ShadowChange(groupings, change.sample)


def override_change_of(change: OverrideChange) -> orders.OverrideChange:
    """The order for a key."""
    until = None if change.until is None else change.until.timestamp()
    return orders.OverrideChange(change.action, change.worker, change.width, until, change.seconds)


def moment(seconds: float | None) -> datetime | None:
    """A time in seconds since 1970; 0 stands for one that is not known."""
    return datetime.fromtimestamp(seconds, UTC) if seconds else None


def entry_of(change: Change) -> HistoryEntry:
    """An entry of the history."""
    return HistoryEntry(
        at=datetime.fromtimestamp(change.at, UTC),
        by=change.by,
        version=change.version,
        what=change.what,
        before=shown_values(change.what, change.before),
        after=shown_values(change.what, change.after),
    )


def shown_values(what: What, values: Values) -> Values:
    """What a change was from, or to; the ends of overrides as times."""
    if what != "overrides":
        return values
    return {key: _with_end(entry) if isinstance(entry, dict) else entry for key, entry in values.items()}


def _with_end(entry: Values) -> Values:
    until = entry.get("until")
    return {**entry, "until": as_text(datetime.fromtimestamp(until, UTC))} if isinstance(until, int | float) else entry


def plan_of(record: PlanRecord) -> PlanReport:
    """A plan."""
    return PlanReport.model_validate(_plan_members(record))


def plan_in_force(record: PlanRecord, filling: FillingReport | None) -> PlanInForce:
    """The plan in force, and how it fills the workers."""
    return PlanInForce.model_validate({**_plan_members(record), "filling": filling})


def _plan_members(record: PlanRecord) -> dict[str, Any]:
    members = {member.name: getattr(record, member.name) for member in fields(record)}
    return {"at": moment(members.pop("made")), **members}


def keyspace_of(summary: KeySpaceSummary, keys: Sequence[KeyState], total: int) -> KeySpaceReport:
    """The KeySpace and the keys that were asked for."""
    entries = list(map(key_entry_of, keys))
    return KeySpaceReport.model_construct(**_head(summary), keys=entries, total=total)


def interval_of(interval: Interval) -> IntervalReport:
    """The KeySpace at the end of an interval."""
    return IntervalReport.model_construct(**_head(interval.summary), hot=list(map(key_entry_of, interval.hot)))


def _head(summary: KeySpaceSummary) -> dict[str, Any]:
    members = {member.name: getattr(summary, member.name) for member in fields(summary)}
    spaces = [SpaceReport(**space._asdict()) for space in summary.spaces]
    return {**members, "spaces": spaces, "at": moment(summary.at)}


def key_entry_of(state: KeyState) -> KeyEntry:
    """One key of many."""
    return KeyEntry.model_construct(**_key_members(state))


def key_of(state: KeyState) -> KeyReport:
    """One key, and why it goes where it goes."""
    explanation = state.explanation
    if explanation is None:
        raise ValueError("nobody can explain a key without a name")
    return KeyReport.model_validate(
        {
            **_key_members(state),
            "home": explanation.home,
            "candidates": list(explanation.candidates),
            "age_seconds": explanation.age,
            "why": explanation.why,
        }
    )


def _key_members(state: KeyState) -> dict[str, Any]:
    explanation = state.explanation
    return {
        **named(state.name, state.hash),
        "count": state.count,
        "error": state.error,
        "share": state.share,
        "share_low": state.share_low,
        "share_high": state.share_high,
        "width": state.width,
        "hot": state.hot,
        "workers": [] if explanation is None else list(explanation.candidates),
        "space": state.space,
        "first_seen": moment(state.first_seen),
        "last_seen": moment(state.last_seen),
        "hot_since": moment(state.hot_since),
    }


def changes_of(changes: trial.Changes) -> Changes:
    """What another setting does to a sample of the traffic."""
    return Changes(
        hot_keys=BeforeAfter(**changes.hot_keys._asdict()),
        cold_width=BeforeAfter(**changes.cold_width._asdict()),
        widths=[
            WidthChange(**named(change.name, change.hash), before=change.before, after=change.after)
            for change in changes.widths
        ],
        lambda_=BeforeAfter(**changes.lambda_._asdict()),
        dist_cost=BeforeAfter(**changes.dist_cost._asdict()),
        sampled_events=changes.sampled_events,
    )


def shadows_of(results: Iterable[shadow.ShadowResult]) -> list[ShadowResult]:
    """Groupings side by side."""
    return [ShadowResult(**vars(result)) for result in results]


def event_of(event: FeedEvent) -> ServerEvent:
    """What happened, as all who listen get it."""
    data = event.data
    if isinstance(data, Interval):
        return ServerEvent(event.kind, interval_of(data), event.id)
    return ServerEvent(event.kind, plan_of(data) if isinstance(data, PlanRecord) else entry_of(data), event.id)


def filling_of(filling: Filling, name: Callable[[int], bytes | None], numbers: Sequence[int]) -> FillingReport:
    """How a plan fills the workers; `name` knows keys by their hashes, `numbers` those of the grouping's workers."""
    columns = (filling.fair, filling.light, filling.hot, filling.room, filling.filled)
    rows = zip(*(column.tolist() for column in columns), strict=True)
    return FillingReport(
        level=filling.level,
        workers=[
            PlannedWorker(worker=numbers[worker], fair=fair, light=light, hot=hot, room=room, filled=filled)
            for worker, (fair, light, hot, room, filled) in enumerate(rows)
        ],
        hot_keys=filling.hot_keys,
        keys=[
            PlannedKey(
                **named(name(key.hash), key.hash),
                share=key.share,
                members=[PlannedMember(worker=numbers[worker], share=share) for worker, share in key.members],
            )
            for key in filling.keys
        ],
    )


def _described(entry: Description) -> dict[str, Any]:
    return {**entry._asdict(), "default": _plain(entry.default)}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _meaning(name: str) -> str:
    """The first line of the module that the grouping stands in, which says what it does."""
    text = sys.modules[type(create(name, 1)).__module__].__doc__ or ""
    return text.strip().splitlines()[0]
