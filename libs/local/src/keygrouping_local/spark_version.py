"""Which Spark is installed: its connector and what that needs differ from version to version."""

from importlib.metadata import PackageNotFoundError, version

DEFAULT = "4.2"
"""The Spark of the lock file of Python packages."""


def spark_version() -> str:
    """Major and minor number of the pyspark that would be imported, such as 4.2."""
    try:
        return ".".join(version("pyspark").split(".")[:2])
    except PackageNotFoundError:
        return DEFAULT
