"""Command `keygrouping audit`: whether every event of a running pipeline counts once, from what its topics hold."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.metadata import entry_points
from typing import Any

import orjson

from keygrouping.cli.parser import INSTALL, CommandError, OneLineParser, at_least
from keygrouping.printable import printable, printable_json

HELP = "prove that every event of a pipeline is in the results, late or a dead letter, once; only reads"
AUDITORS = "keygrouping.auditors"
"""Group of entry points that compare receipts with what became of the events."""
DIFFERS = 1
"""Exit code if a range or a window differs."""
_EVERY = 5
_LIMIT = 20

Report = dict[str, Any]


def declare(parser: OneLineParser) -> None:
    """Add this command's arguments."""
    parser.description = (
        "Compares the routers' receipts with results, late events and dead letters, and shows which ranges of the "
        "input and which windows are proven, which differ and by how many events, and which are open yet. It needs no "
        "observer and writes nothing. Other names of topics, TLS and passwords come from the environment, as for the "
        "services: KEYGROUPING_RECEIPTS_TOPIC, KEYGROUPING_SASL_... Exit code: 1 if anything differs, 2 if nothing "
        "could be compared."
    )
    add = parser.add_argument
    add("--bootstrap-servers", metavar="HOST:PORT", help="by commas; default KEYGROUPING_BOOTSTRAP_SERVERS")
    add("--application", metavar="NAME", help="default KEYGROUPING_APPLICATION, or keygrouping")
    add("--job", metavar="JSON", help="the pipeline's job, or its file; default KEYGROUPING_JOB")
    add("--once", action="store_true", help="compare once and end; otherwise continue until Ctrl-C")
    add("--every", type=at_least(1), default=_EVERY, metavar="SECONDS", help=f"between two looks; default {_EVERY}")
    add("--limit", type=at_least(1), default=_LIMIT, metavar="N", help=f"windows and ranges to show; default {_LIMIT}")
    add("--json", action="store_true", help="print one JSON object a line instead of text")


def run(given: argparse.Namespace) -> None:
    """Audit what the arguments say; ends with `DIFFERS` if anything differs."""
    differs, shown = False, ""
    reports = _auditor()(
        bootstrap_servers=given.bootstrap_servers,
        application=given.application,
        job=given.job,
        once=given.once,
        every=given.every,
        limit=given.limit,
    )
    try:
        with closing(reports):
            for report in reports:
                differs = report["verdict"] == "differs"
                text = _as_json(report) if given.json else "".join(f"{printable(line)}\n" for line in lines(report))
                if text != shown:
                    sys.stdout.write(f"\n{text}" if shown and not given.json else text)
                    sys.stdout.flush()
                shown = text
    except KeyboardInterrupt:
        if given.once:
            raise
    if differs:
        sys.stdout.flush()
        sys.exit(DIFFERS)


def _auditor() -> Callable[..., Any]:
    found = list(entry_points(group=AUDITORS, name="kafka"))
    if not found:
        packages = "./libs/kafka ./libs/service ./services/observer"
        raise CommandError(f"needs the package keygrouping-observer: {INSTALL} {packages}")
    loaded: Callable[..., Any] = found[0].load()
    return loaded


def _as_json(report: Report) -> str:
    return printable_json(orjson.dumps(report).decode()) + "\n"


def lines(report: Report) -> Iterator[str]:
    """The report for people: what differs stands first."""
    yield f"{report['verdict']}; windows that end until {report['proven_until'] or '-'} are compared"
    if report["proven_since"]:
        yield f"windows that start before {report['proven_since']}: unknown if they don't add up"
    for found in report["ranges"]:
        yield f"differs  input {_range(found)}: {found['kind']}, {found['events']:,} events: {found['detail']}"
    for entry in report["inputs"]:
        counted = ", ".join(f"{entry[name]:,} {name.replace('_', ' ')}" for name in ("routed", "late", "dead_letters"))
        yield f"compared input {_range(entry)}: {entry['events']:,} events: {counted}"
    for entry in report["open"]:
        yield f"open     input {_range(entry)}"
    for window in report["windows"]:
        said = (
            window["detail"]
            or f"{window['routed']['events']:,} events routed, {window['results']['events']:,} in results"
        )
        yield f"{window['verdict']:8} window [{window['start']}, {window['end']}) ms: {said}"
    rest = report["open_windows"], report["differing_windows"], report["differing_ranges"]
    yield "in all {} windows open, {} windows and {} ranges that differ".format(*rest)


def _range(entry: Report) -> str:
    return f"partition {entry['partition']}, offsets [{entry['first']}, {entry['after']})"
