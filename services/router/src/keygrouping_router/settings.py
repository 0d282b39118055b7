"""Settings of the router, checked before anything starts."""

from __future__ import annotations

from typing import Any, ClassVar, Literal, Self

from keygrouping.grouping import GroupingError, create
from keygrouping_service.settings import StageSettings
from pydantic import Field, Json, model_validator


class RouterSettings(StageSettings):
    """Environment names begin with `KEYGROUPING_ROUTER_`; shared ones such as `KEYGROUPING_JOB` come without it."""

    section: ClassVar[str] = "ROUTER"

    workers: int = Field(default=4, ge=1, le=10_000, description="W: partitions of `routed` in use")
    grouping: str = Field(default="dkg", description="how keys are spread over the workers")
    grouping_settings: Json[dict[str, Any]] = Field(default_factory=dict, description="JSON object")
    delivery: Literal["exactly_once", "at_least_once"] = "exactly_once"
    idle_timeout: float = Field(
        default=15, ge=0.1, description="seconds without events until an input partition holds nothing back"
    )
    max_batch: int = Field(default=10_000, ge=1, le=100_000, description="most records of one transaction")
    linger: float = Field(default=0.05, ge=0, le=10, description="seconds to wait for a batch to fill up")

    @model_validator(mode="after")
    def _grouping_can_be_built(self) -> Self:
        try:
            create(self.grouping, self.workers, self.grouping_settings)
        except GroupingError as error:
            raise ValueError(f"KEYGROUPING_ROUTER_GROUPING: {error}") from None
        return self
