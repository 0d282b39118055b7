"""The aggregator's settings."""

from __future__ import annotations

from typing import ClassVar

from keygrouping_service.settings import Groups, PurgeSettings, StageSettings
from pydantic import Field


class AggregatorSettings(StageSettings, PurgeSettings):
    """What an aggregator process needs to know besides the stage's settings."""

    section: ClassVar[str] = "AGGREGATOR"

    flush_interval: float = Field(
        default=0.5, ge=0.01, le=3600, description="seconds between looks at which windows have become final"
    )
    flush_results: int = Field(
        default=20_000, ge=1, description="results after which a transaction takes no further window"
    )
    batch_records: int = Field(default=5000, ge=1, le=50_000, description="partials taken at once from a partition")
    partials_readers: Groups = Field(
        default="", description="further consumer groups that read `partials`, by commas: what they need is not deleted"
    )
