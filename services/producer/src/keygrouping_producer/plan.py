"""What is to be replayed and how fast, as checked data that settings, HTTP bodies and committed metadata share."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from keygrouping_producer.sources.files import TAB
from keygrouping_producer.sources.flights import FLIGHT_KEYS
from keygrouping_producer.sources.times import AUTO, TIME_FORMATS

NOTHING = "none"
FLIGHTS = "flights"
FILE = "file"
HALF_SKEW = "country-half-skew"
SKEWED = "country-skew"

_SKEW_NAME = re.compile(rf"{SKEWED}-(\d{{1,3}})")
_KNOWN = f"{FLIGHTS}, {SKEWED}-0 to {SKEWED}-100, {HALF_SKEW}, {FILE}, {NOTHING}"

Name = Annotated[
    str,
    Field(
        json_schema_extra={"pattern": rf"^({NOTHING}|{FLIGHTS}|{FILE}|{HALF_SKEW}|{SKEWED}(-([0-9]|[1-9][0-9]|100))?)$"}
    ),
]
"""What to replay. Of the pattern only schemas speak: a wrong name is told with all that there are."""

Events = Annotated[int, Field(ge=1, le=10**12)]
Seed = Annotated[int, Field(ge=0, lt=2**31)]
Rate = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]


class Workload(BaseModel):
    """A repeatable sequence of events; two equal workloads are the same events in the same order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workload: Name = Field(default=NOTHING, description=f"what to replay: {_KNOWN}")
    key: str | None = Field(
        default=None,
        description=f"key: for {FLIGHTS} one of {', '.join(FLIGHT_KEYS)} (carrier if unset), for {FILE} a field",
    )
    events: Events = Field(default=1_000_000, description="events of a generated workload, per round")
    seed: Seed = Field(default=1, description="seed of a generated workload")
    file: Path | None = Field(default=None, description=f"JSON lines or CSV, plain or .gz, or Parquet, for {FILE}")
    time_field: str | None = Field(default=None, description="event time in the file; without it, the time of writing")
    time_format: str = Field(
        default=AUTO,
        min_length=1,
        description=f"{', '.join(TIME_FORMATS)}, or a format of strptime; {AUTO}: as most of the first lines have it",
    )
    delimiter: str | None = Field(
        default=None,
        pattern=rf'^([^"\r\n]|{TAB})$',
        description=f"between fields of CSV: one character, or {TAB}; unset: a comma, in .tsv a tab",
    )

    @model_validator(mode="before")
    @classmethod
    def _skew_is_part_of_the_name(cls, data: Any) -> Any:
        """`{"workload": "country-skew", "skew": 80}` is `{"workload": "country-skew-80"}`."""
        if not isinstance(data, dict) or "skew" not in data:
            return data
        rest = {name: value for name, value in data.items() if name != "skew"}
        name, skew = str(rest.get("workload", SKEWED)), data["skew"]
        if skew is None:
            return rest
        if name != SKEWED and not _SKEW_NAME.fullmatch(name):
            raise ValueError(f"a skew goes with {SKEWED} only, not with {name!r}")
        return rest | {"workload": f"{SKEWED}-{skew}"}

    @model_validator(mode="after")
    def _parts_fit_together(self) -> Self:
        if self.workload == FLIGHTS and (self.key or "carrier") not in FLIGHT_KEYS:
            raise ValueError(f"flights have no key {self.key!r}: choose one of {', '.join(FLIGHT_KEYS)}")
        if self.workload == FILE and (self.key is None or self.file is None):
            raise ValueError("the workload 'file' needs a file and a key, the name of its key field")
        if self.workload not in (NOTHING, FLIGHTS, FILE, HALF_SKEW) and self.skew not in range(101):
            raise ValueError(f"unknown workload {self.workload!r}: known are {_KNOWN}")
        return self

    @property
    def skew(self) -> int | None:
        """Percentage of the `country-skew` workloads, None for others."""
        match = _SKEW_NAME.fullmatch(self.workload)
        return int(match[1]) if match else None


class Pace(BaseModel):
    """How a workload is replayed: events per second (0: as fast as possible), and whether it repeats at its end."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    rate: Rate = Field(default=0, description="events per second, 0 without limit")
    loop: bool = Field(default=False, description="start again at the end, with later event times")


class Plan(BaseModel):
    """A workload and its pace."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    workload: Workload = Workload()
    pace: Pace = Pace()
