"""The SHA-256 of every jar that is installed, kept beside the code: no repository or cache can slip in another."""

from __future__ import annotations

import hashlib
from pathlib import Path

from keygrouping_local.spark_version import DEFAULT, spark_version


def lock_of(spark: str) -> Path:
    """The lock with the connector of this Spark, such as 4.2."""
    return Path(__file__).with_name("jars.lock" if spark == DEFAULT else f"jars-spark-{spark}.lock")


LOCK = lock_of(spark_version())


def read_lock(lock: Path = LOCK) -> dict[str, str]:
    """SHA-256 in hex by the jar's path, such as `broker/kafka_2.13-4.2.2.jar`."""
    lines = (line.split() for line in lock.read_text().splitlines() if line and not line.startswith("#"))
    return {path: digest for digest, path in lines}


def digests(jars_dir: Path) -> dict[str, str]:
    """The same of the jars that are there."""
    found = {}
    for jar in sorted(jars_dir.glob("*/*.jar")):
        with jar.open("rb") as file:
            found[str(jar.relative_to(jars_dir))] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def differences(jars_dir: Path, lock: Path = LOCK) -> list[str]:
    """What is not as the lock says: a line for each jar that differs, is missing, or is not in the lock."""
    wanted, found = read_lock(lock), digests(jars_dir)
    return [
        f"{path} has SHA-256 {found.get(path, 'none: it is missing')}, not {wanted.get(path, 'any: nobody wants it')}"
        for path in sorted(wanted.keys() | found.keys())
        if wanted.get(path) != found.get(path)
    ]


def write_lock(jars_dir: Path, lock: Path = LOCK) -> None:
    """Takes the jars that are there for the right ones, after a change of versions."""
    lines = "".join(f"{digest}  {path}\n" for path, digest in digests(jars_dir).items())
    lock.write_text(f"# Made by `python -m keygrouping_local.jars --lock`, after a change of versions.\n{lines}")
