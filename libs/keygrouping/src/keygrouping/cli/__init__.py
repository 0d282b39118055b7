"""Command `keygrouping`: the library from a terminal. What it shows needs the extra `keygrouping[cli]`."""

import os
import sys
from collections.abc import Sequence
from typing import Any

from keygrouping.cli import audit, inspect, plugins, simulate
from keygrouping.cli.faults import FAULTS, CommandError
from keygrouping.cli.parser import INSTALL, OneLineParser
from keygrouping.version import add_version

_COMMANDS = {"simulate": simulate, "inspect": inspect, "audit": audit}
"""Modules with `HELP`, `declare(parser)` and `run(given)` by name."""
_EXTRA = ("matplotlib", "rich")


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command; wrong arguments end it with exit code 2, and a line on stderr for each fault."""
    parser = OneLineParser(prog="keygrouping", description=__doc__)
    known: dict[str, Any] = {**_COMMANDS, **plugins.commands()}
    commands = parser.add_subparsers(dest="command", required=True, metavar="{" + ",".join(known) + "}")
    add_version(parser)
    parsers = {name: commands.add_parser(name, help=command.HELP) for name, command in known.items()}
    for name, command in known.items():
        command.declare(parsers[name])
        add_version(parsers[name])
    given = parser.parse_args(arguments)
    chosen = parsers[given.command]
    try:
        known[given.command].run(given)
        sys.stdout.flush()
    except CommandError as error:
        chosen.refuse(error.args)
    except FAULTS as error:
        chosen.error(str(error))
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package not in _EXTRA:
            raise
        chosen.error(f"needs the package {package}: {INSTALL}")
    except BrokenPipeError:  # the reader, such as `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except KeyboardInterrupt:
        sys.exit(130)
