"""What both commands do with wrong arguments, and when they are interrupted."""

import argparse
import sys
from collections.abc import Callable, Sequence

from keygrouping.cli.parser import OneLineParser

from keygrouping_experiments.registry import ExperimentError


def run_command(
    parser: OneLineParser, run: Callable[[argparse.Namespace], None], arguments: Sequence[str] | None
) -> None:
    """Runs what the arguments say; wrong ones end the process with exit code 2, and a line on stderr for each fault."""
    given = parser.parse_args(arguments)
    try:
        run(given)
    except ExperimentError as error:
        parser.error(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
