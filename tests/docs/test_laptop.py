"""The tutorial for a laptop works: its commands as they stand, from the first to the last."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from keygrouping_local.ports import free_ports

from .pages import DOCS, ROOT, blocks, outside_of_make, shell_of_make

PAGE = DOCS / "tutorials" / "laptop.md"
SHOWN_PORT = "8080"
STOPPED = "stopped; the next start goes on from here"
FILES = {"csv": "readings.csv", "json": "job.json"}
TIMEOUT_SECONDS = 240

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]


class Reader:
    """Follows the page, with data and files in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        (port,) = free_ports(1)
        self._own = {SHOWN_PORT: str(port), **{name: str(folder / name) for name in FILES.values()}}
        data = {"KEYGROUPING_LOCAL_DATA_DIR": str(folder / "data"), "COLUMNS": "200"}
        self._environment = {**outside_of_make(), **data}
        self._live: subprocess.Popen[str] | None = None
        self.said: list[str] = []
        """What came of each run that ended by itself, and of each call."""

    def run(self, command: str) -> None:
        """Starts `make run`, and waits for its end if that is to come by itself, else until events flow."""
        self.stop()
        process = subprocess.Popen(
            shell_of_make(self._with_own(command)),
            cwd=ROOT,
            env=self._environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._live = process
        assert process.stdout is not None
        if "--once" in command:
            said, _ = process.communicate(timeout=TIMEOUT_SECONDS)
            assert process.returncode == 0, said
            self.said.append(said)
            self._live = None
        else:
            lines = iter(process.stdout.readline, "")
            assert any(re.match(r"events [1-9]", line) for line in lines), "it ended before events flowed"

    def shell(self, text: str) -> None:
        """Executes a block of shell."""
        if "ROUTER=" not in text:
            text = f"ROUTER=http://127.0.0.1:{SHOWN_PORT}\n{text}"
        script = "set -eu\n" + self._with_own(text)
        done = subprocess.run(["bash", "-c", script], text=True, capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        self.said.append(done.stdout)

    def stop(self) -> None:
        """Ends a live run by Ctrl-C, as the page says."""
        if self._live is None:
            return
        if self._live.poll() is None:
            os.killpg(self._live.pid, signal.SIGINT)
        said, _ = self._live.communicate(timeout=TIMEOUT_SECONDS)
        assert STOPPED in said, said
        self._live = None

    def kill(self) -> None:
        """Ends whatever still runs."""
        if self._live is not None and self._live.poll() is None:
            os.killpg(self._live.pid, signal.SIGKILL)
            self._live.communicate()

    def _with_own(self, text: str) -> str:
        for shown, used in self._own.items():
            text = text.replace(shown, used)
        return text


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path)
    yield made
    made.kill()


def test_the_tutorial_works(reader: Reader, tmp_path: Path) -> None:
    for language, name in FILES.items():
        (block,) = blocks(PAGE, language)
        (tmp_path / name).write_text(block.text)
    for block in blocks(PAGE, "sh"):
        commands = block.commands()
        if commands[0].startswith("make run"):
            (command,) = commands
            reader.run(command)
        else:
            reader.shell(block.text)
    reader.stop()
    by_level_fill, by_key, look, knobs, shadow, own_file = reader.said
    for ended in (by_level_fill, by_key, own_file):
        assert "every window equals the oracle's" in ended, ended
    assert '"width"' in look
    assert '"dry_run":true' in knobs
    assert '"version":3' in knobs, "the thresholds and the number of workers have changed"
    assert "w-choices" in shadow
