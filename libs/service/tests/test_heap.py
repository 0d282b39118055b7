"""What is not needed any more goes back to the system: closed clients, and buffers wherever in the heap they were."""

from __future__ import annotations

import asyncio
import gc
import platform
import subprocess
import sys
import weakref
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from keygrouping_service import heap
from keygrouping_service.testing import until

PROGRAM = """
from pathlib import Path
from keygrouping_service.heap import trim_heap

def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096

before = resident()
buffers, small = [], []
for number in range(1000):
    buffers.append(b"x" * 100_000)
    small.append(b"x" * 2000)  # stays, and so keeps the heap from shrinking
last = b"x" * 100_000
del buffers
kept = resident() - before
assert trim_heap()
print(kept >> 20, (resident() - before) >> 20)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another C library")
def test_freed_buffers_go_back_to_the_system() -> None:
    answer = subprocess.run([sys.executable, "-c", PROGRAM], check=True, capture_output=True)
    kept, trimmed = map(int, answer.stdout.split())
    assert kept >= 80, "glibc does so by itself now: keep_heap_small is not needed any more"
    assert trimmed <= 15


async def test_the_heap_is_trimmed_for_as_long_as_that_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = [True, True, False]
    monkeypatch.setattr(heap, "_EVERY_SECONDS", 0.0)
    monkeypatch.setattr(heap, "trim_heap", lambda: answers.pop(0))
    async with kept_small():
        await until(lambda: not answers)


async def test_cycles_are_collected_though_the_collector_itself_runs_rarely(monkeypatch: pytest.MonkeyPatch) -> None:
    class Client:
        def __init__(self) -> None:
            self.itself = self

    monkeypatch.setattr(heap, "_EVERY_SECONDS", 0.0)
    gc.disable()
    try:
        closed = weakref.ref(Client())
        assert closed() is not None
        async with kept_small():
            await until(lambda: closed() is None)
    finally:
        gc.enable()


@asynccontextmanager
async def kept_small() -> AsyncIterator[None]:
    task = asyncio.create_task(heap.keep_heap_small())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
