"""Settings of the load generators: `KEYGROUPING_EVENTLOAD_...` and `KEYGROUPING_HTTPLOAD_...`, or options."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar, Self

from keygrouping.workload import PATTERN, Workload, WorkloadError, workload
from keygrouping_service.settings import Compression, ServiceSettings
from pydantic import Field, model_validator


def _settings_of(text: str) -> dict[str, Any]:
    try:
        given = json.loads(text)
    except ValueError as error:
        raise WorkloadError(f"workload settings are no JSON: {error}") from None
    if not isinstance(given, dict):
        raise WorkloadError(f"workload settings must be a JSON object, not {text!r}")
    return given


class _WorkloadSettings(ServiceSettings):
    """Whose keys the events have."""

    workload: str = Field(
        default="country-skew-80",
        description="any workload that `keygrouping simulate` knows",
        json_schema_extra={"pattern": PATTERN},
    )
    workload_settings: str = Field(default="{}", description="its settings, a JSON object")
    seed: int = Field(default=1, ge=0, lt=2**31, description="seed of the workload")

    @model_validator(mode="after")
    def _workload_is_known(self) -> Self:
        self.open_workload(1)
        return self

    def open_workload(self, events: int) -> Workload:
        """The stream of that many keys; WorkloadError (a ValueError) if there is no such workload."""
        return workload(self.workload, events, self.seed, _settings_of(self.workload_settings))


class EventLoadSettings(_WorkloadSettings):
    """Events into Kafka, at a rate that does not depend on how fast the broker answers."""

    section: ClassVar[str] = "EVENTLOAD"

    rate: float = Field(default=1000, gt=0, le=1e8, allow_inf_nan=False, description="events per second")
    seconds: float = Field(default=60, gt=0, le=1e6, description="how long")
    processes: int = Field(default=1, ge=1, le=64, description="processes that take turns with the events")
    tolerance: float = Field(
        default=0.01, gt=0, lt=1, description="part of the rate that may be missing without the run having failed"
    )
    value_bytes: int = Field(default=0, ge=0, le=1_000_000, description="least bytes of an event's value")
    compression: Compression = "none"
    batch_bytes: int = Field(default=1 << 18, ge=1024, le=1 << 24, description="most bytes of one written batch")
    delivery_timeout: float = Field(
        default=10, gt=0, le=600, description="seconds that acknowledgements may stay behind before the run is given up"
    )

    @property
    def events(self) -> int:
        """Events of the whole run, at least one."""
        return max(1, round(self.rate * self.seconds))


class HttpLoadSettings(_WorkloadSettings):
    """Calls of the router's and the producer's HTTP interfaces."""

    section: ClassVar[str] = "HTTPLOAD"

    bootstrap_servers: str = Field(default="", description="not used")
    router_url: str | None = Field(
        default=None, pattern=r"^https?://", description="base URL of the router to read from"
    )
    producer_url: str | None = Field(
        default=None, pattern=r"^https?://", description="base URL of the producer to post events to"
    )
    token_file: Path | None = Field(default=None, description="a bearer token, for a router whose reads are closed")
    producer_token_file: Path | None = Field(
        default=None, description="a bearer token, for a producer that asks for one"
    )
    users: int = Field(default=10, ge=1, le=100_000, description="users at once, readers and posters alike")
    rate: float = Field(
        default=50, ge=0, le=1e6, allow_inf_nan=False, description="requests per second of all; 0: one after the other"
    )
    seconds: int = Field(default=60, ge=1, le=1_000_000, description="how long")
    ready_timeout: float = Field(default=300, ge=0, le=3600, description="seconds to wait until both are ready")
    post_events: int = Field(default=10, ge=1, le=100_000, description="events of one request to the producer")

    @model_validator(mode="after")
    def _there_is_something_to_call(self) -> Self:
        if self.router_url is None and self.producer_url is None:
            raise ValueError("KEYGROUPING_HTTPLOAD_ROUTER_URL or KEYGROUPING_HTTPLOAD_PRODUCER_URL must be set")
        return self

    def headers(self) -> dict[str, str]:
        """What every call of the router carries."""
        return _bearing(self.token_file)

    def producer_headers(self) -> dict[str, str]:
        """What every call of the producer carries."""
        return {"Content-Type": "application/x-ndjson", **_bearing(self.producer_token_file)}


def _bearing(file: Path | None) -> dict[str, str]:
    return {} if file is None else {"Authorization": f"Bearer {file.read_text().strip()}"}
