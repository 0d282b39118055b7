"""What `keygrouping-run` can replay: each workload with its job and the producer's settings."""

import hashlib
import re
from dataclasses import asdict, dataclass, field
from pathlib import Path

import orjson
from keygrouping.job import JobSpec
from keygrouping_producer import plan as producer_plan
from keygrouping_producer.opening import open_file
from keygrouping_producer.sources.base import SourceError
from keygrouping_producer.sources.files import File
from keygrouping_producer.sources.times import AUTO, in_words
from pydantic import ValidationError

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
    note: str | None = None
    """What was told by the events themselves and not by who asked for them."""

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


@dataclass(frozen=True)
class FileOptions:
    """How to read a file: the field of the times, their format (None: told by the file), what separates CSV."""

    time_field: str | None = None
    time_format: str | None = None
    delimiter: str | None = None


def workload(
    name: str, key: str | None = None, options: FileOptions | None = None, job: dict[str, object] | None = None
) -> Workload:
    """Returns a workload by its name, or that of a file of JSON lines, CSV or Parquet (`key` names its key field).

    `job` replaces the default job. Raises LocalError for a name or combination that doesn't exist, and for a file that
    can't be read as asked.
    """
    known = name == "flights" or name.startswith("flights-") or bool(_COUNTRY.fullmatch(name))
    if known and options not in (None, FileOptions()):
        raise LocalError(f"workload {name} is no file: leave out --time-field, --time-format and --delimiter")
    if known and name.startswith("flights"):
        return _flights(name, key, job)
    if known:
        if key is not None:
            raise LocalError(f"workload {name} has one key only: leave out --key")
        return Workload(name, job or COUNT_JOB, {"workload": name})
    return _file(Path(name), key, options or FileOptions(), job)


def _flights(name: str, key: str | None, job: dict[str, object] | None) -> Workload:
    wanted = key or name.removeprefix("flights").removeprefix("-") or "carrier"
    if wanted not in FLIGHT_KEYS:
        raise LocalError(f"flights have no key {wanted!r}: choose from {', '.join(FLIGHT_KEYS)}")
    producer = {"workload": "flights", "key": FLIGHT_KEYS[wanted]}
    return Workload(f"flights-{wanted}", job or FLIGHTS_JOB, producer)


def _file(path: Path, key: str | None, options: FileOptions, job: dict[str, object] | None) -> Workload:
    if not path.is_file():
        raise LocalError(f"unknown workload {str(path)!r}: choose from {KNOWN}, or give the path of a file")
    if key is None:
        raise LocalError(f"{path} needs --key FIELD, the name of its key field")
    if options.time_format is not None and options.time_field is None:
        raise LocalError("--time-format needs --time-field FIELD, the name of the field with the times")
    given = {"file": str(path.absolute()), "key": key, **asdict(options)}
    producer = {"workload": "file", **{name: value for name, value in given.items() if value is not None}}
    time_format = _open(producer).time_format
    if options.time_field is None:
        return Workload(path.name, job or COUNT_JOB, producer)
    note = f"{path.name}: {options.time_field!r} is read as {in_words(time_format)}; --time-format names another"
    return Workload(
        path.name,
        job or COUNT_JOB,
        producer | {"time_format": time_format},
        note if options.time_format in (None, AUTO) else None,
    )


def _open(producer: dict[str, str]) -> File:
    """The file as the producer will read it; LocalError for one that can't be, or has nothing in it."""
    try:
        source = open_file(producer_plan.Workload.model_validate(producer))
        found = len(source.read(0, 1))
    except SourceError as error:
        raise LocalError(str(error)) from None
    except ValidationError as error:
        faults = "; ".join(f"--{str(fault['loc'][0]).replace('_', '-')}: {fault['msg']}" for fault in error.errors())
        raise LocalError(faults) from None
    if not found:
        raise LocalError(f"{producer['file']} holds no events: it is empty, or has nothing but a header")
    return source
