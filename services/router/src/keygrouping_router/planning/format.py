"""How plans, their records, and what replicas publish for them stand in the store."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from keygrouping_router.limits import MAX_WORKERS, Epoch, Number, Time
from keygrouping_router.planning.plan import Contribution, Plan, PlanRecord


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _StoredRecord(_Stored):
    epoch: Epoch
    made: Time | None
    round: Number | None
    by: str | None
    grouping: str
    workers: int = Field(ge=1, le=MAX_WORKERS)
    part: float = Field(default=0.0, ge=0, lt=1)
    hot_keys: Number | None
    moved_keys: Number | None
    moved_state: float | None
    feasible: bool | None
    plan_ms: float | None
    details: dict[str, JsonValue]


class _StoredPlan(_Stored):
    generation: Number
    base: Number
    workers: int = Field(ge=1, le=MAX_WORKERS)
    content: dict[str, Any]
    record: _StoredRecord


class _StoredBeat(_Stored):
    epoch: Epoch


class _StoredContribution(_Stored):
    epoch: Epoch
    statistics: dict[str, Any]


def record_to_data(record: PlanRecord) -> dict[str, Any]:
    """The record of a plan as JSON data."""
    return asdict(record)


def record_from_data(data: Any) -> PlanRecord:
    """The record that gave the data; raises if it is none."""
    return _record(_StoredRecord.model_validate(data))


def plan_to_data(plan: Plan) -> dict[str, Any]:
    """All of a plan as JSON data."""
    return {
        "generation": plan.generation,
        "base": plan.base,
        "workers": plan.workers,
        "content": dict(plan.content),
        "record": record_to_data(plan.record),
    }


def plan_from_data(data: Any) -> Plan:
    """The plan that gave the data, but for its content, which only its grouping knows; raises if it is none."""
    stored = _StoredPlan.model_validate(data)
    return Plan(stored.generation, stored.base, stored.workers, stored.content, _record(stored.record))


def contribution_to_data(contribution: Contribution) -> dict[str, Any]:
    """What a replica adds to a plan as JSON data."""
    return {"epoch": contribution.epoch, "statistics": dict(contribution.statistics)}


def contribution_from_data(data: Any) -> Contribution:
    """The contribution that gave the data, but for its statistics, which only their grouping knows; raises if none."""
    stored = _StoredContribution.model_validate(data)
    return Contribution(stored.epoch, stored.statistics)


def epoch_from_data(data: Any) -> int:
    """The epoch that a replica says it is in; raises if it says none."""
    return _StoredBeat.model_validate(data).epoch


def _record(stored: _StoredRecord) -> PlanRecord:
    return PlanRecord(**dict(stored))
