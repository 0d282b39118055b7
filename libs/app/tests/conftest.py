"""Members of a group as processes of their own."""

from __future__ import annotations

import os
import sys
from asyncio import wait_for
from asyncio.subprocess import PIPE, Process, create_subprocess_exec
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from keygrouping_app.moves import HOME
from keygrouping_app.planning import PLANNERS, Held, Report, plan_of
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_service.testing import Cluster

PROGRAM = Path(__file__).with_name("member_program.py")


@pytest.fixture(scope="session")
def planners() -> None:
    """The first plan takes seconds, until what it needs is loaded: no event loop is to stand still for them, and no
    test's time is to hold them."""
    held = {name: Held(1.0, 1) for name in "ab"}
    reports = [Report("one", 2.0, held=held, places=dict.fromkeys(held, HOME)), Report("two", 2.0, slots=[0])]
    for each in PLANNERS:
        assert plan_of(reports, each).targets


@pytest.fixture
async def cluster(broker: EmbeddedBroker) -> AsyncIterator[Cluster]:
    """The broker and its clients."""
    async with Cluster(broker.bootstrap_servers) as running:
        yield running


@pytest.fixture
async def new_member(
    cluster: Cluster, topic_prefix: str, tmp_path: Path
) -> AsyncIterator[Callable[..., Awaitable[Process]]]:
    """Starts a member that writes down what it does in the file `log`; its handler takes `seconds` on average.

    Those that are left are killed.
    """
    started: list[Process] = []

    async def start(
        seconds: float = 0.004, lanes: int = 16, exactly_once: bool = False, commit_interval: float = 0.05
    ) -> Process:
        given = (seconds, lanes, int(exactly_once), commit_interval)
        arguments = (cluster.bootstrap_servers, topic_prefix, str(tmp_path / "log"), *map(str, given))
        member = await create_subprocess_exec(sys.executable, str(PROGRAM), *arguments, env={**os.environ}, stdout=PIPE)
        started.append(member)
        assert member.stdout is not None
        assert await wait_for(member.stdout.readline(), 180) == b"up\n"
        return member

    yield start
    for member in started:
        if member.returncode is None:
            member.kill()
            await member.wait()
