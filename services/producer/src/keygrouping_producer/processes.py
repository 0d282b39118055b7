"""A replay over several processes, each with its share of the partitions; this side starts and leads them.

Each process reads the whole source and writes its own partitions only, so that the order within a partition is kept
and nobody needs to be told what to read. Orders to a process and its state go as lines of JSON.
"""

from __future__ import annotations

import asyncio
import os

from keygrouping_service.children import Children
from keygrouping_service.kafka import clients
from pydantic import BaseModel, ConfigDict

from keygrouping_producer import metrics
from keygrouping_producer.ledger import fence_predecessors
from keygrouping_producer.plan import Pace, Plan
from keygrouping_producer.replay import Status
from keygrouping_producer.settings import ProducerSettings

_KILL_AFTER = 5.0


class Order(BaseModel):
    """What the leader wants: another plan, another pace."""

    model_config = ConfigDict(frozen=True)

    switch: Plan | None = None
    pace: Pace | None = None


class Report(BaseModel):
    """What a process says of itself."""

    model_config = ConfigDict(frozen=True)

    status: Status
    plan: Plan


class ProcessReplay:
    """`Replayer` over `settings.processes` processes; their settings are those of the environment."""

    def __init__(self, settings: ProducerSettings) -> None:
        self._settings = settings
        self._children: Children
        self._reports: dict[int, Report] = {}
        self._news = asyncio.Condition()
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        """Starts the processes and stays until they have stopped; `Fatal` if one ends unasked."""
        await self._fence()
        if self._stopping.is_set():
            return
        slots = range(self._settings.processes)
        commands = [("-m", "keygrouping_producer.slot", *map(str, (slot, len(slots), os.getpid()))) for slot in slots]
        stopping = asyncio.create_task(self._stopping.wait())
        listening: list[asyncio.Task[None]] = []
        try:
            async with Children(commands, self._settings.shutdown_timeout + _KILL_AFTER) as self._children:
                listening += [asyncio.create_task(self._listen(slot)) for slot in slots]
                await asyncio.wait([stopping, *listening], return_when=asyncio.FIRST_COMPLETED)
                for task in listening if not self._stopping.is_set() else ():
                    if task.done():
                        task.result()
        finally:  # Not before: what the processes report while they end counts, too.
            for pending in (stopping, *listening):
                pending.cancel()
            await asyncio.gather(stopping, *listening, return_exceptions=True)

    async def switch(self, plan: Plan) -> None:
        """Returns when every process has recorded the new run."""
        async with self._news:
            await self._news.wait_for(lambda: len(self._reports) == self._settings.processes)
            target = max(report.status.run for report in self._reports.values()) + 1
            self._children.order(Order(switch=plan).model_dump_json())
            await self._news.wait_for(lambda: all(r.status.run >= target for r in self._reports.values()))

    async def set_pace(self, pace: Pace) -> None:
        """Returns when every process goes at the new pace."""
        async with self._news:
            await self._news.wait_for(lambda: len(self._reports) == self._settings.processes)
            self._children.order(Order(pace=pace).model_dump_json())
            await self._news.wait_for(lambda: all(r.plan.pace == pace for r in self._reports.values()))

    def plan(self) -> Plan:
        """The plan in force."""
        return next((report.plan for report in self._reports.values()), self._settings.plan())

    def status(self) -> Status:
        """The processes' counts together."""
        reports = [report.status for report in self._reports.values()]
        plan = self.plan()
        return Status(
            run=min((status.run for status in reports), default=0),
            workload=plan.workload.workload,
            skew=plan.workload.skew,
            key=plan.workload.key,
            rate=plan.pace.rate,
            loop=plan.pace.loop,
            sent=sum(status.sent for status in reports),
            bad_lines=sum(status.bad_lines for status in reports),
            total=next((status.total for status in reports if status.total is not None), None),
            done=self._all_done(),
        )

    async def done(self) -> None:
        """Returns when every process has come to the end."""
        async with self._news:
            await self._news.wait_for(self._all_done)

    def stop(self) -> None:
        """Asks the processes to finish what is under way."""
        self._stopping.set()

    def _all_done(self) -> bool:
        reports = [report.status for report in self._reports.values()]
        together = len({status.run for status in reports}) == 1
        return together and len(reports) == self._settings.processes and all(status.done for status in reports)

    async def _fence(self) -> None:
        fencing = asyncio.create_task(
            clients.retry(lambda: fence_predecessors(self._settings, first=0), "ending what an earlier start left")
        )
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([fencing, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not fencing.done():
            fencing.cancel()
        await asyncio.gather(stopping, return_exceptions=True)
        if not self._stopping.is_set():
            await fencing

    async def _listen(self, slot: int) -> None:
        while True:
            report = Report.model_validate_json(await self._children.report(slot))
            self._count(self._reports.get(slot), report)
            async with self._news:
                self._reports[slot] = report
                self._news.notify_all()

    @staticmethod
    def _count(before: Report | None, now: Report) -> None:
        if before is None:
            return
        same_run = before.status.run == now.status.run
        metrics.SENT.inc(now.status.sent - (before.status.sent if same_run else 0))
        metrics.BAD_LINES.inc(now.status.bad_lines - (before.status.bad_lines if same_run else 0))
