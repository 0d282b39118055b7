"""Executes the shell of a page on the cluster."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from ..docs.pages import ROOT

SHOWN_REGISTRY = "registry.example.com"
TIMEOUT_SECONDS = 2400
_TOOLS = """set -eu
kubectl() { ${KUBECTL:-kubectl} "$@"; }
helm() { ${HELM:-helm} "$@"; }
curl() { ${CLUSTER_EXEC:-} curl "$@"; }
answers() { until curl --silent --output /dev/null "$1"; do sleep 0.5; done; }
"""


def execute(script: str, told: Path, environment: Mapping[str, str] = os.environ) -> str:
    """Executes it in the repository's folder; the last of what it has told if it failed, else nothing."""
    with told.open("w") as out:
        shell = subprocess.Popen(
            ["bash", "-c", _TOOLS + script],
            cwd=ROOT,
            env=environment,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            code = shell.wait(timeout=TIMEOUT_SECONDS)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(shell.pid, signal.SIGKILL)  # the forwarded ports, too
    return told.read_text()[-4000:] if code else ""
