"""The command line of services: all they know there is `--help` and `--version`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from keygrouping.version import add_version

from keygrouping_service.settings import PREFIX

_ABOUT = f"Runs until SIGTERM or SIGINT. All settings come from the environment, {PREFIX}..."


def take_no_arguments(command: str, arguments: Sequence[str] | None = None, *, about: str | None = None) -> None:
    """Answers `--help`, with what the command is `about`, and `--version`, and ends; with 2 on any other argument."""
    parser = argparse.ArgumentParser(prog=command, description=about or _ABOUT, allow_abbrev=False)
    add_version(parser)
    parser.parse_args(arguments)
