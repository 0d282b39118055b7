"""The tutorial for a laptop works: its commands as they stand, from the first to the last."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from keygrouping_local.ports import free_ports

from .pages import DOCS, blocks

PAGE = DOCS / "tutorials" / "laptop.md"
SHOWN_PORT = "8080"
PATIENCE_SECONDS = 240

pytestmark = [pytest.mark.kafka, pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]


class Reader:
    """Follows the page in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (port,) = free_ports(1)
        self._port = str(port)
        self._live: subprocess.Popen[str] | None = None
        self.said: list[str] = []
        """What came of each run that ended by itself, and of each call."""

    def run(self, command: str) -> None:
        """Starts `make run`, and waits for its end if that is to come by itself, else until events flow."""
        self.stop()
        _, _, *given = shlex.split(command.replace(SHOWN_PORT, self._port))
        options = shlex.split(given[0].removeprefix("ARGS=")) if given else []
        environment = {**os.environ, "KEYGROUPING_LOCAL_DATA_DIR": str(self._folder / "data"), "COLUMNS": "200"}
        process = subprocess.Popen(
            [str(Path(sys.executable).parent / "keygrouping-run"), *options],
            cwd=self._folder,
            env=environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        self._live = process
        assert process.stdout is not None
        if "--once" in options:
            said, _ = process.communicate(timeout=PATIENCE_SECONDS)
            assert process.returncode == 0, said
            self.said.append(said)
        else:
            lines = iter(process.stdout.readline, "")
            assert any(re.match(r"events [1-9]", line) for line in lines), "it ended before events flowed"

    def shell(self, text: str) -> None:
        """Executes a block of shell."""
        if "ROUTER=" not in text:
            text = f"ROUTER=http://127.0.0.1:{SHOWN_PORT}\n{text}"
        script = "set -eu\n" + text.replace(SHOWN_PORT, self._port)
        done = subprocess.run(["bash", "-c", script], text=True, capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        self.said.append(done.stdout)

    def stop(self) -> None:
        """Ends a live run by Ctrl-C, as the page says."""
        if self._live is None:
            return
        if self._live.poll() is None:
            self._live.send_signal(signal.SIGINT)
        said, _ = self._live.communicate(timeout=PATIENCE_SECONDS)
        assert self._live.returncode == 0, said
        self._live = None

    def kill(self) -> None:
        """Ends whatever still runs."""
        if self._live is not None:
            self._live.kill()
            self._live.communicate()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    made = Reader(tmp_path)
    yield made
    made.kill()


def test_the_tutorial_works(reader: Reader, tmp_path: Path) -> None:
    for language, name in (("csv", "readings.csv"), ("json", "job.json")):
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
