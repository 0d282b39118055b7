"""Which version of keygrouping this is."""

from argparse import ArgumentParser
from functools import cache
from importlib import metadata


@cache
def version() -> str:
    """The version of the installed library, which is that of all our packages; `unknown` without an installation."""
    try:
        return metadata.version("keygrouping")
    except metadata.PackageNotFoundError:
        return "unknown"


def add_version(parser: ArgumentParser) -> None:
    """Adds `--version`."""
    parser.add_argument("--version", action="version", version=f"keygrouping {version()}")
