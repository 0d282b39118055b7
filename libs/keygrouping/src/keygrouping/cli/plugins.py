"""Commands that other packages bring, and what stands in for those of ours that are not installed."""

import argparse
from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from keygrouping.cli.faults import CommandError
from keygrouping.cli.parser import INSTALL

COMMANDS = "keygrouping.commands"
"""Group of entry points that name modules with `HELP`, `declare(parser)` and `run(given)`."""
_OURS = ("app", "redrive", "top")
"""Commands of the extra `app`."""


class _Missing:
    HELP = "needs keygrouping[app]"

    def declare(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("rest", nargs=argparse.REMAINDER)

    def run(self, _: argparse.Namespace) -> None:
        raise CommandError(f"needs the package keygrouping-app: {INSTALL} './libs/app[cli]' ./libs/kafka")


def commands() -> Mapping[str, Any]:
    """The commands by name, in their order."""
    installed = {point.name: point.load() for point in entry_points(group=COMMANDS)}
    return dict(sorted((dict.fromkeys(_OURS, _Missing()) | installed).items()))
