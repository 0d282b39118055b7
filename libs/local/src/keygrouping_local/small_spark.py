"""Settings that let the Spark job start fast on a small machine."""

import os
import shlex
from collections.abc import Sequence
from pathlib import Path

from keygrouping_service.settings import ServiceSettings

from keygrouping_local import archives
from keygrouping_local.jars import default_jars_dir, require_jars


def spark_settings(settings: ServiceSettings, folder: Path, jars_dir: Path) -> dict[str, object]:
    """The job's own settings, by their names without prefix; `folder` holds its checkpoint.

    The JVM compiles with C1 only: first results come in half the time, at a third of the throughput that a job which
    runs for hours would reach.
    """
    return {
        "checkpoint": folder / "checkpoint",
        "jars": jars_dir / "spark",
        "progress_topic": f"{settings.application}.progress",
        "java_options": java_options(archives.reading("spark")),
        "shuffle_partitions": 2,
    }


def java_options(archive: Sequence[str]) -> str:
    """Options of a JVM that starts fast, with those for its class-data archive."""
    options = ["-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *archive]
    return " ".join(f'"{option}"' if " " in option else option for option in options)


def fast_start() -> dict[str, str]:
    """Spark's settings with which any session starts fast, without the job: the archive fits its class path only."""
    jars = require_jars("spark", default_jars_dir())
    return {
        "spark.driver.extraJavaOptions": java_options(archives.reading("spark")),
        "spark.driver.extraClassPath": os.pathsep.join(str(jar.absolute()) for jar in jars),
    }


def submit_arguments() -> str:
    """The same as PYSPARK_SUBMIT_ARGS, for programs that make a session of their own."""
    options = [f"{name}={value}" for name, value in fast_start().items()]
    return shlex.join([*(part for option in options for part in ("--conf", option)), "pyspark-shell"])
