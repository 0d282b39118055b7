"""The worker's settings."""

from __future__ import annotations

import os
import re
from typing import ClassVar, Self

from keygrouping_service.events.settings import InputSettings
from keygrouping_service.settings import PREFIX, Groups, PurgeSettings
from pydantic import Field, model_validator

_OF_THE_INPUT = ("start", "until", "idle_timeout")
"""Settings of whoever reads the input."""


def ordinal_of(pod: str) -> int | None:
    """The ordinal at the end of a StatefulSet pod's name: 3 of `keygrouping-worker-3`; None if there is none."""
    match = re.search(r"-(\d{1,6})$", pod)
    return int(match[1]) if match else None


class WorkerSettings(InputSettings, PurgeSettings):
    """What a worker process needs to know besides the stage's settings.

    `start`, `until` and `idle_timeout` are for `stages=combine`: else they are the routers'.
    """

    section: ClassVar[str] = "WORKER"

    ordinal: int | None = Field(
        default_factory=lambda: ordinal_of(os.environ.get("HOSTNAME", "")),
        ge=0,
        description="number of this replica; default: the number at the end of the pod's name",
    )
    flush_interval: float = Field(
        default=0.5, ge=0.01, le=3600, description="seconds between flushes of a partition's partials"
    )
    flush_groups: int = Field(
        default=20_000, ge=1, description="keys times windows of one partition that are held at most"
    )
    flush_key_bytes: int = Field(
        default=16 << 20, ge=1, description="bytes of keys of one partition that are held at most"
    )
    batch_records: int = Field(
        default=5000, ge=1, le=50_000, description="records taken at once; bounds the time without heartbeats"
    )
    routed_readers: Groups = Field(
        default="", description="further consumer groups that read `routed`, by commas: what they need is not deleted"
    )

    @model_validator(mode="after")
    def _reads_the_input(self) -> Self:
        unused = [name for name in _OF_THE_INPUT if name in self.model_fields_set]
        if unused and self.stages == "route":
            names = ", ".join(f"{PREFIX}{self.section}_{name.upper()}" for name in unused)
            raise ValueError(f"{names}: routers read the input, so set it for them, or {PREFIX}STAGES=combine")
        return self
