"""The tutorial on lanes works: its files and commands as they stand, from the first to the last."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.ports import free_ports

from .pages import DOCS, blocks

PAGE = DOCS / "tutorials" / "lanes.md"

pytestmark = [pytest.mark.kafka]


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """One that has no topics yet."""
    with EmbeddedBroker(tmp_path / "broker") as broker:
        yield broker


def files(page: str) -> Iterator[tuple[str, str]]:
    """Each block of Python with the name of its file, the last one before it."""
    for block in blocks(PAGE, "python"):
        before = "".join(page.splitlines(keepends=True)[: block.line - 1])
        yield re.findall(r"`(\w+\.py)`", before)[-1], block.text


def with_own(text: str, changes: dict[str, str]) -> str:
    for shown, used in changes.items():
        text = text.replace(shown, used)
    return text


@pytest.mark.timeout(1200)
async def test_the_tutorial_works(own_broker: EmbeddedBroker, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    changes = {"localhost:9092": own_broker.bootstrap_servers, "8080": str(port)}
    page = PAGE.read_text()
    assert all(shown in page for shown in changes)
    folder = tmp_path / "lanes"
    folder.mkdir()
    for name, text in files(page):
        (folder / name).write_text(with_own(text, changes))
    install, *rest = blocks(PAGE, "sh")
    assert install.text.startswith("pip install './libs/app[cli]' './libs/keygrouping[cli]'")
    script = "set -eu\n" + with_own("\n".join(block.text for block in rest), changes)
    log = tmp_path / "log"
    with log.open("wb") as output:
        shell = await asyncio.create_subprocess_exec(
            *("bash", "-c", script),
            cwd=folder,
            env={**os.environ, "PATH": f"{Path(sys.prefix) / 'bin'}:{os.environ['PATH']}"},
            stdout=output,
            stderr=asyncio.subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        async with asyncio.timeout(900):
            await shell.wait()
    except TimeoutError:
        raise AssertionError(log.read_text()[-6000:]) from None
    finally:
        with suppress(ProcessLookupError):
            os.killpg(shell.pid, signal.SIGKILL)
    said = log.read_text()
    assert shell.returncode == 0, said[-6000:]
    assert len(re.findall(r"^400 orders in [\d.]+ s, 9 of them lost$", said, re.M)) == 2, said[-6000:]
    assert 'retries_total{group="billing",topic="orders"} 11.0' in said
    assert 'dead_letters_total{group="billing",reason="failed",topic="orders"} 1.0' in said
    assert re.search(r"^ *1 +alice ", said, re.M), said[-6000:]
    assert "times as fast" in said
    assert "1401 events, 0 twice" in said
