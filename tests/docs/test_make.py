"""The command for a part of the tests, on the page for those who contribute, works as it stands."""

from __future__ import annotations

import re
import subprocess

import pytest

from .pages import ROOT, blocks, outside_of_make, shell_of_make

PAGE = ROOT / "CONTRIBUTING.md"

pytestmark = pytest.mark.long


def test_a_part_of_the_tests_runs() -> None:
    commands = [command for block in blocks(PAGE, "sh") for command in block.commands()]
    (command,) = (command for command in commands if "ARGS=" in command)
    environment = {name: value for name, value in outside_of_make().items() if not name.startswith("PYTEST_")}
    done = subprocess.run(shell_of_make(command), cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"[1-9]\d* passed", done.stdout)
