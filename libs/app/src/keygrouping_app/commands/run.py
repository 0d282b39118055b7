"""Command `keygrouping app`: an app runs as a member of its group."""

from __future__ import annotations

import argparse
import os
import sys

from keygrouping_app.app import App
from keygrouping_app.commands.target import declare_target, target_of
from keygrouping_app.faults import faults_told
from keygrouping_app.handlers import all_done
from keygrouping_app.logs import set_up_logging

HELP = "run your own functions on topics: module:app"


def declare(parser: argparse.ArgumentParser) -> None:
    """Adds this command's arguments."""
    parser.description = (
        "Runs an App as a member of its consumer group, until SIGTERM or SIGINT: then what runs ends, all is "
        "committed, and the group is left. Start as many as you like; they share the partitions. Variables of the "
        "environment go over what the App says: see docs/app.md. Exit code: 2 if the app can't run, with a line for "
        "each fault."
    )
    declare_target(parser)
    paths = "/metrics, /healthz, /readyz, /keys, /grouping and /state"
    parser.add_argument("--port", type=int, help=f"of {paths}; default: the App's")
    parser.add_argument("--check", action="store_true", help="only say whether the app could run, without Kafka")


def run(given: argparse.Namespace) -> None:
    """Runs the app that the arguments name."""
    found: list[App] = []
    with faults_told("app"):
        # Before the module is imported, which may log, too.
        all_done(lambda: set_up_logging(os.environ), lambda: found.append(target_of(given)))
        (app,) = found
        if given.port is not None:
            app.port = given.port
        if given.check:
            app.check()
            sys.stdout.write(f"{given.app} can run, as group {app.name}\n")
        else:
            app.run()
