"""Installs the broker's jars and those of Spark's Kafka connector, with the Ivy inside pyspark: no Maven needed."""

import argparse
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from xml.sax.saxutils import quoteattr

from keygrouping.version import add_version

from keygrouping_local.errors import LocalError
from keygrouping_local.jar_lock import LOCK, differences, write_lock
from keygrouping_local.java import find_java
from keygrouping_local.paths import tools_dir
from keygrouping_local.spark_version import spark_version

CENTRAL = "https://repo1.maven.org/maven2/"
STAMP = "installed.json"


@dataclass(frozen=True)
class Artifact:
    """A Maven artifact and the set (`broker` or `spark`) that it belongs to; with or without what it depends on."""

    set: str
    group: str
    name: str
    version: str
    transitive: bool = False


_CONNECTORS = {
    "4.0": ("4.0.0", "3.9.1", "2.12.1"),
    "4.1": ("4.1.1", "3.9.1", "2.12.1"),
    "4.2": ("4.2.0", "3.9.2", "2.13.1"),
}
"""By Spark's version: that of its connector, and of Kafka's client and the pool that it needs beyond pyspark's jars."""


def artifacts_of(spark: str) -> tuple[Artifact, ...]:
    """The broker's, and those of the connector of this Spark, such as 4.2. LocalError if none is known."""
    if spark not in _CONNECTORS:
        raise LocalError(f"pyspark {spark} is installed, not one of {', '.join(_CONNECTORS)}: install one of these")
    connector, client, pool = _CONNECTORS[spark]
    return (
        Artifact("broker", "org.apache.kafka", "kafka_2.13", "4.2.2", transitive=True),
        Artifact("broker", "org.apache.kafka", "kafka-tools", "4.2.2", transitive=True),
        Artifact("broker", "org.slf4j", "slf4j-simple", "1.7.36"),
        Artifact("spark", "org.apache.spark", "spark-sql-kafka-0-10_2.13", connector),
        Artifact("spark", "org.apache.spark", "spark-token-provider-kafka-0-10_2.13", connector),
        Artifact("spark", "org.apache.kafka", "kafka-clients", client),
        Artifact("spark", "org.apache.commons", "commons-pool2", pool),
    )


def _artifacts() -> tuple[Artifact, ...]:
    return artifacts_of(spark_version())


def default_jars_dir() -> Path:
    """Folder that holds the sets `broker` and `spark`."""
    return tools_dir() / "jars"


def require_jars(name: str, jars_dir: Path) -> list[Path]:
    """Returns the jars of a set, `broker` or `spark`; raises LocalError with the fix if they aren't installed."""
    if not is_installed(jars_dir):
        raise LocalError(f"the jars are missing in {jars_dir}: run `make install`")
    return sorted((jars_dir / name).glob("*.jar"))


def is_installed(jars_dir: Path) -> bool:
    """Says whether the folder holds just the wanted versions, whole."""
    try:
        stamp = json.loads((jars_dir / STAMP).read_text())
    except (OSError, ValueError):
        return False
    files = {name: (jars_dir / name) for name in stamp["files"]}
    return stamp["artifacts"] == _wanted() and all(
        path.is_file() and path.stat().st_size == stamp["files"][name] for name, path in files.items()
    )


def install(jars_dir: Path, ivy_dir: Path, say: Callable[[str], None], repository: str = CENTRAL) -> None:
    """Brings the jars into `jars_dir`; does nothing if they are there, needs no network if Ivy's cache has them.

    LocalError if one of them is not that of the lock.
    """
    if is_installed(jars_dir):
        _compare(jars_dir, ivy_dir)
        say(f"jars: all there in {jars_dir}")
        return
    retrieve(jars_dir, ivy_dir, say, repository)
    _compare(jars_dir, ivy_dir)
    files = {str(path.relative_to(jars_dir)): path.stat().st_size for path in sorted(jars_dir.glob("*/*.jar"))}
    (jars_dir / STAMP).write_text(json.dumps({"artifacts": _wanted(), "files": files}, indent=1))
    megabytes = sum(files.values()) / 1e6
    say(f"jars: {len(files)} files, {megabytes:.0f} MB in {jars_dir}")


def retrieve(jars_dir: Path, ivy_dir: Path, say: Callable[[str], None], repository: str) -> None:
    """Replaces the jars in `jars_dir` by those of the repository, whatever the lock says."""
    for name in {artifact.set for artifact in _artifacts()}:
        for stale in (jars_dir / name).glob("*.jar"):
            stale.unlink()
    ivy_dir.mkdir(parents=True, exist_ok=True)
    settings, module = ivy_dir / "ivysettings.xml", ivy_dir / "ivy.xml"
    settings.write_text(_settings_xml(ivy_dir / "cache", repository))
    module.write_text(_module_xml())
    command = [
        str(find_java().path),
        "-jar",
        str(_ivy_jar()),
        *("-settings", str(settings), "-ivy", str(module)),
        *("-retrieve", f"{jars_dir}/[conf]/[artifact]-[revision].[ext]"),
    ]
    say(f"jars: resolving from {repository} (about a minute, once)")
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as ivy:
        assert ivy.stdout is not None
        tail = deque(_reported(ivy.stdout, say), maxlen=400)
    if ivy.returncode != 0:
        faults = [line.strip() for line in tail if re.search("unresolved|not found|FAILED|ERROR|Exception", line)]
        reason = faults[0] if faults else tail[-1] if tail else "no output"
        raise LocalError(f"the jars can't be had from {repository} ({reason}): check the network and try again")


def _compare(jars_dir: Path, ivy_dir: Path) -> None:
    wrong = differences(jars_dir)
    if not wrong:
        return
    # Else a later start would take them for installed.
    (jars_dir / STAMP).unlink(missing_ok=True)
    shown = "; ".join(wrong[:3]) + (f"; and {len(wrong) - 3} more" if len(wrong) > 3 else "")
    raise LocalError(
        f"{len(wrong)} jars are not those of {LOCK.name}: {shown}: delete {jars_dir} and {ivy_dir}, and install from a "
        "repository that you trust; after a change of versions run `python -m keygrouping_local.jars --lock`"
    )


def _reported(lines: Iterable[str], say: Callable[[str], None]) -> Iterator[str]:
    """Passes Ivy's lines on, and tells the essence of them: modules found so far, then each download."""
    found = 0
    for line in map(str.strip, lines):
        if line.startswith("found "):
            found += 1
            if found % 10 == 0:
                say(f"jars: {found} found")
        if match := re.match(r"downloading .*/([^/]+\.jar)", line):
            say(f"jars: downloading {match[1]}")
        yield line


def _wanted() -> list[dict[str, object]]:
    return [asdict(artifact) for artifact in _artifacts()]


def _ivy_jar() -> Path:
    spec = importlib.util.find_spec("pyspark")
    found = sorted(Path(spec.origin).parent.glob("jars/ivy-*.jar")) if spec and spec.origin else []
    if not found:
        raise LocalError("pyspark, whose Ivy fetches the jars, is missing: run `make install`")
    return found[-1]


def _settings_xml(cache: Path, repository: str) -> str:
    return (
        '<ivysettings><settings defaultResolver="central"/>'
        f"<caches defaultCacheDir={quoteattr(str(cache))}/>"
        f'<resolvers><ibiblio name="central" m2compatible="true" root={quoteattr(repository)}/></resolvers>'
        "</ivysettings>"
    )


def _module_xml() -> str:
    names = sorted({artifact.set for artifact in _artifacts()})
    sets = "".join(f'<conf name="{name}"/>' for name in names)
    wanted = "".join(
        f'<dependency org="{a.group}" name="{a.name}" rev="{a.version}" conf="{a.set}->default"'
        f' transitive="{str(a.transitive).lower()}"/>'
        for a in _artifacts()
    )
    return (
        '<ivy-module version="2.0"><info organisation="keygrouping" module="jars"/>'
        f"<configurations>{sets}</configurations><dependencies>{wanted}</dependencies></ivy-module>"
    )


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Command `python -m keygrouping_local.jars`: installs the jars, showing progress."""
    parser = argparse.ArgumentParser(prog="python -m keygrouping_local.jars", description=__doc__)
    add_version(parser)
    parser.add_argument("--jars-dir", type=Path, default=default_jars_dir())
    parser.add_argument("--ivy-dir", type=Path, default=tools_dir() / "ivy")
    parser.add_argument("--repository", default=os.environ.get("KEYGROUPING_LOCAL_MAVEN_REPOSITORY", CENTRAL))
    parser.add_argument("--lock", action="store_true", help="rewrite the lock from what the repository has")
    options = parser.parse_args()
    try:
        if options.lock:
            retrieve(options.jars_dir, options.ivy_dir, _say, options.repository)
            write_lock(options.jars_dir)
        install(options.jars_dir, options.ivy_dir, _say, options.repository)
    except LocalError as error:
        sys.exit(f"keygrouping: {error}")


if __name__ == "__main__":
    main()
