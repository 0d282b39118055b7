"""Which version of keygrouping this is."""

from functools import cache
from importlib import metadata


@cache
def version() -> str:
    """The version of the installed library, which is that of all our packages; `unknown` without an installation."""
    try:
        return metadata.version("keygrouping")
    except metadata.PackageNotFoundError:
        return "unknown"
