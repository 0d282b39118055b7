"""Finds a Java that the broker and Spark can run on, or says what to install."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from keygrouping_local.errors import LocalError

MINIMUM = 17
SPARK_SUPPORTED = (17, 21)
_FIX = "install a JDK 17 or 21 (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME to one"


@dataclass(frozen=True)
class Java:
    """A Java runtime: path of its `java` command and its feature version (17, 21, ...)."""

    path: Path
    version: int

    @property
    def home(self) -> Path:
        """The folder that JAVA_HOME would name."""
        return self.path.resolve().parent.parent


def find_java(environment: Mapping[str, str] = os.environ) -> Java:
    """Returns the Java of JAVA_HOME, else the first on PATH; raises LocalError if there is none of at least 17."""
    found = _command(environment)
    if found is None:
        raise LocalError(f"Java is missing: {_FIX}")
    version = _version(found)
    if version < MINIMUM:
        raise LocalError(f"{found} is Java {version}, too old (Kafka and Spark need 17 or newer): {_FIX}")
    return Java(found, version)


def require_spark_java(java: Java) -> None:
    """Raises LocalError unless Spark 4 supports this Java."""
    if java.version not in SPARK_SUPPORTED:
        raise LocalError(
            f"{java.path} is Java {java.version}, which Spark 4 does not support: {_FIX}, or use --runner native"
        )


def _command(environment: Mapping[str, str]) -> Path | None:
    home = environment.get("JAVA_HOME")
    if home:
        command = Path(home) / "bin" / "java"
        if not os.access(command, os.X_OK):
            raise LocalError(f"JAVA_HOME is {home}, but there is no {command}: correct or unset JAVA_HOME")
        return command
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    return Path(on_path) if on_path else None


def _version(command: Path) -> int:
    try:
        answer = subprocess.run([command, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise LocalError(f"{command} does not run ({error}): {_FIX}") from error
    match = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    if match is None:
        raise LocalError(f"{command} -version tells no version: {_FIX}")
    return int(match[1])
