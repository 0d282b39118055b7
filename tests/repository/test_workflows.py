"""The workflows run what there is, on the versions of Python that the packages name."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from .test_packages import PROJECTS, ROOT

JOBS = yaml.safe_load((ROOT / ".github" / "workflows" / "checks.yml").read_text())["jobs"]
FOLDERS = ("libs", "services", "spark-jobs", "load-generators", "experiments", "tests")
LONG = ".".join(("mark", "long"))
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


def test_make_finds_the_long_tests() -> None:
    """It looks for the mark in the files of tests: a mark that is given elsewhere would leave tests out."""
    named = [file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py") if LONG in file.read_text()]
    assert named
    assert [file for file in named if not file.name.startswith("test_")] == []
    wanted = subprocess.run(["make", "-n", "test-long"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (command,) = (line for line in wanted.splitlines() if " -m long " in line)
    assert sorted(command.partition(" -m long ")[2].split()) == sorted(str(each.relative_to(ROOT)) for each in named)
