"""Opens the source that a workload names."""

from __future__ import annotations

from typing import cast

from keygrouping_producer.plan import FILE, FLIGHTS, NOTHING, Workload
from keygrouping_producer.sources.base import Source
from keygrouping_producer.sources.countries import Countries
from keygrouping_producer.sources.files import MOST_BYTES, File
from keygrouping_producer.sources.flights import FlightKey, Flights
from keygrouping_producer.sources.nothing import Nothing


def open_source(workload: Workload, most_bytes: int = MOST_BYTES) -> Source:
    """The workload's events, of at most so many bytes each.

    May take a second; raises SourceError with one line that says what to do.
    """
    if workload.workload == NOTHING:
        return Nothing()
    if workload.workload == FLIGHTS:
        return Flights(cast(FlightKey, workload.key or "carrier"))
    if workload.workload == FILE:
        return open_file(workload, most_bytes)
    return Countries(workload.workload, workload.events, workload.seed)


def open_file(workload: Workload, most_bytes: int = MOST_BYTES) -> File:
    """The file that a workload names; see `open_source`."""
    assert workload.file is not None and workload.key is not None
    return File(
        workload.file,
        workload.key,
        workload.time_field,
        workload.time_format,
        delimiter=workload.delimiter,
        most_bytes=most_bytes,
    )
