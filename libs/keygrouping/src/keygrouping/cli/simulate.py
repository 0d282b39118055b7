"""Command `keygrouping simulate`: one grouping on one workload in virtual time."""

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import orjson

from keygrouping import grouping
from keygrouping.cli.assignments import assign
from keygrouping.cli.faults import Faults
from keygrouping.cli.inputs import declare_input, describe_input, faults_of, open_input
from keygrouping.cli.parser import OneLineParser, at_least
from keygrouping.cli.progress import progress_bar
from keygrouping.grouping import Description, Grouping
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
    settings = assign(given.set, _owners(given))
    simulator, sources = _parts(given, settings)
    with progress_bar(f"{given.grouping} on {given.workload}") as bar:
        stream, progress = open_input(given, settings["workload"], bar)
        result = simulate(stream, sources, simulator, interval=given.interval, deal=given.deal, progress=progress)
    if left_out := faults_of(stream):
        sys.stderr.write(printable(f"keygrouping simulate: {left_out}") + "\n")
    if given.json:
        sys.stdout.write(orjson.dumps(result.to_data()).decode() + "\n")
    else:
        from keygrouping.cli.report import report

        report(result, simulator)
    if given.plot is not None:
        from keygrouping.cli.plot import plot

        plot(result, given.plot)


def _owners(given: argparse.Namespace) -> dict[str, Sequence[Description]]:
    """Whose settings there are; CommandError names all that is unknown."""
    faults = Faults()
    owners: dict[str, Sequence[Description]] = {}
    with faults.held():
        owners["grouping"] = grouping.describe(given.grouping)
    with faults.held():
        owners["workload"] = describe_input(given)
    with faults.held():
        if given.plot is not None:
            from keygrouping.cli.plot import check_plot

            check_plot(given.plot)
    faults.end()
    return {**owners, "simulator": SimulatorSettings.describe()}


def _parts(
    given: argparse.Namespace, settings: Mapping[str, Mapping[str, object]]
) -> tuple[SimulatorSettings, Sequence[Grouping]]:
    """Simulator and sources; CommandError names all settings that are none."""
    faults = Faults()
    with faults.held():
        simulator = SimulatorSettings.of(settings["simulator"])
    with faults.held():
        sources = create_sources(given.grouping, given.workers, given.sources, settings["grouping"])
    faults.end()
    return simulator, sources
