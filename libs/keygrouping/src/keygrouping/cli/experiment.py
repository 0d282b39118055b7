"""Command `keygrouping experiment`: tables and figures of the papers, drawn anew."""

import argparse
import sys
from pathlib import Path

from keygrouping.cli.parser import OneLineParser, at_least
from keygrouping.cli.progress import progress_bar
from keygrouping.experiment import Experiment, Lab, experiment, names

HELP = "draw tables and figures of the papers anew"
ALL = "all"
_STEPS = 1000


def declare(parser: OneLineParser) -> None:
    """Add this command's arguments."""
    parser.description = (
        "Runs an experiment of a paper with this library's groupings and workloads, and writes its figures (NAME.csv), "
        "a picture (NAME.png), and a text with the published figures beside them (NAME.md). all: every experiment, and "
        "a page of all texts beside the folder. Same arguments, same figures, but for times taken."
    )
    add = parser.add_argument
    add("name", metavar="NAME", help=f"{', '.join(names())}; or {ALL}")
    add(
        "--output",
        type=Path,
        default=Path("experiments"),
        metavar="DIR",
        help="folder of the files; default experiments",
    )
    add("--events", type=at_least(1), metavar="N", help="of each stream; default: as many as the experiment wants")
    add("--seed", type=at_least(0), default=0, metavar="N", help="of the streams; default 0")


def run(given: argparse.Namespace) -> None:
    """Run what the arguments say, and write its files."""
    from keygrouping.experiment.writer import page_of, prepare, write_page

    chosen = [experiment(name) for name in (names() if given.name == ALL else [given.name])]
    prepare(given.output)
    for each in chosen:
        _run(each, given)
    if given.name == ALL or page_of(given.output).exists():
        write_page(given.output)


def _run(chosen: Experiment, given: argparse.Namespace) -> None:
    from keygrouping.experiment.writer import write

    events = given.events or chosen.events
    with progress_bar(chosen.name) as bar:
        outcome = chosen.run(Lab(events, given.seed, lambda done: bar(round(_STEPS * done), _STEPS)))
    write(chosen, outcome, given.output, events, given.seed)
    held = sum(claim.holds for claim in outcome.claims)
    statements = f", {held} of {len(outcome.claims)} statements hold" if outcome.claims else ""
    text = given.output / f"{chosen.name}.md"
    sys.stdout.write(f"{text}: {len(outcome.comparisons)} published figures compared{statements}\n")
    sys.stdout.flush()
