"""One process of a replay over several, started by `processes`.

`python -m keygrouping_producer.slot SLOT SLOTS LEADER`; the last is the process id of who starts it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys

from keygrouping.version import add_version
from keygrouping_service import children
from keygrouping_service.run import run
from keygrouping_service.settings import load

from keygrouping_producer.processes import Order, Report
from keygrouping_producer.replay import Replay
from keygrouping_producer.settings import ProducerSettings

_REPORT_SECONDS = 0.1


def main() -> None:
    """Replays this slot's partitions until standard input ends."""
    parser = argparse.ArgumentParser(prog="python -m keygrouping_producer.slot", description=__doc__)
    add_version(parser)
    parser.add_argument("slot", type=int, help="number of this part of the replay, from 0")
    parser.add_argument("slots", type=int, help="number of all parts")
    parser.add_argument("leader", type=int, help="process that has started it; it ends with that")
    given = parser.parse_args()
    settings = load(ProducerSettings)
    replay = Replay(settings, given.slot, given.slots, led=lambda: os.getppid() == given.leader)
    sys.exit(run(lambda stop: work(replay, stop), settings))


async def work(replay: Replay, stop: asyncio.Event) -> None:
    """Runs the replay, obeys orders and reports, until there are no more orders or `stop` is set."""
    running = asyncio.create_task(replay.run())
    helpers = [asyncio.create_task(helper) for helper in (_obey(replay), _report(replay), _await(stop))]
    await asyncio.wait([running, *helpers], return_when=asyncio.FIRST_COMPLETED)
    replay.stop()
    await running
    _tell(replay)
    for helper in helpers:
        helper.cancel()
    for outcome in await asyncio.gather(*helpers, return_exceptions=True):
        if isinstance(outcome, Exception):
            raise outcome


async def _obey(replay: Replay) -> None:
    async for line in await children.orders():
        order = Order.model_validate_json(line)
        if order.switch is not None:
            await replay.switch(order.switch)
        if order.pace is not None:
            await replay.set_pace(order.pace)


async def _report(replay: Replay) -> None:
    """Tells the state whenever it has changed."""
    last: Report | None = None
    while True:
        report = Report(status=replay.status(), plan=replay.plan())
        if report != last and report.status.run:
            last = report
            _tell(replay)
        await asyncio.sleep(_REPORT_SECONDS)


def _tell(replay: Replay) -> None:
    children.report(Report(status=replay.status(), plan=replay.plan()).model_dump_json())


async def _await(stop: asyncio.Event) -> None:
    await stop.wait()


if __name__ == "__main__":
    main()
