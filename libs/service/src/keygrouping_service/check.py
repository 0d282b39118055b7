"""Whether programs take their settings, before any of them starts: the first step of a deployment.

`python -m keygrouping_service.check NAME MODULE:CLASS --faults FILE` checks the environment against a program's class
of settings and adds what is wrong to a file; with `--last` it tells all that stands in the file, and ends with 2 if
there is anything. So several programs, each with its own environment and image, end in one message.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence
from pathlib import Path

from keygrouping.version import add_version
from pydantic import ValidationError

from keygrouping_service.settings import EXIT_SETTINGS, ServiceSettings, describe_faults

_HEAD = "wrong settings (KEYGROUPING_ROUTER_MAX_BATCH is the chart's value router.settings.maxBatch, and so on):"


def faults_of(settings_class: type[ServiceSettings]) -> list[str]:
    """What is wrong with a program's environment, a line each."""
    try:
        settings_class()
    except ValidationError as error:
        return list(describe_faults(settings_class, error))
    return []


def _class_of(place: str) -> type[ServiceSettings]:
    module, _, name = place.partition(":")
    found: type[ServiceSettings] = getattr(importlib.import_module(module), name)
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Checks one program, or with `--last` tells of all; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m keygrouping_service.check", description=__doc__)
    add_version(parser)
    parser.add_argument("name", help="what the faults are told under, such as router")
    parser.add_argument("settings", help="class of the settings, such as keygrouping_router.settings:RouterSettings")
    parser.add_argument("--faults", type=Path, required=True, help="file that the programs share")
    parser.add_argument("--last", action="store_true", help="tell what all of them have found")
    options = parser.parse_args(arguments)
    if not options.faults.exists():
        options.faults.touch()
        options.faults.chmod(0o666)  # The next program's image may have another user.
    with options.faults.open("a") as file:
        file.writelines(f"{options.name}: {fault}\n" for fault in faults_of(_class_of(options.settings)))
    if not options.last:
        return 0
    # A fault of a shared setting is one, whoever has found it.
    found = list(dict.fromkeys(options.faults.read_text().splitlines()))
    if not found:
        return 0
    sys.stdout.write("\n".join([_HEAD, *found, ""]))
    return EXIT_SETTINGS


if __name__ == "__main__":
    sys.exit(main())
