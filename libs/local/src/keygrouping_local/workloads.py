"""What `keygrouping-run` can replay: each workload with its job and the producer's settings."""

import hashlib
import re
from dataclasses import dataclass, field
from pathlib import Path

import orjson
from keygrouping.job import JobSpec

from keygrouping_local.errors import LocalError

FLIGHT_KEYS = {"carrier": "carrier", "origin": "origin", "destination": "dest", "tailnum": "tailnum"}
_COUNTRY = re.compile(r"country-skew-(\d{1,2}|100)|country-half-skew")
KNOWN = "flights, flights-origin, flights-destination, flights-tailnum, country-skew-0 to -100, country-half-skew"

FLIGHTS_JOB: dict[str, object] = {
    "window": "1d",
    "lateness": "1h",
    "aggregates": [
        {"name": "flights", "op": "count"},
        {"name": "delay_mean", "op": "mean", "field": "dep_delay"},
        {"name": "delay_variance", "op": "variance", "field": "dep_delay"},
        {"name": "distance", "op": "sum", "field": "distance"},
        {"name": "destinations", "op": "distinct", "field": "dest"},
    ],
}
COUNT_JOB: dict[str, object] = {
    "window": "1m",
    "lateness": "10s",
    "aggregates": [{"name": "events", "op": "count"}],
}


@dataclass(frozen=True)
class Workload:
    """Events to replay: a name for people, the job as JSON data, and the producer's own settings."""

    name: str
    job: dict[str, object]
    producer: dict[str, str] = field(default_factory=dict)

    @property
    def spec(self) -> JobSpec:
        """The job."""
        return JobSpec.from_json(self.job)

    @property
    def job_text(self) -> str:
        """The job as JSON."""
        return orjson.dumps(self.job).decode()

    @property
    def identity(self) -> str:
        """Name that differs for whatever must not mix: other events or another job."""
        material = orjson.dumps([self.job, self.producer], option=orjson.OPT_SORT_KEYS)
        slug = re.sub(r"[^a-z0-9]+", "-", self.name.lower()).strip("-")[:40]
        return f"{slug}-{hashlib.sha256(material).hexdigest()[:6]}"


def workload(
    name: str, key: str | None = None, time_field: str | None = None, job: dict[str, object] | None = None
) -> Workload:
    """Returns a workload by its name, or that of a file of JSON lines or CSV (then `key` names its key field).

    `job` replaces the default job. Raises LocalError for a name or combination that doesn't exist.
    """
    if name == "flights" or name.startswith("flights-"):
        return _flights(name, key, job)
    if _COUNTRY.fullmatch(name):
        if key is not None:
            raise LocalError(f"workload {name} has one key only: leave out --key")
        return Workload(name, job or COUNT_JOB, {"workload": name})
    return _file(Path(name), key, time_field, job)


def _flights(name: str, key: str | None, job: dict[str, object] | None) -> Workload:
    wanted = key or name.removeprefix("flights").removeprefix("-") or "carrier"
    if wanted not in FLIGHT_KEYS:
        raise LocalError(f"flights have no key {wanted!r}: choose from {', '.join(FLIGHT_KEYS)}")
    producer = {"workload": "flights", "key": FLIGHT_KEYS[wanted]}
    return Workload(f"flights-{wanted}", job or FLIGHTS_JOB, producer)


def _file(path: Path, key: str | None, time_field: str | None, job: dict[str, object] | None) -> Workload:
    if not path.is_file():
        raise LocalError(f"unknown workload {str(path)!r}: choose from {KNOWN}, or give the path of a file")
    if key is None:
        raise LocalError(f"{path} needs --key FIELD, the name of its key field")
    producer = {"workload": "file", "file": str(path.absolute()), "key": key}
    if time_field is not None:
        producer["time_field"] = time_field
    return Workload(path.name, job or COUNT_JOB, producer)
