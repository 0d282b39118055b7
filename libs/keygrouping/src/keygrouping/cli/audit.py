"""Command `keygrouping audit`: whether every event of a running pipeline counts once, from what its topics hold."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from importlib.metadata import entry_points
from typing import Any

from keygrouping.cli.faults import CommandError
from keygrouping.cli.parser import INSTALL, OneLineParser, at_least
from keygrouping.partial import dump
from keygrouping.printable import printable, printable_json

HELP = "prove that every event of a pipeline is in the results, late or a dead letter, once; only reads"
AUDITORS = "keygrouping.auditors"
"""Group of entry points that compare receipts with what became of the events."""
DIFFERS = 1
"""Exit code if a range or a window differs."""
NOTHING = 2
"""Exit code if no window could be recounted, as if nothing could be compared at all."""
_EVERY = 5
_LIMIT = 20
_LEAST_SHARE = 1e-6
_LONGEST = 300

Report = dict[str, Any]


def declare(parser: OneLineParser) -> None:
    """Add this command's arguments."""
    parser.description = (
        "Compares the routers' receipts with results, late events and dead letters, and shows which ranges of the "
        "input and which windows are proven, which differ and by how many events, and which are open yet. It needs no "
        "observer and writes nothing. Other names of topics, TLS and passwords come from the environment, as for the "
        "services: KEYGROUPING_RECEIPTS_TOPIC, KEYGROUPING_SASL_... With --recount it counts the events again, and "
        "compares each value of the results. Exit code: 1 if anything differs, 2 if nothing could be compared."
    )
    add = parser.add_argument
    add("--bootstrap-servers", metavar="HOST:PORT", help="by commas; default KEYGROUPING_BOOTSTRAP_SERVERS")
    add("--application", metavar="NAME", help="default KEYGROUPING_APPLICATION, or keygrouping")
    add("--job", metavar="JSON", help="the pipeline's job, or its file; default KEYGROUPING_JOB")
    add("--once", action="store_true", help="compare once and end; otherwise continue until Ctrl-C")
    add("--every", type=at_least(1), default=_EVERY, metavar="SECONDS", help=f"between two looks; default {_EVERY}")
    add("--limit", type=at_least(1), default=_LIMIT, metavar="N", help=f"windows and ranges to show; default {_LIMIT}")
    add(
        "--recount",
        type=_share,
        nargs="?",
        const=1.0,
        metavar="SHARE",
        help="compare once, and count the newest proven windows again from the input: a million events of this share "
        "of the keys; default 1, of all keys",
    )
    add("--json", action="store_true", help="print one JSON object a line instead of text")


def run(given: argparse.Namespace) -> None:
    """Audit what the arguments say; ends with `DIFFERS` if anything differs, `NOTHING` if a recount had no window."""
    code, shown = 0, ""
    reports = _auditor()(
        bootstrap_servers=given.bootstrap_servers,
        application=given.application,
        job=given.job,
        once=given.once,
        every=given.every,
        limit=given.limit,
        share=given.recount,
    )
    try:
        with closing(reports):
            for report in reports:
                code = _code(report)
                text = _as_json(report) if given.json else "".join(f"{printable(line)}\n" for line in lines(report))
                if text != shown:
                    sys.stdout.write(f"\n{text}" if shown and not given.json else text)
                    sys.stdout.flush()
                shown = text
    except KeyboardInterrupt:
        if given.once or given.recount is not None:
            raise
    if code:
        sys.stdout.flush()
        sys.exit(code)


def _code(report: Report) -> int:
    if report["verdict"] == "differs":
        return DIFFERS
    recount = report.get("recount")
    return NOTHING if recount and not recount["equal"] else 0


def _share(text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not _LEAST_SHARE <= share <= 1:
        raise argparse.ArgumentTypeError(f"must be a number from {_LEAST_SHARE:g} to 1, not {text!r}")
    return share


def _auditor() -> Callable[..., Any]:
    found = list(entry_points(group=AUDITORS, name="kafka"))
    if not found:
        packages = "./libs/kafka ./libs/service ./services/observer"
        raise CommandError(f"needs the package keygrouping-observer: {INSTALL} {packages}")
    loaded: Callable[..., Any] = found[0].load()
    return loaded


def _as_json(report: Report) -> str:
    return printable_json(dump(report).decode()) + "\n"


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
    if "recount" in report:
        yield from _recounted(report["recount"])
    rest = report["open_windows"], report["differing_windows"], report["differing_ranges"]
    yield "in all {} windows open, {} windows and {} ranges that differ".format(*rest)


def _recounted(recount: Report) -> Iterator[str]:
    for window in recount["windows"]:
        said = window["detail"] or f"{window['differing_keys']:,} of {window['keys']:,} keys differ"
        yield f"recount  window [{window['start']}, {window['end']}) ms: {window['verdict']}: {said}"
        for found in window["differences"]:
            values = f"counted {_short(found['recounted'])}, in results {_short(found['found'])}"
            yield f"         key {_short(found['key'])}: {found['aggregate'] or 'events'}: {values}"
    counts = recount["equal"], recount["differing"], sum(recount["not_recounted"].values())
    yield "recount of {:g} of the keys: {:,} windows equal, {:,} different, {:,} not recounted".format(
        recount["share"], *counts
    )


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def _range(entry: Report) -> str:
    return f"partition {entry['partition']}, offsets [{entry['first']}, {entry['after']})"
