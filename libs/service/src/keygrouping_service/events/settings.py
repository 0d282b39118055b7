"""Settings of a stage that reads the input itself."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from keygrouping_service.kafka.ranges import Moment, read_moment
from keygrouping_service.settings import PREFIX, StageSettings


class InputSettings(StageSettings):
    """Which range of the input is read, and when a partition of it is idle; each service has a `section` of its own."""

    start: str = Field(
        default="earliest",
        description="where the topic begins, if nothing of it is committed yet: earliest, latest or a time, such as "
        "2026-11-01T00:00:00Z",
    )
    until: str | None = Field(
        default=None,
        description="where the topic ends, for a backfill: latest (what there is at the first start) or a time; then "
        "all results are final, and the process ends. Unset: it runs on",
    )
    idle_timeout: float = Field(
        default=15, ge=0.1, description="seconds without events until an input partition holds nothing back"
    )

    @model_validator(mode="after")
    def _range_is_one(self) -> Self:
        own = f"{PREFIX}{self.section}"
        faults: list[str] = []
        moments: dict[str, Moment] = {}
        for name, text in (("START", self.start), ("UNTIL", self.until)):
            try:
                moments |= {} if text is None else {name: read_moment(text)}
            except ValueError as error:
                faults.append(f"{own}_{name}: {error}")
        start, until = moments.get("START"), moments.get("UNTIL")
        if until == "earliest":
            faults.append(f"{own}_UNTIL=earliest ends before anything: give latest, a time, or nothing")
        if isinstance(start, int) and isinstance(until, int) and until <= start:
            faults.append(f"{own}_UNTIL is no later than {own}_START: nothing lies between")
        if faults:
            raise ValueError("; ".join(faults))
        return self

    @property
    def range(self) -> tuple[Moment, Moment | None]:
        """Where to begin and to end."""
        return read_moment(self.start), None if self.until is None else read_moment(self.until)
