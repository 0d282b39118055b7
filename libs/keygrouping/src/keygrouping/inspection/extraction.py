"""Key and weight of a record, taken as the router takes them."""

from dataclasses import dataclass, field
from typing import Literal

from keygrouping.inspection.batch import InspectionError
from keygrouping.job import Extracted, Headers, JobSpec, Rejection, Source

KEY_CHOICES = "record, header=NAME, field=NAME, field=/JSON/POINTER"
WEIGHT_CHOICES = "1, size, field=NAME, field=/JSON/POINTER"


@dataclass(frozen=True)
class Extraction:
    """Where key and weight come from."""

    key: Source = field(default_factory=lambda: Source("record"))
    weight: Source = field(default_factory=lambda: Source("one"))

    @classmethod
    def parsed(cls, key: str, weight: str) -> "Extraction":
        """Out of texts such as `header=user` and `field=/price`; InspectionError names the choices."""
        return cls(_key(key), _weight(weight))

    def job(self) -> JobSpec:
        """A job that takes key and weight from there, and nothing else."""
        return JobSpec(aggregates=(), key=self.key, weight=self.weight)


def extract(job: JobSpec, key: bytes | None, value: bytes | None, headers: Headers) -> Extracted | Rejection:
    """Key and weight of a record, whatever its time, or why the router couldn't use it."""
    return job.extract(key, value, headers, 0, 0)


def _key(text: str) -> Source:
    if text == "record":
        return Source("record")
    kind, name = _named(text)
    if kind is None or not name:
        raise InspectionError(f"--key {text}: choose from {KEY_CHOICES}")
    return Source(kind, name)


def _weight(text: str) -> Source:
    if text == "1":
        return Source("one")
    if text == "size":
        return Source("size")
    kind, name = _named(text)
    if kind != "field" or not name:
        raise InspectionError(f"--weight {text}: choose from {WEIGHT_CHOICES}")
    return Source("field", name)


def _named(text: str) -> tuple[Literal["header", "field"] | None, str]:
    kind, _, name = text.partition("=")
    if kind == "header":
        return "header", name
    return ("field", name) if kind == "field" else (None, "")
