"""Class-data archives: what a JVM loads at its start, parsed and verified beforehand, so that it starts sooner.

An archive is made once, by `keygrouping_local.warmup`. A JVM that it does not fit, because Java or a jar has changed
since, goes on without it.
"""

from pathlib import Path

from keygrouping_local.paths import tools_dir

_SILENT = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def archive(name: str) -> Path:
    """File of the archive of a kind of JVM, `broker` or `spark`."""
    return tools_dir() / "archives" / f"{name}.jsa"


def reading(name: str) -> list[str]:
    """JVM options to start from an archive; none if it has not been made."""
    file = archive(name)
    return [f"-XX:SharedArchiveFile={file}", "-Xshare:auto", *_SILENT] if file.exists() else []


def writing(name: str) -> list[str]:
    """JVM options to make an archive when the JVM ends, in order."""
    archive(name).parent.mkdir(parents=True, exist_ok=True)
    return [f"-XX:ArchiveClassesAtExit={archive(name)}", *_SILENT]
