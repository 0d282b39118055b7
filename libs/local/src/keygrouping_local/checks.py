"""What a run needs of this machine, checked before anything starts."""

from pathlib import Path

import psutil

from keygrouping_local.errors import LocalError
from keygrouping_local.jars import require_jars
from keygrouping_local.java import find_java, require_spark_java

_GIGABYTE = 1 << 30
NEEDED_MEMORY = {"spark": 3 * _GIGABYTE, "native": 3 * _GIGABYTE // 2}


def check_memory(runner: str) -> None:
    """Raises LocalError if too little memory is available for the runner."""
    needed, available = NEEDED_MEMORY[runner], psutil.virtual_memory().available
    if available < needed:
        hint = "close other programs" + (" or use --runner native" if runner == "spark" else "")
        raise LocalError(
            f"only {available / _GIGABYTE:.1f} GB of memory are available, {needed / _GIGABYTE:.1f} are needed: {hint}"
        )


def check_machine(runner: str, embedded: bool, jars_dir: Path) -> None:
    """Raises LocalError for the first thing that is missing: Java, jars, memory."""
    if embedded or runner == "spark":
        java = find_java()
        if runner == "spark":
            require_spark_java(java)
        require_jars("broker" if embedded else "spark", jars_dir)
    check_memory(runner)
