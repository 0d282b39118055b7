"""Handlers in processes on Kafka: what is killed loses nothing and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from asyncio.subprocess import PIPE, create_subprocess_exec
from collections import Counter, defaultdict
from pathlib import Path

import pytest
from keygrouping_service.testing import Cluster, notes, until

pytestmark = pytest.mark.kafka

MODULE = """
import logging, os, time
from keygrouping.app import TEXT, App, Event, Output, Topic
from keygrouping_service.testing import note

app = App("{prefix}-group", dead_letters="{prefix}-dead", session_timeout=6)

@app.lifespan
async def log():
    file = os.open("log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    note(file, "up", os.getpid(), os.getppid())
    yield file
    note(file, "down", os.getpid(), 0)

@app.on("{prefix}-in", processes=2, retries=1, exactly_once=True)
def work(event: Event, log: int) -> Output:
    if event.value == 13:
        os.kill(os.getpid(), 9)
    time.sleep(0.003)
    logging.getLogger("shop").info("sold at %d", event.offset)
    note(log, "end", event.key, event.offset)
    return Output(Topic("{prefix}-out", value=TEXT), event.identity, key=event.key)
"""


class Log:
    """What the processes wrote down."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def lines(self) -> list[list[str]]:
        """All of it."""
        return notes(self._path.read_text().splitlines()) if self._path.exists() else []

    def processes(self, member: int) -> list[int]:
        """Those of a member that have begun."""
        return [int(pid) for what, pid, parent in self.lines() if what == "up" and parent == str(member)]

    def ended(self) -> set[str]:
        """The offsets of events that have."""
        return {offset for what, _, offset in self.lines() if what == "end"}


def lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()


async def test_kills_of_processes_and_members_lose_nothing_and_leave_nothing_behind(
    cluster: Cluster, topic_prefix: str, tmp_path: Path
) -> None:
    await cluster.create(**{f"{topic_prefix}-{name}": 1 for name in ("in", "out", "dead")})
    rows = [(b"k%d" % (number % 10), b"13" if number == 500 else b"1") for number in range(1000)]
    await cluster.write(f"{topic_prefix}-in", rows[:500], 0)
    (tmp_path / "shop.py").write_text(MODULE.format(prefix=topic_prefix))
    log = Log(tmp_path / "log")
    line = (sys.executable, "-m", "keygrouping", "app", "shop:app", "--bootstrap-servers", cluster.bootstrap_servers)
    first = await create_subprocess_exec(*line, cwd=tmp_path, stderr=PIPE)
    second = None
    try:
        await until(lambda: len(log.ended()) > 100)
        os.kill(log.processes(first.pid)[0], signal.SIGKILL)
        await until(lambda: len(log.ended()) > 200)
        first.kill()
        await first.wait()
        await cluster.write(f"{topic_prefix}-in", rows[500:], 0)  # or it may have done all, on a busy machine
        assert len(log.processes(first.pid)) >= 2
        await until(lambda: not any(map(lives, log.processes(first.pid))))
        second = await create_subprocess_exec(*line, cwd=tmp_path, stderr=PIPE)
        await until(lambda: len(log.ended()) == 999)
        await until(lambda: cluster.read(f"{topic_prefix}-dead"))
        dead = await cluster.read(f"{topic_prefix}-dead")
        # One of them may have only just begun, in place of the one that was killed.
        await until(lambda: sum(map(lives, log.processes(second.pid))) == 2)
        second.terminate()
        assert second.stderr is not None
        told = await asyncio.wait_for(second.stderr.read(), 300)
        assert await second.wait() == 0
    finally:
        for member in (first, second):
            if member is not None and member.returncode is None:
                member.kill()
                await member.wait()
    assert b"INFO shop: sold at 999" in told
    assert b"crashed: its process ended by signal 9 (Killed)" in told
    assert not any(map(lives, log.processes(second.pid)))
    assert sum(what == "down" for what, *_ in log.lines()) == 2
    outputs = await cluster.read(f"{topic_prefix}-out")
    assert Counter(Counter(output.value for output in outputs).values()) == {1: 999}
    assert [dict(letter.headers)["keygrouping-reason"] for letter in dead] == [b"crashed"]
    order: defaultdict[str, list[int]] = defaultdict(list)
    for what, key, offset in log.lines():
        if what == "end":
            order[key].append(int(offset))
    assert all(list(dict.fromkeys(each)) == sorted(set(each)) for each in order.values())
