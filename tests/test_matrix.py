"""`keygrouping-run --once` for every workload, grouping, number of workers and runner: each equals the oracle."""

import itertools
import os
import subprocess
import sys
from pathlib import Path

import pytest
from keygrouping_local.broker import EmbeddedBroker

WORKLOADS = [
    "flights",
    "flights-origin",
    "flights-destination",
    "flights-tailnum",
    "country-skew-80",
    "country-half-skew",
]
GROUPINGS = ["shuffle", "key", "pkg", "dkg", "level-fill"]
CASES = list(itertools.product(["native", "spark"], WORKLOADS, GROUPINGS, ["1", "4", "10"]))


@pytest.mark.matrix
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("runner", "workload", "grouping", "workers"), CASES)
def test_a_run_equals_the_oracle(
    broker: EmbeddedBroker, tmp_path: Path, runner: str, workload: str, grouping: str, workers: str
) -> None:
    options = {"runner": runner, "workload": workload, "grouping": grouping, "workers": workers}
    options["bootstrap-servers"] = broker.bootstrap_servers
    command = [sys.executable, "-m", "keygrouping_local", "--once", *(f"--{k}={v}" for k, v in options.items())]
    environment = {**os.environ, "KEYGROUPING_LOCAL_DATA_DIR": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
