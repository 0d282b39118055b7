"""Command `keygrouping-experiment`: tables and figures of the papers, redrawn."""

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from keygrouping.cli.parser import OneLineParser, at_least
from keygrouping.cli.progress import progress_bar
from keygrouping.simulate import Deal
from keygrouping.version import version

from keygrouping_experiments.command import run_command
from keygrouping_experiments.lab import Lab
from keygrouping_experiments.model import Experiment
from keygrouping_experiments.registry import experiment, names
from keygrouping_experiments.writer import index_of, prepare, write, write_index

ALL = "all"
_STEPS = 1000


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; wrong arguments end it with exit code 2, and a line on stderr for each fault."""
    run_command(_parser(), run, arguments)


def run(given: argparse.Namespace) -> None:
    """Run what the arguments say, and write its files."""
    chosen = [experiment(name) for name in (names() if given.name == ALL else [given.name])]
    prepare(given.output)
    for each in chosen:
        _run(each, given)
    if given.name == ALL or index_of(given.output).exists():
        write_index(given.output)


def _parser() -> OneLineParser:
    parser = OneLineParser(
        prog="keygrouping-experiment",
        description=(
            "Runs an experiment of a paper with keygrouping's groupings and workloads, and writes its figures "
            "(NAME.csv), a picture (NAME.png), and a page with the published figures beside them (NAME.md). all: "
            "every experiment, and an index of them beside the folder. Same arguments, same figures, but for times."
        ),
    )
    add = parser.add_argument
    add("name", metavar="NAME", help=f"{', '.join(names())}; or {ALL}")
    add(
        "--output",
        type=Path,
        default=Path("results"),
        metavar="DIR",
        help="folder of the files; default results",
    )
    add("--events", type=at_least(1), metavar="N", help="of each stream; default: as many as the experiment wants")
    add("--seed", type=at_least(0), default=0, metavar="N", help="of the streams; default 0")
    add(
        "--deal",
        type=Deal,
        choices=list(Deal),
        help="how sources get events: by key, as topics that are partitioned by key give them, or round-robin; "
        "default: round-robin, as in the papers, and by key in this library's own experiment",
    )
    add("--version", action="version", version=f"keygrouping {version()}")
    return parser


def _run(chosen: Experiment, given: argparse.Namespace) -> None:
    events = given.events or chosen.events
    with progress_bar(chosen.name) as bar:
        lab = Lab(events, given.seed, lambda done: bar(round(_STEPS * done), _STEPS), given.deal or chosen.deal)
        outcome = chosen.run(lab)
    write(chosen, outcome, given.output, lab)
    held = sum(claim.holds for claim in outcome.claims)
    statements = f", {held} of {len(outcome.claims)} statements hold" if outcome.claims else ""
    text = given.output / f"{chosen.name}.md"
    sys.stdout.write(f"{text}: {len(outcome.comparisons)} published figures compared{statements}\n")
    sys.stdout.flush()
