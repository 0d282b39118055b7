"""One Spark at a time for the tests of a process: a second one would go on with the settings of the first one's JVM."""

from collections.abc import Callable

from pyspark import SparkContext
from pyspark.sql import SparkSession

_running: dict[str, SparkSession] = {}


def spark_of(owner: str, start: Callable[[], SparkSession]) -> SparkSession:
    """The session of `owner`, by `start` if it does not run; that of another owner ends, with its JVM."""
    if owner not in _running:
        end_spark()
        _running[owner] = start()
    return _running[owner]


def end_spark() -> None:
    """Ends the session that runs, if any, and its JVM."""
    while _running:
        _running.popitem()[1].stop()
        gateway = SparkContext._gateway
        assert gateway is not None, "a session that ran had a JVM"
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
        SparkContext._gateway = SparkContext._jvm = None
