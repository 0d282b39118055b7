"""Hundreds of kills in one run: results stay exact, and no process's memory grows."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import time
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest
from keygrouping_local.comparison import check_run
from keygrouping_local.deployment import Deploy, Deployment, Event, Shape
from keygrouping_local.paths import data_dir
from keygrouping_local.records import read_all

from .load import JOB, START_MS, STEP_MS
from .memory import WARM_SECONDS, Memory, resident
from .say import Say

WORKERS = 6
SPARED = ("router-0", "worker-0", "aggregator-0")
"""Never killed: in them memory shows what it does over the whole run, through all rebalances that the others cause."""
VICTIMS = ("router-1", "router-2", "worker-1", "worker-2", "aggregator-1", "observer-0")
PAUSE = (3.0, 9.0)
"""Seconds between two kills."""
# What was routed is read at the end, should results be wrong.
SETTINGS: dict[str, dict[str, object]] = {
    "router": {"workers": WORKERS, "interval": 5, "idle_timeout": 60},
    "worker": {"purge": False},
    "aggregator": {"purge": False},
}
SINCE = 600.0
"""Memory is judged from the tenth minute on."""
MOST_MEGABYTES_PER_HOUR = 20.0
_SAMPLE_SECONDS = 5.0
_PER_SECOND = 500
_TIMEOUT = 1200.0


@dataclass
class Soak:
    """A run under way."""

    deployment: Deployment
    seed: int
    began: float = field(default_factory=time.monotonic)
    memory: Memory = field(default_factory=Memory)
    born: dict[int, float] = field(default_factory=dict)
    written: int = 0

    @property
    def now(self) -> float:
        """Seconds since the begin."""
        return time.monotonic() - self.began

    async def write(self) -> None:
        """Writes events at a steady rate, until cancelled."""
        chance = random.Random(self.seed)
        while True:
            numbers = range(self.written, self.written + _PER_SECOND // 10)
            events = [self._event(number, chance) for number in numbers]
            await asyncio.gather(self.deployment.write(events), asyncio.sleep(0.1))
            self.written = numbers.stop

    def _event(self, number: int, chance: random.Random) -> Event:
        key = b"key-%d" % min(int(chance.paretovariate(0.7)), 300)
        value = {"id": number, "square": 0, "n": chance.randrange(-1000, 1000)}
        late = chance.choice([0, 0, 0, 500, 1500]) if number % 500 else 30_000
        return Event(number % 4, key, json.dumps(value).encode(), START_MS + number * STEP_MS - late)

    async def sample(self) -> None:
        """Notes the memory of all processes, until cancelled."""
        while True:
            for name in self.deployment.names:
                pid = self.deployment.pid(name)
                age = self.now - self.born.setdefault(pid, self.now)
                if size := resident(pid):
                    self.memory.add(name, self.now, age, size)
            await asyncio.sleep(_SAMPLE_SECONDS)

    async def kill(self, times: int, say: Say) -> None:
        """Kills processes at random, and starts each again."""
        chance = random.Random(self.seed)
        for number in range(1, times + 1):
            await asyncio.sleep(chance.uniform(*PAUSE))
            self.deployment.kill(chance.choice(VICTIMS))
            self.deployment.revive()
            if number % 25 == 0:
                say(f"{number} kills, {self.written} events, {self.now / 60:.0f} minutes")


@pytest.mark.soak
@pytest.mark.timeout(0)
async def test_kills_for_an_hour_leave_results_exact_and_memory_flat(
    deploy: Deploy, pytestconfig: pytest.Config, say: Say
) -> None:
    seed, kills = pytestconfig.getoption("--seed") or 1, pytestconfig.getoption("--kills")
    deployment = await deploy(JOB, Shape(max_workers=WORKERS))
    for name in (*SPARED, *VICTIMS):
        deployment.start(name, **SETTINGS.get(name.partition("-")[0], {}))
    soak = Soak(deployment, seed)
    async with asyncio.TaskGroup() as tasks:
        beside = [tasks.create_task(soak.write()), tasks.create_task(soak.sample())]
        await soak.kill(kills, say)
        # The processes killed last are to be seen warm, too.
        await asyncio.sleep(WARM_SECONDS + 2 * _SAMPLE_SECONDS)
        for task in beside:
            task.cancel()
    # However far a slow machine is behind.
    await deployment.until(deployment.is_routed, _TIMEOUT)
    await deployment.finish()
    await deployment.until(deployment.is_final, _TIMEOUT)
    comparison = await check_run(deployment.settings, deployment.job)
    trends = soak.memory.trends(SINCE)
    for trend in trends:
        say(trend)
    say(
        f"{kills} kills, {soak.written} events, {soak.now / 60:.0f} minutes: {'exact' if comparison.equal else 'WRONG'}"
    )
    if not comparison.equal:
        for line in (*comparison.rows, *comparison.examples):
            say(line)
        logs = data_dir() / "network" / f"soak-{deployment.settings.application}"
        shutil.copytree(deployment.log("router-0").parent, logs)
        say(f"logs: {logs}")
    for topic in (deployment.settings.events_topic, deployment.settings.routed_topic):
        again = await doubled(deployment, topic)
        say(f"{topic}: {len(again)} events stand there more than once {again[:20]}")
    note(data_dir() / "network" / "soak.jsonl", soak, kills, comparison.equal)
    assert comparison.equal, comparison
    steep = [str(trend) for trend in trends if trend.name in SPARED and trend.per_hour > MOST_MEGABYTES_PER_HOUR]
    assert not steep, steep


async def doubled(deployment: Deployment, topic: str) -> list[str]:
    """Where the events stand that are in a topic more than once, each with its id."""
    places: dict[int, list[str]] = defaultdict(list)
    async for records in read_all(deployment.settings, topic):
        for record in records:
            places[json.loads(record.value or b"")["id"]].append(f"{record.partition}@{record.offset}")
    return [f"{number}: {', '.join(where)}" for number, where in sorted(places.items()) if len(where) > 1]


def note(file: Path, soak: Soak, kills: int, exact: bool) -> None:
    """Adds a line to the record of all soak runs."""
    file.parent.mkdir(parents=True, exist_ok=True)
    memory = [asdict(trend) for trend in soak.memory.trends(SINCE)]
    line = {"seed": soak.seed, "kills": kills, "events": soak.written, "minutes": round(soak.now / 60, 1)}
    with file.open("a") as record:
        record.write(json.dumps(line | {"exact": exact, "memory": memory}) + "\n")
