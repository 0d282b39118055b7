"""Command `keygrouping redrive`: an app's dead letters go back to where they came from."""

from __future__ import annotations

import argparse
import asyncio
import logging
import sys
from collections.abc import Iterator

from keygrouping.printable import printable

from keygrouping_app.commands.target import declare_target, target_of
from keygrouping_app.faults import faults_told
from keygrouping_app.handlers import AppError
from keygrouping_app.redrive import Choice, Report

HELP = "send an app's dead letters again, each once"


def declare(parser: argparse.ArgumentParser) -> None:
    """Adds this command's arguments."""
    parser.description = (
        "Sends the dead letters of an App again to the partitions they came from, with key, value, headers and time "
        "as they were and the header keygrouping-redriven, which names the dead letter. What was sent and the receipt "
        "of it, in the topic of dead letters, are one transaction, so that each is sent once, however often this "
        "runs. What is left can be sent later."
    )
    declare_target(parser)
    add = parser.add_argument
    add("--reason", nargs="+", action="extend", default=[], metavar="WORD", help="only those that failed by this")
    add("--topic", nargs="+", action="extend", default=[], metavar="NAME", help="only those that came from it")
    add("--digest", nargs="+", action="extend", default=[], metavar="HEX", help="only failures at this place of code")
    add("--dry-run", action="store_true", help="send nothing: only show how many there are, by reason and digest")


def run(given: argparse.Namespace) -> None:
    """Redrives what the arguments say, and shows how many."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    with faults_told("redrive"):
        app = target_of(given)
        app.check()
        from aiokafka.errors import KafkaError

        from keygrouping_app.kafka.redriving import Redriving

        choice = Choice(given.reason, given.topic, given.digest)
        try:
            report = asyncio.run(Redriving(app.settings(), choice).run(dry=given.dry_run))
        except (KafkaError, OSError) as error:
            raise AppError([f"{error!r}; what was committed stays, run it again for the rest"]) from error
    sys.stdout.writelines(f"{line}\n" for line in lines(report, dry=given.dry_run))


def lines(report: Report, *, dry: bool) -> Iterator[str]:
    """The report for people: the most frequent first."""
    yield f"{report.chosen.total():,} dead letters {'to send again' if dry else 'sent again'}"
    for kind, count in report.chosen.most_common():
        reason, digest, topic = kind
        text = f"{reason:14} {digest or '-':12} {topic}: {report.examples[kind]}"
        yield f"{count:9,}  {printable(text)}"
    if report.left:
        yield f"{report.left.total():,} left"
        yield from (f"{count:9,}  {why}" for why, count in report.left.most_common())
