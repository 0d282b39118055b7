"""Opens the source that a workload names."""

from __future__ import annotations

import logging
from typing import cast

from keygrouping_producer.plan import FILE, FLIGHTS, NOTHING, Workload
from keygrouping_producer.sources.base import Source
from keygrouping_producer.sources.countries import Countries
from keygrouping_producer.sources.files import MOST_BYTES, File
from keygrouping_producer.sources.flights import FlightKey, Flights
from keygrouping_producer.sources.nothing import Nothing
from keygrouping_producer.sources.times import AUTO, in_words

log = logging.getLogger(__name__)


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
    file = File(
        workload.file,
        workload.key,
        workload.time_field,
        workload.time_format,
        delimiter=workload.delimiter,
        most_bytes=most_bytes,
    )
    if workload.time_field is not None and workload.time_format == AUTO:
        log.info("%s: field %r is read as %s", workload.file, workload.time_field, in_words(file.time_format))
    return file
