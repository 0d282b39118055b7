"""Files as workloads: the formats by name."""

import importlib
from collections.abc import Mapping
from pathlib import Path

from keygrouping.settings import Description
from keygrouping.workload.dump import Dump, Progress, check_readable
from keygrouping.workload.format import Format
from keygrouping.workload.stream import WorkloadError

_FORMATS = {
    "twitter-election": "public_formats:TwitterElection",
    "ticker": "public_formats:Ticker",
    "wikipedia-pageviews": "public_formats:Pageviews",
    "pageviews-by-language": "public_formats:PageviewsByLanguage",
    "wikipedia-visits": "public_formats:WikipediaVisits",
    "wikibench": "public_formats:WikiBench",
    "clickstream": "public_formats:Clickstream",
    "edges": "public_formats:Edges",
    "words": "public_formats:Words",
    "nasdaq": "table_formats:Trades",
    "csv": "table_formats:Csv",
    "ndjson": "table_formats:JsonLines",
}
"""Module and class by name; imported when they are first asked for."""


def formats() -> tuple[str, ...]:
    """The names of all formats."""
    return tuple(_FORMATS)


def describe_format(format: str) -> tuple[Description, ...]:
    """The settings of a format: names, defaults, meanings, units and ranges."""
    return _class(format).describe()


def open_dump(
    path: str | Path,
    format: str,
    settings: Mapping[str, object] | None = None,
    events: int | None = None,
    progress: Progress | None = None,
) -> Dump:
    """The events of a file in one of the `formats()`. Plain, gzip and bzip2 files are told by their first bytes.

    events: at most so many of them. progress: see Progress.
    Raises WorkloadError (a ValueError) with one line for an unknown format or setting, or a file that can't be read or
    has not what is wanted; the latter while chunks are read.
    """
    if events is not None and events < 0:
        raise WorkloadError(f"file {str(path)!r}: events must not be negative, not {events}")
    try:
        layout = _class(format).of(settings or {})
    except WorkloadError:
        raise
    except ValueError as error:
        raise WorkloadError(f"format {format!r}: {error}") from error
    check_readable(Path(path))
    return Dump(Path(path), layout, events, progress)


def _class(format: str) -> type[Format]:
    if format not in _FORMATS:
        raise WorkloadError(f"unknown format {format!r}; choose from {', '.join(_FORMATS)}")
    module, _, class_name = _FORMATS[format].partition(":")
    found: type[Format] = getattr(importlib.import_module(f"keygrouping.workload.{module}"), class_name)
    return found
