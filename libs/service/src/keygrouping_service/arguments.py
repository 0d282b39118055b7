"""The command line of services: all they know there is `--help` and `--version`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from keygrouping.version import version

from keygrouping_service.settings import PREFIX


def take_no_arguments(command: str, arguments: Sequence[str] | None = None) -> None:
    """Answers `--help` and `--version` and ends; ends with 2 on any other argument."""
    parser = argparse.ArgumentParser(
        prog=command,
        description=f"Runs until SIGTERM or SIGINT. All settings come from the environment, {PREFIX}...",
        allow_abbrev=False,
    )
    add_version(parser)
    parser.parse_args(arguments)


def add_version(parser: argparse.ArgumentParser) -> None:
    """Adds `--version`."""
    parser.add_argument("--version", action="version", version=f"keygrouping {version()}")
