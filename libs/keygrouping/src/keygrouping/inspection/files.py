"""Files as readings: JSON lines as the values of records, CSV, and the formats of public dumps."""

from collections import Counter
from collections.abc import Generator, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from keygrouping.inspection.batch import Batch, InspectionError
from keygrouping.inspection.extraction import Extraction, extract
from keygrouping.job import JobSpec, Rejection, Source
from keygrouping.settings import setting
from keygrouping.workload import formats, open_dump
from keygrouping.workload.dump import Dump, Progress, check_readable
from keygrouping.workload.format import NO_SOURCE, BadLine, LineFormat, ParsedEvent

CSV = "csv"
JSON_LINES = "ndjson"
BY_EXTRACTION = ("key", "weight")
"""Settings of `csv` that are given as extraction."""

_COMPRESSED = (".gz", ".bz2")
_FORMAT_OF = {".csv": CSV, ".ndjson": JSON_LINES, ".jsonl": JSON_LINES, ".json": JSON_LINES}


@dataclass(frozen=True)
class _Records(LineFormat):
    """JSON lines, each the value of a record without key."""

    key: str = setting("key", "member or JSON pointer")
    weight: str | None = setting(None, "member or JSON pointer; null: all weigh 1")
    size: bool = setting(False, "whether the length of the line is its weight")

    @property
    def weighted(self) -> bool:
        return self.size or self.weight is not None

    @cached_property
    def _job(self) -> JobSpec:
        weight = Source("size") if self.size else Source("one")
        return Extraction(
            Source("field", self.key), weight if self.weight is None else Source("field", self.weight)
        ).job()

    def parse(self, line: bytes) -> Iterable[ParsedEvent]:
        extracted = extract(self._job, None, line, ())
        if isinstance(extracted, Rejection):
            raise BadLine(extracted.reason)
        return ((extracted.key, float(extracted.weight), NO_SOURCE),)


class FileReading:
    """A file; its lines are read once, in batches."""

    kind = "file"
    partitions = None
    sample = None
    followed = 0
    silence = None

    def __init__(self, dump: Dump) -> None:
        self.name = dump.name
        self._dump = dump

    @property
    def left_out(self) -> Counter[str]:
        """Bad lines; what is wrong with them in detail may show a key, so it is not told."""
        return Counter({"bad-line": self._dump.bad.count} if self._dump.bad.count else {})

    def batches(self) -> Generator[Batch, None, None]:
        """All events."""
        for events in self._dump.batches():
            keys, weights, _ = zip(*events, strict=True)
            yield Batch(keys, np.array(weights, np.float64) if self._dump.weighted else None)


def format_of(path: Path, given: str | None) -> str:
    """The format of a file, as given or by its name; InspectionError names the choices."""
    if given is not None:
        if given not in formats():
            raise InspectionError(f"--format {given}: choose from {', '.join(formats())}")
        return given
    suffixes = [suffix.lower() for suffix in path.suffixes]
    last = suffixes[-2:-1] if suffixes[-1:] and suffixes[-1] in _COMPRESSED else suffixes[-1:]
    found = _FORMAT_OF.get(last[0]) if last else None
    if found is None:
        raise InspectionError(f"--file {path}: its name tells no format; add --format with {', '.join(formats())}")
    return found


def open_file(
    path: Path, format: str, extraction: Extraction, settings: Mapping[str, object], progress: Progress
) -> FileReading:
    """A file as a reading. Raises InspectionError, or WorkloadError for settings and files that can't be used."""
    if format == JSON_LINES:
        check_readable(path)
        return FileReading(Dump(path, _records(extraction), None, progress))
    if format == CSV:
        return FileReading(open_dump(path, format, {**settings, **_columns(extraction)}, None, progress))
    if extraction != Extraction():
        raise InspectionError(f"--key, --weight: the format {format} has its own; they are for csv and ndjson")
    return FileReading(open_dump(path, format, settings, None, progress))


def _records(extraction: Extraction) -> _Records:
    key, weight = extraction.key, extraction.weight
    _need_field(key)
    return _Records(key.name, weight.name if weight.kind == "field" else None, weight.kind == "size")


def _columns(extraction: Extraction) -> dict[str, object]:
    _need_field(extraction.key)
    if extraction.weight.kind == "size":
        raise InspectionError("--weight size: a row of CSV has none; choose from 1, field=COLUMN")
    weight = extraction.weight.name if extraction.weight.kind == "field" else None
    return {"key": extraction.key.name, "weight": weight}


def _need_field(key: Source) -> None:
    if key.kind != "field":
        raise InspectionError("--key: lines of a file have neither keys nor headers; choose field=NAME")
