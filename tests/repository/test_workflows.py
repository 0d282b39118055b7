"""The workflows run what there is, on the versions of Python that the packages name."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from .test_packages import PROJECTS, ROOT

JOBS = yaml.safe_load((ROOT / ".github" / "workflows" / "checks.yml").read_text())["jobs"]
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))

each_job = pytest.mark.parametrize("job", JOBS)


@each_job
def test_a_job_runs_on_every_python_that_the_packages_name(job: str) -> None:
    classifiers = PROJECTS["libs/keygrouping"]["project"]["classifiers"]
    named = [one.rpartition(" ")[2] for one in classifiers if one.startswith("Programming Language :: Python :: ")]
    assert JOBS[job]["strategy"]["matrix"]["python"] == named


@each_job
def test_what_a_job_runs_exists(job: str) -> None:
    commands = [step["run"] for step in JOBS[job]["steps"] if "run" in step]
    made = {target for command in commands for target in re.findall(r"\bmake ([a-z-]+)", command)}
    assert made <= TARGETS
    assert made or ".ci/run" in commands
    assert Path(ROOT / ".ci" / "run").is_file()


def test_the_workflow_may_only_read() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "checks.yml").read_text())
    assert workflow["permissions"] == {"contents": "read"}
