"""The services of one application as processes that a test or benchmark may kill, multiply and start again."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from keygrouping.job import JobSpec
from keygrouping_kafka.errors import can_be_retried
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.end_of_input import finish_input
from keygrouping_service.kafka.progress import END, Committed, partitions_of, read_progress
from keygrouping_service.kafka.topics import Topic, create_topics, topics_of
from keygrouping_service.settings import PREFIX, ServiceSettings

from keygrouping_local.comparison import Comparison, check_run
from keygrouping_local.errors import LocalError
from keygrouping_local.jars import default_jars_dir
from keygrouping_local.process import kill, last_lines, spawn, terminate
from keygrouping_local.small_spark import spark_settings
from keygrouping_local.topics import environment_of, settings_for

_LOOK_SECONDS = 0.1
_IN_FLIGHT = 20_000


class Event(NamedTuple):
    """A record for `events`: its partition, key, value, timestamp in ms and headers."""

    partition: int
    key: bytes | None
    value: bytes | None
    time_ms: int
    headers: tuple[tuple[str, bytes], ...] = ()


@dataclass(frozen=True)
class Shape:
    """Numbers of partitions: of `events` and `partials`, and of `routed` (one per possible worker)."""

    partitions: int = 4
    max_workers: int = 16


class Deploy(Protocol):
    """What makes a deployment for a test."""

    async def __call__(self, job: str, shape: Shape | None = None) -> "Deployment":
        """Returns an application that is ready to start processes."""
        ...


class Deployment:
    """One application on a running broker; an async context manager that ends all its processes.

    Processes are named `SERVICE-N` (`router-0`, `worker-2`, `spark-0`); settings are given without their prefix:
    `start("router-0", workers=10, grouping="dkg")`. Like a cluster, `revive` starts again what has died.
    """

    def __init__(
        self, bootstrap_servers: str, application: str, folder: Path, job: str, *, shape: Shape | None = None
    ) -> None:
        self.settings: ServiceSettings = settings_for(bootstrap_servers, application)
        self.job = JobSpec.from_json(job)
        self.admin: AIOKafkaAdminClient
        self.producer: AIOKafkaProducer
        self._job_text = job
        self._folder = folder
        self._shape = shape or Shape()
        self._environments: dict[str, dict[str, str]] = {}
        self._commands: dict[str, Sequence[str]] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.crashed: list[str] = []
        """What has ended in error by itself, and was started again."""
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> "Deployment":
        self._stack.callback(self._kill_all)
        self.admin = await self._stack.enter_async_context(clients.started(clients.admin(self.settings)))
        self.producer = await self._stack.enter_async_context(clients.started(clients.producer(self.settings)))
        topics = topics_of(self.settings, self._shape.partitions, self._shape.max_workers)
        await create_topics(self.admin, [*topics, Topic(f"{self.settings.application}.progress", 1)])
        return self

    async def __aexit__(self, *exception: object) -> None:
        await self._stack.aclose()

    # processes

    @property
    def names(self) -> list[str]:
        """Names of the processes that have been started and not stopped."""
        return list(self._processes)

    def pid(self, name: str) -> int:
        """Process id of a process."""
        return self._processes[name].pid

    def log(self, name: str) -> Path:
        """File with all that a process says."""
        return self._folder / f"{name}.log"

    def start(
        self,
        name: str,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] | None = None,
        /,
        **settings: object,
    ) -> None:
        """Starts a process; `settings` are those of its service, `environment` is what else it shall find there.

        `command`: arguments for Python; None: those that start the service.
        """
        service, _, number = name.rpartition("-")
        self._commands[name] = command or ("-m", f"keygrouping_{service}")
        given = self._own_settings(service, number) | settings
        base = {key: value for key, value in os.environ.items() if not key.startswith(PREFIX)}
        self._environments[name] = {
            **base,
            **environment_of(self.settings),
            f"{PREFIX}JOB": self._job_text,
            f"{PREFIX}SESSION_TIMEOUT": "6",
            **{f"{PREFIX}{service.upper()}_{key.upper()}": str(value) for key, value in given.items()},
            **(environment or {}),
        }
        self._launch(name)

    def kill(self, name: str) -> None:
        """Kills a process at once; `revive` starts it again."""
        self._processes[name].send_signal(signal.SIGKILL)
        self._processes[name].wait()

    def stop(self, name: str, timeout: float = 300.0) -> int:
        """Ends a process in order and returns its exit code."""
        return terminate(self._processes.pop(name), timeout)

    def exit_code(self, name: str) -> int | None:
        """How a process ended; None while it runs."""
        return self._processes[name].poll()

    def revive(self, without: Collection[str] = ()) -> list[str]:
        """Starts again, with the same settings, what has died and not ended in order; returns the names."""
        dead = [name for name, process in self._processes.items() if process.poll() not in (None, 0)]
        dead = [name for name in dead if name not in without]
        self.crashed += [name for name in dead if self.exit_code(name) != -signal.SIGKILL]
        for name in dead:
            self._launch(name)
        return dead

    def dead(self) -> dict[str, list[str]]:
        """The last lines of every process that has ended without having been stopped."""
        return {n: last_lines(self.log(n)) for n, process in self._processes.items() if process.poll() is not None}

    # events

    async def write(self, events: Iterable[Event]) -> None:
        """Appends events to their partitions, each partition in the given order."""
        sent = []
        for event in events:
            sent.append(
                await self.producer.send(
                    self.settings.events_topic,
                    event.value,
                    event.key,
                    event.partition,
                    event.time_ms,
                    list(event.headers),
                )
            )
            if len(sent) >= _IN_FLIGHT:
                await asyncio.gather(*sent)
                sent.clear()
        await asyncio.gather(*sent)

    async def committed(self, stage: str) -> dict[int, Committed]:
        """What a stage has committed for every partition of its input."""
        topics = {"router": "events", "worker": "routed", "aggregator": "partials"}
        topic = getattr(self.settings, f"{topics[stage]}_topic")
        return await read_progress(
            self.admin, self.settings.group(stage), topic, await partitions_of(self.admin, topic)
        )

    async def is_routed(self) -> bool:
        """Whether routers, or workers that combine, have committed everything that `events` holds."""
        topic = self.settings.events_topic
        async with clients.started(clients.reader(self.settings)) as probe:
            tps = [TopicPartition(topic, p) for p in await partitions_of(self.admin, topic)]
            ends = await probe.end_offsets(tps)
        committed = await self.committed("router")
        return all((committed[tp.partition].offset or 0) >= end for tp, end in ends.items())

    async def is_final(self, time_ms: int = END) -> bool:
        """Whether all windows that end by `time_ms` are final."""
        return all(entry.progress.time >= time_ms for entry in (await self.committed("aggregator")).values())

    async def until(self, condition: Callable[[], Awaitable[bool]], timeout: float = 300.0) -> None:
        """Waits for a condition, reviving what dies; LocalError with the last lines of all logs after `timeout`."""
        deadline = time.monotonic() + timeout
        while not await self._holds(condition):
            if time.monotonic() > deadline:
                lines = "\n".join(f"{n}: {line}" for n in self.names for line in last_lines(self.log(n), 8))
                raise LocalError(f"not so within {timeout:.0f} s: {getattr(condition, '__name__', condition)}\n{lines}")
            self.revive()
            await asyncio.sleep(_LOOK_SECONDS)

    async def finish(self) -> None:
        """Waits until all events are read, stops who reads them and declares the input finished."""
        await self.until(self.is_routed)
        for name in [name for name in self.names if name.startswith("router-") or self._combines(name)]:
            self.stop(name)
        await finish_input(self.settings)

    async def check(self) -> Comparison:
        """Finishes the input, waits until everything is final, and compares with the oracle."""
        await self.finish()
        await self.until(self.is_final)
        return await check_run(self.settings, self.job)

    async def disturb(self, victims: Mapping[str, int], pause: tuple[float, float], seed: int) -> None:
        """Kills each named process as many times as told, in random order, and starts it again, pausing between."""
        chance = random.Random(seed)
        order = [name for name, times in victims.items() for _ in range(times)]
        chance.shuffle(order)
        for name in order:
            await asyncio.sleep(chance.uniform(*pause))
            self.kill(name)
            self.revive()

    def _combines(self, name: str) -> bool:
        return self._environments[name].get(f"{PREFIX}WORKER_STAGES") == "combine"

    def _own_settings(self, service: str, number: str) -> dict[str, object]:
        if service == "worker":
            return {"ordinal": number}
        if service == "observer":
            return {f"{kind}_topic": f"{self.settings.application}.observer-{kind}" for kind in ("state", "audit")}
        return spark_settings(self.settings, self._folder, default_jars_dir()) if service == "spark" else {}

    async def _holds(self, condition: Callable[[], Awaitable[bool]]) -> bool:
        try:
            return await condition()
        except Exception as error:
            if not can_be_retried(error):
                raise
            return False

    def _launch(self, name: str) -> None:
        command = [sys.executable, *self._commands[name]]
        self._processes[name] = spawn(command, self.log(name), self._environments[name])

    def _kill_all(self) -> None:
        for process in self._processes.values():
            kill(process)
