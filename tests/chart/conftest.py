"""What the chart's tests share: renders, made once for each set of values."""

from __future__ import annotations

import functools
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chart_files
import pytest

Objects = list[dict[str, Any]]
Render = Callable[..., Objects]


@functools.cache
def _rendered(arguments: tuple[str, ...]) -> Objects:
    return chart_files.objects(chart_files.render("r", "ns", *arguments))


@pytest.fixture(scope="session")
def helm() -> str:
    """Helm's program."""
    found = chart_files.find_helm()
    if found is None:
        pytest.skip("helm is not installed: the chart is not rendered (put helm on the path, or name it by HELM)")
    return found


@pytest.fixture(scope="session")
def render(helm: str) -> Render:
    """Renders the chart: a file of values, and assignments as of `--set`."""
    del helm

    def make(values: Path | None = None, *assignments: str) -> Objects:
        files = ("--values", str(values)) if values else ()
        return _rendered((*files, *(text for assignment in assignments for text in ("--set", assignment))))

    return make


@pytest.fixture(scope="session")
def run_helm(helm: str) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs helm."""

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([helm, *arguments], capture_output=True, text=True, check=False)

    return run
