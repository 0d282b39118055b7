"""Streams of keys: generated with a known skew, or read from a dump."""

from keygrouping.workload.countries import COUNTRIES, HOT_COUNTRY
from keygrouping.workload.dump import BadLines, Dump, Progress
from keygrouping.workload.formats import describe_format, formats, open_dump
from keygrouping.workload.registry import PATTERN, describe, names, workload
from keygrouping.workload.stream import Chunk, Workload, WorkloadError
from keygrouping.workload.table import KeyTable

__all__ = [
    "COUNTRIES",
    "HOT_COUNTRY",
    "PATTERN",
    "BadLines",
    "Chunk",
    "Dump",
    "KeyTable",
    "Progress",
    "Workload",
    "WorkloadError",
    "describe",
    "describe_format",
    "formats",
    "names",
    "open_dump",
    "workload",
]
