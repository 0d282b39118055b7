"""Settings of the producer service, from the environment: `KEYGROUPING_...` and `KEYGROUPING_PRODUCER_...`."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

from keygrouping_service.settings import Compression, TokenSettings
from pydantic import Field, ValidationError, model_validator

from keygrouping_producer.plan import Events, Name, Pace, Plan, Rate, Seed, Workload
from keygrouping_producer.sources.files import MOST_BYTES
from keygrouping_producer.sources.times import AUTO

MOST_PROCESSES = 64


class ProducerSettings(TokenSettings):
    """What is replayed from the start, how, and the limits of the HTTP interface."""

    section: ClassVar[str] = "PRODUCER"

    workload: Name = Field(default=Workload().workload, description=Workload.model_fields["workload"].description)
    skew: int | None = Field(default=None, ge=0, le=100, description="percentage, for the workload country-skew")
    key: str | None = Field(default=None, description=Workload.model_fields["key"].description)
    events: Events = Field(default=1_000_000, description=Workload.model_fields["events"].description)
    seed: Seed = Field(default=1, description=Workload.model_fields["seed"].description)
    file: Path | None = Field(default=None, description=Workload.model_fields["file"].description)
    time_field: str | None = Field(default=None, description=Workload.model_fields["time_field"].description)
    time_format: str = Field(default=AUTO, min_length=1, description=Workload.model_fields["time_format"].description)
    delimiter: str | None = Field(default=None, description=Workload.model_fields["delimiter"].description)
    rate: Rate = Field(default=0, description=Pace.model_fields["rate"].description)
    loop: bool = Field(default=False, description=Pace.model_fields["loop"].description)
    data_folder: Path | None = Field(default=None, description="files under it may be chosen over HTTP; unset: none")

    processes: int = Field(default=1, ge=1, le=MOST_PROCESSES, description="processes that share the partitions")
    exit_when_done: bool = Field(default=False, description="exit with 0 once everything is acknowledged")

    compression: Compression = "none"
    batch_bytes: int = Field(default=1 << 18, ge=1024, le=1 << 24, description="most bytes of one written batch")
    linger: float = Field(
        default=0.05, ge=0, le=10, description="seconds between transactions while the rate is limited"
    )
    transaction_events: int = Field(default=50_000, ge=1, le=1_000_000, description="most events of one transaction")
    transaction_timeout: float = Field(
        default=60, ge=5, le=900, description="seconds until the broker aborts the transaction of a dead producer"
    )
    shutdown_timeout: float = Field(default=10, ge=0, le=300, description="seconds that a stop waits for the broker")

    max_event_bytes: int = Field(default=MOST_BYTES, ge=1, description="most bytes of an event's key and value")
    max_body_bytes: int = Field(default=16 << 20, ge=1, description="most bytes of a request's body")
    max_pending_bytes: int = Field(
        default=64 << 20, ge=1, description="most bytes of requests that are read, or wait for the broker"
    )
    max_requests: int = Field(default=16, ge=1, le=1000, description="most requests with events at once")
    max_workload_events: int = Field(
        default=100_000_000, ge=1, le=10**12, description="most events of a workload that is chosen over HTTP"
    )
    acknowledge_timeout: float = Field(default=10, gt=0, le=300, description="seconds a request waits for the broker")

    @model_validator(mode="after")
    def _plan_is_sound(self) -> Self:
        try:
            self.plan()
        except ValidationError as error:
            raise ValueError(
                "; ".join(str(fault["msg"]).removeprefix("Value error, ") for fault in error.errors())
            ) from None
        return self

    def plan(self) -> Plan:
        """The plan that the settings ask for."""
        wanted = self.model_dump(include={*Workload.model_fields, "skew"})
        return Plan(workload=Workload.model_validate(wanted), pace=Pace(rate=self.rate, loop=self.loop))

    @property
    def positions_group(self) -> str:
        """The consumer group that holds where the replay stands."""
        return self.group("producer")
