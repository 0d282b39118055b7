"""What the README says of its first command: the whole data set, on Spark, ends by itself and equals the oracle."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from .pages import ROOT, outside_of_make, shell_of_make

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]


def test_all_flights_are_used_and_every_window_is_right(tmp_path: Path) -> None:
    said = (ROOT / "README.md").read_text()
    (command,) = re.findall(r'`(make run ARGS="--once")`', said)
    (flights,) = re.findall(r"replays the ([\d,]+) flights", said)
    environment = {**outside_of_make(), "KEYGROUPING_LOCAL_DATA_DIR": str(tmp_path), "COLUMNS": "200"}
    run = subprocess.run(
        shell_of_make(command), cwd=ROOT, env=environment, capture_output=True, text=True, timeout=800, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert flights in run.stdout and "every window equals the oracle's" in run.stdout
