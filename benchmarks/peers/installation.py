"""Brings the peers into a folder of their own: an environment for each Python package, jars for Kafka Streams."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from keygrouping_local.jars import CENTRAL, default_jars_dir, require_jars
from keygrouping_local.java import find_java
from keygrouping_local.paths import tools_dir

PACKAGES = {
    "confluent-kafka": ["confluent-kafka==2.16.1"],
    "quixstreams": ["quixstreams==3.28.1"],
    "faust": ["faust-streaming==0.15.3"],
    "bytewax": ["bytewax[kafka]==0.21.1"],
}
"""Of each system that is not among the product's own dependencies."""
STREAMS = (
    "org/apache/kafka/kafka-streams/4.2.2/kafka-streams-4.2.2.jar",
    "org/rocksdb/rocksdbjni/10.1.3/rocksdbjni-10.1.3.jar",
)


@dataclass(frozen=True)
class Installation:
    """Where the peers are."""

    folder: Path

    def python(self, system: str) -> Path:
        """The interpreter that has this system."""
        return self.folder / system / "bin/python" if system in PACKAGES else Path(sys.executable)

    @property
    def java(self) -> tuple[str, ...]:
        """A JVM with Kafka Streams; the name of the main class is to follow."""
        return (str(find_java().path), "-Xmx1g", "-cp", f"{self.folder / 'classes'}:{self._class_path()}")

    @property
    def spark_jars(self) -> str:
        """Spark's connector, as Spark wants it."""
        return ",".join(jar.absolute().as_uri() for jar in require_jars("spark", default_jars_dir()))

    def install(self) -> None:
        """Installs what is missing."""
        for system, packages in PACKAGES.items():
            self._environment(system, packages)
        self._streams()

    def _environment(self, system: str, packages: list[str]) -> None:
        stamp = self.folder / system / "installed"
        wanted = "\n".join(packages)
        if stamp.exists() and stamp.read_text() == wanted:
            return
        print(f"installing {wanted}", flush=True)
        uv = tools_dir() / "bootstrap/bin/uv"
        subprocess.run([uv, "venv", "--quiet", "--clear", "--python", sys.executable, self.folder / system], check=True)
        subprocess.run([uv, "pip", "install", "--quiet", "--python", self.python(system), *packages], check=True)
        stamp.write_text(wanted)

    def _streams(self) -> None:
        jars, classes = self.folder / "jars", self.folder / "classes"
        jars.mkdir(parents=True, exist_ok=True)
        repository = os.environ.get("KEYGROUPING_LOCAL_MAVEN_REPOSITORY", CENTRAL)
        for jar in STREAMS:
            if not (jars / Path(jar).name).exists():
                print(f"downloading {Path(jar).name}", flush=True)
                partial, _ = urllib.request.urlretrieve(repository + jar)
                Path(partial).rename(jars / Path(jar).name)
        source = Path(__file__).with_name("systems") / "Streams.java"
        javac = find_java().path.with_name("javac")
        subprocess.run([javac, "-cp", self._class_path(), "-d", classes, source], check=True)

    def _class_path(self) -> str:
        own = sorted((self.folder / "jars").glob("*.jar"))
        return ":".join(str(jar.absolute()) for jar in [*own, *require_jars("broker", default_jars_dir())])
