"""Settings of the router, checked before anything starts."""

from __future__ import annotations

import os
import socket
from typing import Any, ClassVar, Literal, Self

from keygrouping.grouping import GroupingError
from keygrouping_service.events.settings import InputSettings
from keygrouping_service.settings import ApiSettings, StoreSettings
from pydantic import Field, Json, model_validator

from keygrouping_router.control.orders import Sharing
from keygrouping_router.control.state import Control
from keygrouping_router.errors import Refused
from keygrouping_router.limits import MAX_TRACKED


class RouterSettings(InputSettings, StoreSettings, ApiSettings):
    """Environment names begin with `KEYGROUPING_ROUTER_`; shared ones such as `KEYGROUPING_JOB` come without it."""

    section: ClassVar[str] = "ROUTER"

    workers: int = Field(default=4, ge=1, le=10_000, description="W: partitions of `routed` in use")
    auto_workers: bool = Field(
        default=False, description="W follows the number of native workers that are running, from `workers` on"
    )
    auto_grace: float = Field(
        default=45, ge=0, le=3600, description="seconds that fewer workers must have run until W follows them"
    )
    worker_pods: str | None = Field(
        default=None,
        pattern=r"^[a-z0-9.-]+$",
        description="the native workers' StatefulSet in this namespace: its pods and W follow each other; unset: none",
    )
    grouping: str = Field(default="level-fill", description="how keys are spread over the workers")
    grouping_settings: Json[dict[str, Any]] = Field(default_factory=dict, description="its settings")
    sharing: Literal["shared", "independent"] | None = Field(
        default=None,
        description="whether all routers have one plan, made of what all of them see, or each its own; unset: one plan "
        "where they share a Redis",
    )
    observe_only: bool = Field(default=False, description="route by key hash, and report what the grouping would bring")
    interval: float = Field(default=10, ge=0.1, le=3600, description="seconds between two plans and reports of loads")
    tracked_keys: int = Field(default=1000, ge=10, le=MAX_TRACKED, description="keys with a count in the KeySpace")
    replica: str = Field(
        default_factory=lambda: f"{socket.gethostname()}-{os.getpid()}",
        pattern=r"^[A-Za-z0-9._-]{1,200}$",
        description="name among the routers that share a store; unset: host and process",
    )
    delivery: Literal["exactly_once", "at_least_once"] = Field(
        default="exactly_once", description="whether output and offsets are one Kafka transaction"
    )
    max_record_bytes: int | None = Field(
        default=None,
        ge=1024,
        le=1 << 28,
        description="largest event, unpacked; what is left of larger ones is a dead letter; unset: what `routed` takes",
    )
    max_batch: int = Field(default=50_000, ge=1, le=100_000, description="most records of one transaction")
    linger: float = Field(default=0.05, ge=0, le=10, description="seconds to wait for a batch to fill up")

    @model_validator(mode="after")
    def _is_wanted(self) -> Self:
        if self.stages == "combine":
            raise ValueError("KEYGROUPING_STAGES=combine: workers read the events topic themselves; start no router")
        return self

    @model_validator(mode="after")
    def _grouping_can_be_built(self) -> Self:
        try:
            self.control().check()
        except (GroupingError, Refused) as error:
            raise ValueError(f"KEYGROUPING_ROUTER_GROUPING: {error}") from None
        return self

    def control(self) -> Control:
        """What is in force at the first start."""
        shares: Sharing = "shared" if "redis" in self.store_url.partition(":")[0] else "independent"
        return Control(
            grouping=self.grouping,
            settings=self.grouping_settings,
            sharing=self.sharing or shares,
            observe_only=self.observe_only,
            workers=self.workers,
            auto=self.auto_workers,
        )
