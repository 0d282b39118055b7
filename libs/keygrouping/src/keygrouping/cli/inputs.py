"""The stream that a command's arguments `--workload`, `--format`, `--events` and `--seed` name."""

import argparse
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from keygrouping import workload
from keygrouping.cli.faults import CommandError
from keygrouping.cli.parser import OneLineParser, at_least
from keygrouping.cli.progress import Bar
from keygrouping.grouping import Description
from keygrouping.workload import Dump, Workload

EVENTS = 1_000_000


def declare_input(parser: OneLineParser) -> None:
    """Add the arguments."""
    add = parser.add_argument
    names = ", ".join(workload.names())
    add("--workload", required=True, metavar="NAME", help=f"{names}; or a file, with --format")
    add("--format", metavar="FORMAT", help=f"what the file holds: {', '.join(workload.formats())}")
    add("--events", type=at_least(1), metavar="N", help=f"default {EVENTS:,}; of a file all")
    add("--seed", type=at_least(0), default=0, metavar="N", help="of a workload that is no file; default 0")


def describe_input(given: argparse.Namespace) -> Sequence[Description]:
    """The settings of the workload, or of the file's format."""
    if given.format is not None:
        return workload.describe_format(given.format)
    if given.workload not in workload.names() and Path(given.workload).is_file():
        choices = ", ".join(workload.formats())
        raise CommandError(f"--workload {given.workload}: a file needs its --format; choose from {choices}")
    return workload.describe(given.workload)


def open_input(
    given: argparse.Namespace, settings: Mapping[str, object], bar: Bar
) -> tuple[Workload, Callable[[int], None] | None]:
    """The stream, and what has to be told how many of its events are done (None: it tells the bar by itself)."""
    if given.format is not None:
        return workload.open_dump(given.workload, given.format, settings, given.events, bar), None
    events = EVENTS if given.events is None else given.events
    return workload.workload(given.workload, events, given.seed, settings), lambda done: bar(done, events)


def faults_of(stream: Workload) -> str | None:
    """What was wrong in a file that was read, in one line."""
    if not isinstance(stream, Dump) or not stream.bad.count:
        return None
    bad = stream.bad
    return f"{bad.count:,} bad lines left out; the first is line {bad.first_line}: {bad.first_reason}"
