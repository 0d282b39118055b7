"""The JSON of `GET /distribution` as types; snapshots in the topic have the same shape."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

State = Literal["standby", "restoring", "observing"]
Moment = Annotated[
    str, Field(json_schema_extra={"format": "date-time", "examples": ["2026-01-31T12:00:00.000Z"]}, max_length=40)
]
Count = Annotated[int, Field(ge=0)]
Loads = list[Annotated[float, Field(ge=0)]]
"""By worker."""


class Latency(BaseModel):
    """From an event's own timestamp to that of the partial that holds it, of sampled events, in seconds."""

    samples: Count
    p50: float | None
    p99: float | None
    bounds: list[float]
    counts: list[Count] = Field(description="up to each of `bounds`, then those above all")


class Figures(BaseModel):
    """What an interval and the run have in common; loads and throughputs are by worker."""

    model_config = ConfigDict(serialize_by_alias=True)

    seconds: float
    workers: int = Field(ge=0, description="in use; of the run: the most there were")
    events: Count
    weight: float
    keys: Count
    capacities: Loads = Field(description="of the workers, relative to each other, as the router says now")
    lambda_: float = Field(alias="lambda", description="largest over average load, by capacity")
    least_share: float = Field(description="least over average load, by capacity")
    std_dev: float = Field(description="of the loads' shares by capacity, in percentage points")
    dist_cost: float = Field(description="distinct workers per distinct key")
    lambda_before: float = Field(description="what key hashing would have given")
    std_dev_before: float = Field(description="what key hashing would have given")
    messages: int = Field(ge=0, description="partials that the aggregator has to merge")
    messages_per_event: float
    throughput: float = Field(description="events per second")
    efficiency: float | None = Field(description="throughput over what the workers could do; null if not known")
    loads: Loads
    loads_before: Loads
    throughputs: Loads
    latency: Latency


class IntervalFigures(Figures):
    """One interval that has ended."""

    v: Literal[1]
    observer: str
    start: Moment
    end: Moment
    replication: float = Field(description="workers per key, with every key as often as it has events")
    epoch: int = Field(description="newest plan that the workers knew of")
    lags: list[Count] = Field(description="by worker: offsets that it had not processed")
    offsets: dict[str, tuple[int, int]] = Field(
        description="by partition of `partials`: first offset of the interval, and the first one behind it"
    )


class RunFigures(Figures):
    """All intervals since the start of the run."""

    since: Moment
    intervals: Count
    key_sample: float = Field(description="part of the keys that `dist_cost` is measured on; 1: all of them")


class DistributionReport(BaseModel):
    """How evenly the work is spread, and what that costs."""

    observer: str
    state: State = Field(description="`standby`: another replica observes")
    lags: list[Count] = Field(description="by worker: offsets that it has not processed, now")
    intervals: list[IntervalFigures] = Field(description="the newest first")
    run: RunFigures | None = Field(description="null before the first interval has ended")
