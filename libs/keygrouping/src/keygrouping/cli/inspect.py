"""Command `keygrouping inspect`: what the keys of a topic or file are like, and which grouping suits them."""

import argparse
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from keygrouping import workload
from keygrouping.cli.assignments import assign
from keygrouping.cli.faults import CommandError, Faults
from keygrouping.cli.parser import INSTALL, LAST_PORT, OneLineParser, at_least
from keygrouping.cli.progress import Bar, progress_bar
from keygrouping.printable import printable, printable_json
from keygrouping.workload.stream import WorkloadError

if TYPE_CHECKING:
    from keygrouping.inspection import Extraction, Inspection, KeyNaming, Reading, Report

HELP = "report the skew of a topic or file, and what each grouping would give; only reads"
READERS = "keygrouping.readers"
"""Group of entry points that open a reading of another kind than a file."""
EXPORTERS = "keygrouping.exporters"
"""Group of entry points that watch a topic and serve what they find."""
SALT = "KEYGROUPING_INSPECT_SALT"
SALT_FILE = "KEYGROUPING_INSPECT_SALT_FILE"
"""Environment variable with the key of hashed keys: what stands on the command line is in the shell's history."""
WORKERS = (4, 8, 16)
_USUAL = "key, pkg, w-choices, dkg, level-fill, shuffle"
_TOP = 20
_INTERVAL = 50_000
_EVERY = 5
_PLANS = 10
_WINDOW = 900
_RECORD = "record"


def declare(parser: OneLineParser) -> None:
    """Add this command's arguments."""
    parser.description = (
        "Reads a Kafka topic or a file and shows how skewed its keys are, what each grouping would give on this very "
        "traffic, and which one suits it. It never writes: no group, no offset, no topic. "
        "KEYGROUPING_SECURITY_PROTOCOL, KEYGROUPING_SASL_... and KEYGROUPING_SSL_... say how to reach a Kafka with "
        "TLS and passwords, as for the services."
    )
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--topic", metavar="NAME", help="an existing topic; needs keygrouping-service")
    source.add_argument("--file", type=Path, metavar="FILE", help="plain, gzip or bzip2")
    add = parser.add_argument
    add(
        "--bootstrap-servers",
        metavar="HOST:PORT",
        help="brokers of the topic, by commas; default KEYGROUPING_BOOTSTRAP_SERVERS",
    )
    add("--format", metavar="FORMAT", help=f"of the file, if not by its name: {', '.join(workload.formats())}")
    add("--set", action="extend", nargs="+", default=[], metavar="key=value", help="a setting of the file's format")
    add("--key", metavar="FROM", help="record (default of a topic), header=NAME, field=NAME, field=/JSON/POINTER")
    add("--weight", default="1", metavar="FROM", help="1 (default), size, field=NAME, field=/JSON/POINTER")
    add("--workers", type=at_least(1), nargs="+", default=list(WORKERS), metavar="W", help="to try; default 4 8 16")
    add("--groupings", nargs="+", metavar="NAME", help=f"to try; default {_USUAL}; all: all that can be compared")
    add(
        "--interval",
        type=at_least(32),
        default=_INTERVAL,
        metavar="EVENTS",
        help=f"between two plans, and points of the trend; default {_INTERVAL:,}",
    )
    add("--sample", type=at_least(0), metavar="N", help="offsets of the topic to read, spread evenly; default: all")
    add("--follow", action="store_true", help="continue with new records, until Ctrl-C")
    add(
        "--every",
        type=at_least(1),
        metavar="SECONDS",
        help=f"between two reports with --follow; default {_EVERY}, with --metrics-port {_PLANS}",
    )
    add(
        "--metrics-port",
        type=at_least(0, LAST_PORT),
        metavar="PORT",
        help="with --follow: serve /metrics and /advice instead of reports; 0 takes a free port",
    )
    add(
        "--window",
        type=at_least(1),
        metavar="SECONDS",
        help=f"with --metrics-port: seconds that the figures cover; default {_WINDOW}",
    )
    add("--key-labels", action="store_true", help="with --metrics-port: series with the names of the heaviest keys")
    add("--top", type=at_least(1), default=_TOP, metavar="K", help=f"keys to show; default {_TOP}")
    add("--hash-keys", action="store_true", help="show keyed hashes instead of keys")
    salt = f"key of these hashes, for the same ones again; default: {SALT}, the file {SALT_FILE}, or random"
    add("--salt", metavar="TEXT", help=salt)
    add("--json", action="store_true", help="print one JSON object instead of tables; with --follow one per report")
    add("--html", type=Path, metavar="FILE", help="write a page with diagrams, which needs no other file")


def run(given: argparse.Namespace) -> None:
    """Inspect what the arguments say, and show it."""
    from keygrouping.inspection import Inspection, KeyNaming

    asked = _asked(given)
    naming = KeyNaming(hashed=given.hash_keys, salt=_salt(given.salt))
    workers = list(dict.fromkeys(given.workers))
    if given.metrics_port is not None:
        sys.exit(_export(given, asked.extraction, naming, workers))
    inspection = Inspection(asked.groupings, workers, naming, given.interval)
    with progress_bar(f"reading {given.topic or given.file}") as bar:
        reading = _open(given, asked.extraction, bar)
        _read(given, inspection, reading)
    if not inspection.events:
        raise CommandError(_nothing(reading))
    _show(given, inspection.report(reading, given.top), again=given.follow)


@dataclass(frozen=True)
class _Asked:
    """What some of the arguments stand for."""

    extraction: "Extraction"
    groupings: Sequence[tuple[str, Mapping[str, object]]]


def _asked(given: argparse.Namespace) -> _Asked:
    """CommandError names all faults of the arguments that can be told before anything is read."""
    from keygrouping.inspection import USUAL, Extraction, groupings

    faults = Faults()
    with faults.held():
        if found := list(_faults(given)):
            raise CommandError(*found)
    with faults.held():
        extraction = Extraction.parsed(given.key or _RECORD, given.weight)
    with faults.held():
        wanted = groupings(given.groupings or USUAL)
    faults.end()
    return _Asked(extraction, wanted)


def _faults(given: argparse.Namespace) -> Iterator[str]:
    """Arguments that don't go together."""
    yield from _faults_of_source(given)
    if given.metrics_port is not None:
        yield from _faults_of_export(given)
    for option in ("window", "key_labels"):
        if given.metrics_port is None and getattr(given, option):
            yield f"--{option.replace('_', '-')}: only with --metrics-port"
    if given.every is not None and not given.follow and given.metrics_port is None:
        yield "--every: only with --follow or --metrics-port"
    if given.salt is not None and not given.hash_keys:
        yield "--salt: only with --hash-keys"
    if given.html is not None and not given.html.absolute().parent.is_dir():
        yield f"--html {given.html}: there is no folder {given.html.absolute().parent}"


def _faults_of_source(given: argparse.Namespace) -> Iterator[str]:
    """What does not go together where it says what is read, as sentences."""
    for option in ("follow", "sample", "bootstrap_servers"):
        if given.file is not None and getattr(given, option) not in (None, False):
            yield f"--{option.replace('_', '-')}: only with --topic; a file is read whole"
    for option in ("format", "set"):
        if given.topic is not None and getattr(given, option):
            yield f"--{option}: only with --file"
    if given.sample == 0 and not given.follow:
        yield "--sample 0: reads nothing; add --follow to begin with what comes, or take a larger sample"


def _faults_of_export(given: argparse.Namespace) -> Iterator[str]:
    """What does not go together with an exporter, as sentences."""
    if not given.follow:
        yield "--metrics-port: shows what comes: add --follow, and --topic"
    unused = {"sample": None, "groupings": None, "json": False, "html": None, "interval": _INTERVAL}
    for option, usual in unused.items():
        if getattr(given, option) != usual:
            yield f"--{option}: not with --metrics-port, which shows what comes, by key and level-fill"
    if given.key_labels and given.hash_keys:
        yield "--key-labels: not with --hash-keys; leave one of them out"
    if (given.window or _WINDOW) < (given.every or _PLANS):
        yield "--window: at least as long as --every"


def _export(given: argparse.Namespace, extraction: "Extraction", naming: "KeyNaming", workers: Sequence[int]) -> int:
    """Serve metrics and advice until a signal; gives the exit code."""
    from keygrouping.inspection import Wanted

    wanted = Wanted(
        topic=given.topic,
        extraction=extraction,
        naming=naming,
        workers=workers,
        window=given.window or _WINDOW,
        every=given.every or _PLANS,
        top=given.top,
        key_labels=given.key_labels,
    )
    code: int = _loaded(EXPORTERS)(wanted, bootstrap_servers=given.bootstrap_servers, port=given.metrics_port)
    return code


def _open(given: argparse.Namespace, extraction: "Extraction", bar: Bar) -> "Reading":
    if given.topic is not None:
        reading: Reading = _loaded(READERS)(
            given.topic,
            extraction,
            bootstrap_servers=given.bootstrap_servers,
            sample=given.sample,
            follow=given.follow,
            progress=bar,
        )
        return reading
    return _open_file(given, extraction, bar)


def _open_file(given: argparse.Namespace, extraction: "Extraction", bar: Bar) -> "Reading":
    from keygrouping.inspection.files import BY_EXTRACTION, CSV, JSON_LINES, format_of, open_file

    format = format_of(given.file, given.format)
    described = [] if format == JSON_LINES else workload.describe_format(format)
    free = [each for each in described if format != CSV or each.name not in BY_EXTRACTION]
    return open_file(given.file, format, extraction, assign(given.set, {format: free})[format], bar)


def _loaded(group: str) -> Callable[..., Any]:
    """What does that for Kafka; CommandError names the package that brings it, and its folder in the repository."""
    found = list(entry_points(group=group, name="kafka"))
    if not found:
        raise CommandError(f"--topic: needs the package keygrouping-service: {INSTALL} ./libs/kafka ./libs/service")
    loaded: Callable[..., Any] = found[0].load()
    return loaded


def _salt(given: str | None) -> str | None:
    """The salt of hashed names: the option, the environment or a file that it names; None: a random one."""
    if given is not None:
        return given
    if file := os.environ.get(SALT_FILE):
        try:
            return Path(file).read_text().strip()
        except (OSError, ValueError) as error:
            raise CommandError(f"{SALT_FILE}: {error}") from None
    return os.environ.get(SALT) or None


def _read(given: argparse.Namespace, inspection: "Inspection", reading: "Reading") -> None:
    """Take in all there is; with --follow until Ctrl-C, with a report now and then."""
    every = given.every or _EVERY
    due = time.monotonic() + every
    try:
        with closing(reading.batches()) as batches:
            for batch in batches:
                inspection.add(batch)
                if given.follow and time.monotonic() >= due:
                    _show_now(given, inspection, reading)
                    due = time.monotonic() + every
    except KeyboardInterrupt:
        if not given.follow:
            raise
    except WorkloadError:
        if not given.hash_keys:
            raise
        raise CommandError(f"file {given.file}: can't be read as asked; why is told without --hash-keys") from None


def _show_now(given: argparse.Namespace, inspection: "Inspection", reading: "Reading") -> None:
    """The report so far; before the first event a line on stderr if nobody answers."""
    if inspection.events:
        _show(given, inspection.report(reading, given.top), again=True)
    elif reading.silence is not None:
        sys.stderr.write(printable(f"keygrouping inspect: {reading.silence}") + "\n")
        sys.stderr.flush()


def _nothing(reading: "Reading") -> str:
    left_out = ", ".join(f"{reason}: {count:,}" for reason, count in reading.left_out.items())
    if left_out:
        return f"{reading.kind} {reading.name}: none of its records can be used ({left_out}); choose another --key"
    return f"{reading.kind} {reading.name} holds no events"


def _show(given: argparse.Namespace, report: "Report", *, again: bool = False) -> None:
    """The report, as it was asked for; `again`: it takes the place of one before."""
    from keygrouping.inspection.advice import advise, warnings
    from keygrouping.inspection.stages import advise_stages

    if given.html is not None:
        _write_page(given.html, report)
    if given.json:
        advice = {
            "advice": [each.to_data() for each in advise(report)],
            "stages": [each.to_data() for each in advise_stages(report)],
            "warnings": warnings(report),
        }
        sys.stdout.write(printable_json(orjson.dumps({**report.to_data(), **advice}).decode()) + "\n")
        sys.stdout.flush()
    else:
        from keygrouping.cli.inspect_tables import show

        show(report, again=again)


def _write_page(path: Path, report: "Report") -> None:
    from keygrouping.cli.inspect_page import page

    try:
        path.write_text(page(report), encoding="utf-8")
    except OSError as error:
        raise CommandError(f"--html {path}: {error.strerror}") from error
