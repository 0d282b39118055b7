"""What an image is built with compiles what a router needs later."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from keygrouping.grouping import names
from keygrouping.precompile import precompile


@pytest.mark.parametrize("name", names())
def test_every_grouping_goes_through(name: str) -> None:
    precompile([name])


PRECOMPILE = "from keygrouping.precompile import precompile; precompile(['potc'])"
USE = """
from keygrouping.grouping import create

grouping = create("potc", 3)
grouping.route(b"a")
grouping.explain(b"a")
grouping.resize(4)
create("potc", 3).restore(grouping.snapshot())
"""


def test_a_later_process_finds_the_kernels_and_compiles_none(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_CPU_NAME": "generic"}

    def kernels(program: str) -> dict[Path, int]:
        subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=120)
        return {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*.nb*")}

    first = kernels(PRECOMPILE)
    assert first
    assert kernels(PRECOMPILE) == first
    assert kernels(USE) == first
