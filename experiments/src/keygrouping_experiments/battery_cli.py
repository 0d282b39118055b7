"""Command `keygrouping-battery`: the streams that people have, through level-fill and its rivals."""

import argparse
import csv
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from keygrouping.cli.parser import OneLineParser, at_least
from keygrouping.simulate import Deal
from keygrouping.version import version

from keygrouping_experiments.battery import QUICK, RIVALS, STREAMS, Scope, measure
from keygrouping_experiments.battery_page import page
from keygrouping_experiments.command import run_command
from keygrouping_experiments.model import Row
from keygrouping_experiments.registry import ExperimentError
from keygrouping_experiments.writer import prepare

_HEAD = f"{'stream':<32} {'W':>4} {'S':>3}  {'grouping':<20} {'seed':>4}"
_COLUMNS = ("λ", "largest λ", "cost per window", "cost of the run", "min/avg", "steady min/avg", "efficiency")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; wrong arguments end it with exit code 2, and a line on stderr for each fault."""
    run_command(_parser(), run, arguments)


def run(given: argparse.Namespace) -> None:
    """Run what the arguments say, print each row as soon as it is there, and write the files."""
    scope = scope_of(given)
    if given.output is not None:
        prepare(given.output)
    sys.stdout.write(f"{_HEAD} " + " ".join(f"{name:>{_width(name)}}" for name in _COLUMNS) + "\n")
    rows: list[Row] = []
    for row in measure(scope):
        rows.append(row)
        figures = " ".join(f"{row[name]:>{_width(name)}.3f}" for name in _COLUMNS)
        start = f"{row['stream']:<32} {row['W']:>4} {row['S']:>3}  {row['grouping']:<20} {row['seed']:>4}"
        sys.stdout.write(f"{start} {figures}\n")
        sys.stdout.flush()
    if given.output is not None:
        _write(scope, rows, given.output)


def scope_of(given: argparse.Namespace) -> Scope:
    """What of the battery the arguments choose."""
    scope = QUICK if given.quick else Scope()
    fields = ("sources", "workers", "groupings", "seeds", "interval", "intervals")
    chosen: dict[str, Any] = {name: value for name in fields if (value := getattr(given, name)) is not None}
    streams = STREAMS if given.streams is None else tuple(each for each in STREAMS if each.name in given.streams)
    return replace(scope, streams=streams, deal=given.deal, **chosen)


def _parser() -> OneLineParser:
    parser = OneLineParser(
        prog="keygrouping-battery",
        description=(
            "Sends the battery's streams through level-fill, level-fill without plans, key and w-choices, each with "
            "the same seeds, and prints λ, replication factor, least over average load, and efficiency of each run. "
            "The streams: " + ", ".join(each.name for each in STREAMS) + "."
        ),
    )
    add = parser.add_argument
    add("--quick", action="store_true", help="one seed, fewer events, sources and workers: under two minutes")
    add("--streams", nargs="+", choices=[each.name for each in STREAMS], metavar="NAME", help="only these")
    add("--groupings", nargs="+", choices=list(RIVALS), metavar="NAME", help=f"only these of: {', '.join(RIVALS)}")
    add("--sources", nargs="+", type=at_least(1), metavar="S")
    add("--workers", nargs="+", type=at_least(1), metavar="W")
    add("--seeds", nargs="+", type=at_least(0), metavar="N")
    add("--interval", type=at_least(1), metavar="EVENTS", help="events between two plans")
    add("--intervals", type=at_least(8), metavar="N", help="of each stream")
    add("--deal", type=Deal, choices=list(Deal), default=Deal.KEY, help="how sources get events; default key")
    add("--output", type=Path, metavar="DIR", help="write battery.csv and battery.md there")
    add("--version", action="version", version=f"keygrouping {version()}")
    return parser


def _write(scope: Scope, rows: Sequence[Row], folder: Path) -> None:
    try:
        with (folder / "battery.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, rows[0], lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        (folder / "battery.md").write_text(page(scope, rows), "utf-8")
    except OSError as error:
        raise ExperimentError(f"can't write to {error.filename}: {error.strerror}") from error


def _width(name: str) -> int:
    return max(7, len(name))


if __name__ == "__main__":
    main()
