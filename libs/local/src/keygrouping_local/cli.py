"""Command `keygrouping-run`: the whole pipeline on this machine."""

import argparse
import asyncio
import logging
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson
from aiokafka.errors import KafkaError
from keygrouping import grouping
from keygrouping.cli.faults import CommandError, Faults
from keygrouping.cli.parser import LAST_PORT, OneLineParser, at_least
from keygrouping.job import JobError, JobSpec
from keygrouping.printable import printable
from keygrouping.version import add_version
from keygrouping_producer.sources.times import AUTO, TIME_FORMATS
from keygrouping_service.errors import Fatal
from keygrouping_service.settings import PREFIX, ServiceSettings, describe_faults
from pydantic import ValidationError
from rich.console import Console

from keygrouping_local.errors import LocalError
from keygrouping_local.jars import default_jars_dir
from keygrouping_local.paths import data_dir
from keygrouping_local.run import MAX_WORKERS, Options, Run
from keygrouping_local.workloads import FLIGHT_KEYS, KNOWN, FileOptions, workload

_LIVE_RATE = 2000.0
_WORKERS = 4


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command; exits with 0 if all went well, 1 on differences or faults, 2 on wrong options."""
    parser = _parser()
    given = parser.parse_args(arguments)
    logging.basicConfig(level=logging.ERROR, format="%(name)s: %(message)s")
    # A broker that is not there yet, or not any more, is told by our own one line.
    logging.getLogger("aiokafka").setLevel(logging.CRITICAL)
    try:
        equal = asyncio.run(_run(_options(given)))
    except CommandError as error:
        parser.refuse(error.args)
    except (LocalError, Fatal) as error:
        sys.exit(_printable(f"keygrouping: {error}"))
    except KafkaError as error:
        sys.exit(
            f"keygrouping: Kafka does not do its part: {error}; check --bootstrap-servers, the settings "
            f"{PREFIX}SECURITY_PROTOCOL, {PREFIX}SASL_... and {PREFIX}SSL_..., and the broker's log"
        )
    except ValidationError as error:
        sys.exit("\n".join(f"keygrouping: {line}" for line in describe_faults(ServiceSettings, error)))
    sys.exit(0 if equal else 1)


def _printable(message: str) -> str:
    """A message of several lines that may quote what stands in files and topics."""
    return "\n".join(map(printable, message.splitlines()))


async def _run(options: Options) -> bool:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    return await Run(options, Console(), stop).run()


def _options(given: argparse.Namespace) -> Options:
    """What to run; CommandError names all that is wrong."""
    rate = given.rate if given.rate is not None else 0.0 if given.once else _LIVE_RATE
    file = FileOptions(given.time_field, given.time_format, given.delimiter)
    faults, job = Faults(LocalError), None
    with faults.held():
        job = _job(given.job)
    with faults.held():
        replayed = workload(given.workload, given.key, file, job)
    for fault in _faults_of_combining(given):
        with faults.held():
            raise LocalError(fault)
    faults.end()
    return Options(
        workload=replayed,
        once=given.once,
        grouping=given.grouping or "level-fill",
        workers=given.workers or (1 if given.stages == "combine" else _WORKERS),
        stages=given.stages,
        rate=rate,
        runner=given.runner,
        observer=given.observer,
        bootstrap_servers=given.bootstrap_servers,
        api_port=given.api_port or 0,
        data_dir=data_dir(),
        jars_dir=default_jars_dir(),
    )


def _faults_of_combining(given: argparse.Namespace) -> Iterator[str]:
    """What can't be had without routers."""
    if given.stages != "combine":
        return
    if given.runner == "spark":
        yield "--stages combine needs --runner native: the Spark job reads what routers have routed"
    for option, value in (("--grouping", given.grouping), ("--api-port", given.api_port)):
        if value is not None:
            yield f"{option} is the router's, and --stages combine has none: leave it out, or take --stages route"


def _job(path: Path | None) -> dict[str, object] | None:
    if path is None:
        return None
    try:
        text = path.read_bytes()
        JobSpec.from_json(text)
        job: dict[str, object] = orjson.loads(text)
    except OSError as error:
        raise LocalError(f"--job {path}: {error.strerror}") from error
    except JobError as error:
        raise LocalError(f"--job {path}: " + "; ".join(str(error).splitlines())) from error
    return job


def _parser() -> OneLineParser:
    parser = OneLineParser(prog="keygrouping-run", description=__doc__)
    add_version(parser)
    parser.add_argument("--once", action="store_true", help="end with the final results, compared with the oracle")
    parser.add_argument("--workload", default="flights", metavar="NAME", help=f"{KNOWN}, or a file")
    parser.add_argument("--key", metavar="FIELD", help=f"key field of a file; for flights {', '.join(FLIGHT_KEYS)}")
    parser.add_argument("--time-field", metavar="FIELD", help="event time of a file; default: the time of writing")
    formats = f"{', '.join(TIME_FORMATS)}, or one of strptime; {AUTO}: as most of the first lines have it (default)"
    parser.add_argument("--time-format", metavar="FORMAT", help=formats)
    parser.add_argument("--delimiter", metavar="CHAR", help="between the fields of CSV, or tab; default a comma")
    parser.add_argument("--job", type=Path, metavar="FILE", help="JSON of the windows and aggregates to compute")
    names = grouping.live_names()
    about = f"default level-fill; {', '.join(names)}"
    parser.add_argument("--grouping", choices=names, metavar="NAME", help=about)
    about = f"1 to {MAX_WORKERS}, default {_WORKERS}; with --stages combine so many processes, default 1"
    parser.add_argument("--workers", type=at_least(1, MAX_WORKERS), metavar="N", help=about)
    about = "route (default), or combine: no router, native workers read the events themselves"
    parser.add_argument("--stages", default="route", choices=("route", "combine"), help=about)
    parser.add_argument("--rate", type=_rate, metavar="N", help=f"events/s, 0: no limit; default {_LIVE_RATE:.0f}")
    parser.add_argument("--runner", default="spark", choices=("spark", "native"), help="default spark")
    parser.add_argument("--observer", action="store_true", help="start the observer too: /distribution, metrics")
    parser.add_argument("--bootstrap-servers", metavar="HOST:PORT", help="a running Kafka instead of the embedded one")
    about = "of the router; default a free one"
    parser.add_argument("--api-port", type=at_least(0, LAST_PORT), metavar="PORT", help=about)
    return parser


def _rate(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate < float("inf"):
        raise argparse.ArgumentTypeError(f"must be 0 or more events per second, not {text!r}")
    return rate
