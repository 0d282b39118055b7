"""Command `keygrouping simulate`: one grouping on one workload in virtual time."""

import argparse
import sys
from pathlib import Path

import orjson

from keygrouping import grouping
from keygrouping.cli.assignments import assign
from keygrouping.cli.inputs import declare_input, describe_input, faults_of, open_input
from keygrouping.cli.parser import OneLineParser, at_least
from keygrouping.cli.progress import progress_bar
from keygrouping.printable import printable
from keygrouping.simulate import INTERVAL, PARTITIONS, Deal, SimulatorSettings, create_sources, simulate

HELP = "send a workload through a grouping to simulated workers"
SOURCES = 5


def declare(parser: OneLineParser) -> None:
    """Add this command's arguments."""
    parser.description = (
        "Sends a workload through a grouping to simulated workers in virtual time, and shows how well the load is "
        "balanced and what that costs, per interval and over the run. Same arguments, same figures."
    )
    parser.epilog = "Settings of the simulator, for --set: " + "; ".join(
        f"{setting.name} (default {orjson.dumps(setting.default).decode()}{f' {setting.unit}' if setting.unit else ''}"
        f"): {setting.meaning}"
        for setting in SimulatorSettings.describe()
    )
    add = parser.add_argument
    add("--grouping", required=True, metavar="NAME", help=", ".join(grouping.names()))
    declare_input(parser)
    add("--workers", required=True, type=at_least(1), metavar="N", help="number of workers")
    add("--sources", type=at_least(1), default=SOURCES, metavar="S", help=f"each routes by itself; default {SOURCES}")
    add(
        "--deal",
        type=Deal,
        choices=list(Deal),
        default=Deal.KEY,
        help=f"how sources get events: by key (default), through {PARTITIONS} partitions of a topic each, which "
        "Kafka's own partitioner fills; or round-robin, as in the papers",
    )
    add("--interval", type=at_least(1), default=INTERVAL, metavar="EVENTS", help=f"and window; default {INTERVAL:,}")
    add(
        "--set",
        action="extend",
        nargs="+",
        default=[],
        metavar="key=value",
        help="a setting of the grouping, the workload (or format) or the simulator, whichever has it; or say whose: "
        "grouping.key=value, workload.key=value, simulator.key=value",
    )
    add("--plot", type=Path, metavar="FILE", help="draw the run over its events, as .png, .svg or .pdf")
    add("--json", action="store_true", help="print one JSON object instead of tables")


def run(given: argparse.Namespace) -> None:
    """Simulate what the arguments say, and show it."""
    owners = {
        "grouping": grouping.describe(given.grouping),
        "workload": describe_input(given),
        "simulator": SimulatorSettings.describe(),
    }
    settings = assign(given.set, owners)
    simulator = SimulatorSettings.of(settings["simulator"])
    sources = create_sources(given.grouping, given.workers, given.sources, settings["grouping"])
    if given.plot is not None:
        from keygrouping.cli.plot import check_plot, plot

        check_plot(given.plot)
    with progress_bar(f"{given.grouping} on {given.workload}") as bar:
        stream, progress = open_input(given, settings["workload"], bar)
        result = simulate(stream, sources, simulator, interval=given.interval, deal=given.deal, progress=progress)
    if faults := faults_of(stream):
        sys.stderr.write(printable(f"keygrouping simulate: {faults}") + "\n")
    if given.json:
        sys.stdout.write(orjson.dumps(result.to_data()).decode() + "\n")
    else:
        from keygrouping.cli.report import report

        report(result, simulator)
    if given.plot is not None:
        plot(result, given.plot)
