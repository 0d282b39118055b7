"""The app that `module:app` names on the command line."""

from __future__ import annotations

import argparse
import importlib
import os
import sys

from keygrouping_app.app import App
from keygrouping_app.environment import BROKERS, apply
from keygrouping_app.handlers import AppError


def declare_target(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.add_argument("app", metavar="MODULE:APP", help="where the App is, such as billing:app; the folder counts")
    parser.add_argument(
        "--bootstrap-servers",
        metavar="HOST:PORT",
        help=f"brokers, by commas; default {BROKERS}, or what the App says",
    )


def target_of(given: argparse.Namespace) -> App:
    """The app, with what environment and arguments say; AppError if there is none, or they can't be used."""
    app = load(given.app)
    apply(app, os.environ)
    if given.bootstrap_servers is not None:
        app.brokers = given.bootstrap_servers
    return app


def load(target: str) -> App:
    """The app at `module:name`, of this folder or installed; AppError says what there is instead.

    What the module itself raises comes as it is.
    """
    module_name, _, name = target.partition(":")
    if not module_name or not name:
        raise AppError([f"{target!r} is no MODULE:APP: name the module and the App in it, such as billing:app"])
    if (here := os.getcwd()) not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module_name}.".startswith(f"{error.name}."):
            raise
        raise AppError([f"no module {error.name!r} in {here} or among what is installed"]) from None
    found = getattr(module, name, None)
    if isinstance(found, App):
        return found
    apps = sorted(each for each, value in vars(module).items() if isinstance(value, App))
    there = (
        f"it has {', '.join(f'{module_name}:{each}' for each in apps)}" if apps else "it has no App at its top level"
    )
    what = "is missing" if found is None else f"is no App but {type(found).__name__}"
    raise AppError([f"{target} {what}; {there}"])
