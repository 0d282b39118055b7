"""How plans, their records, and what replicas publish for them stand in the store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, JsonValue

from keygrouping_router.limits import MAX_WORKERS, Number, Time
from keygrouping_router.planning.plan import Plan, PlanRecord


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class _StoredRecord(_Stored):
    epoch: Number
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
    epoch: Number


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
    if stored.content.get("epoch") != stored.record.epoch:
        raise ValueError("the epochs of the plan and of its record are not the same")
    return Plan(stored.generation, stored.base, stored.workers, stored.content, _record(stored.record))


def statistics_from_data(data: Any) -> Mapping[str, Any]:
    """Statistics, of which only their grouping knows more; raises if they are none."""
    if not isinstance(data, dict):
        raise TypeError(f"an object is wanted, not {type(data).__name__}")
    epoch_from_data(data)
    return data


def epoch_from_data(data: Any) -> int:
    """The epoch that a replica says it is in; raises if it says none."""
    return _StoredBeat.model_validate(data).epoch


def _record(stored: _StoredRecord) -> PlanRecord:
    return PlanRecord(**dict(stored))
