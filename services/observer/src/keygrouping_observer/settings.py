"""The observer's settings."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from keygrouping_service.settings import ApiSettings, StageSettings, TopicName
from pydantic import Field


class ObserverSettings(StageSettings, ApiSettings):
    """What an observer process needs to know besides the stage's settings."""

    section: ClassVar[str] = "OBSERVER"

    state_topic: TopicName = Field(
        default="observer-state", description="one partition, compacted; what the observer knows of the run"
    )
    audit_topic: TopicName = Field(
        default="observer-audit",
        description="one partition, compacted; what the audit knows, and each window's verdict",
    )
    interval: float = Field(default=10, ge=0.1, le=3600, description="seconds of an interval")
    idle_timeout: float = Field(
        default=5,
        ge=0.1,
        le=600,
        description="seconds after which a partition of partials without records holds no interval open any more",
    )
    look_interval: float = Field(default=1, ge=0.05, le=60, description="seconds between looks at offsets and lags")
    run_keys: int = Field(
        default=500_000, ge=1, description="keys whose workers are known over the run; beyond that a sample of keys"
    )
    latency_samples: int = Field(
        default=4, ge=0, le=1000, description="events per worker and interval whose latency is looked up; 0: none"
    )
    service_rate: float | None = Field(
        default=None, gt=0, description="weight per second that one worker can do; without it efficiency is not known"
    )
    router_url: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="address of the router's API, which says how many workers are in use; without it those count that "
        "have events",
    )
    router_token_file: Path | None = Field(
        default=None, description="bearer token for the router's API, if its reads need one"
    )
    batch_records: int = Field(default=2000, ge=1, le=50_000, description="partials taken at once")

    @property
    def interval_ms(self) -> int:
        """The interval in ms."""
        return round(self.interval * 1000)
