"""The first small run: however it ends, nothing of it goes on."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import psutil
import pytest
from keygrouping_local import archives, warmup
from keygrouping_local.errors import LocalError
from keygrouping_local.paths import tools_dir

MARK = "TEST_OF_WARMUP"


def left_of(mark: str) -> list[psutil.Process]:
    """All processes that run with this in their environment."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def command_of(process: psutil.Process) -> str:
    """Its command line; nothing once it has ended."""
    try:
        return " ".join(process.cmdline())
    except psutil.NoSuchProcess:
        return ""


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    """Tools with the jars, and archives of their own."""
    (tmp_path / "jars").symlink_to(tools_dir() / "jars")
    return tmp_path


@pytest.fixture
def running(tools: Path) -> Iterator[tuple[subprocess.Popen[bytes], str]]:
    """A first small run of which the test ends whatever it has left, and its mark."""
    mark = str(tools)
    environment = {**os.environ, MARK: mark, "KEYGROUPING_LOCAL_TOOLS_DIR": str(tools)}
    # What a shell starts in the background ignores SIGINT, and so would all that it starts.
    heeds = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    process = subprocess.Popen([sys.executable, "-m", "keygrouping_local.warmup"], env=environment, preexec_fn=heeds)
    yield process, mark
    process.kill()
    process.wait()
    for left in left_of(mark):
        left.kill()


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.timeout(900)
@pytest.mark.parametrize("request_", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_interrupted_leaves_no_jvm(
    running: tuple[subprocess.Popen[bytes], str], tools: Path, request_: signal.Signals
) -> None:
    process, mark = running
    deadline = time.monotonic() + 400
    while not any("SparkSubmit" in command_of(found) for found in left_of(mark)):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(request_)
    assert process.wait(180) != 0
    assert left_of(mark) == []
    assert not (tools / "archives" / "spark.jsa").exists()


async def test_a_run_that_fails_leaves_no_archive_that_may_be_torn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = tmp_path / "spark.jsa"
    monkeypatch.setattr(archives, "archive", lambda name: tmp_path / f"{name}.jsa")

    async def fails() -> None:
        archive.touch()
        raise LocalError("not so within 180 s")

    monkeypatch.setattr(warmup, "_warm_up", fails)
    with pytest.raises(LocalError, match="not so within"):
        await asyncio.create_task(warmup.warm_up())
    assert not archive.exists()
