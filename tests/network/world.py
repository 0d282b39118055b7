"""A pipeline or an app of real processes on three real brokers, with a proxy between them that knows the protocol."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from keygrouping_local.cluster import EmbeddedCluster
from keygrouping_local.deployment import Deployment, Shape
from keygrouping_local.ports import free_ports
from keygrouping_local.process import last_lines
from keygrouping_local.proxy import Proxy

from .load import JOB, REJECTED

WORKERS = 10
PARTITIONS = 4
SLOTS = 8
"""That apps make for so many."""
SMALL_DISK = 2
"""The broker whose data lies on a disk that can be filled."""
_DISK_MEGABYTES = 512
_PRODUCER = "producer-0"
_ROUTERS = ("router-0", "router-1", "router-2")
MEMBERS = ("app-0", "app-1", "app-2")
_PROCESSES = {
    "native": (*_ROUTERS, "worker-0", "worker-1", "aggregator-0", "aggregator-1"),
    "spark": (*_ROUTERS, "spark-0"),
    "combine": ("worker-0", "worker-1", "worker-2", "aggregator-0", "aggregator-1"),
    "app": MEMBERS,
    "app-exactly-once": MEMBERS,
    "app-moves": MEMBERS,
    "app-shared": MEMBERS,
}
_CLOCKED = {
    "native": ("router-2", "aggregator-1"),
    "spark": ("router-2",),
    "combine": ("worker-2", "aggregator-1"),
    "app": ("app-2",),
    "app-exactly-once": ("app-2",),
    "app-moves": ("app-2",),
    "app-shared": ("app-2",),
}
RUNNERS = tuple(_PROCESSES)
"""What is struck: the pipeline with one of its runners, that of native workers which combine, or an app.

Apps are struck at least once, exactly once, with keys that move, and with hot keys that are shared, whose states merge.
"""
_TRANSACTION_TIMEOUT = 20
_LIBRARIES = ("/usr/lib/*/faketime/libfaketimeMT.so.1", "/usr/local/lib/faketime/libfaketimeMT.so.1")


@dataclass
class World:
    """What faults strike: brokers, the proxy before them, and the services' processes."""

    cluster: EmbeddedCluster
    proxy: Proxy
    deployment: Deployment
    folder: Path
    disk: Path | None
    """Where the small disk is mounted."""
    clocks: dict[str, Path]
    """Files that say by how much a process's clock is wrong."""
    runner: str
    ports: dict[str, int] = field(default_factory=dict)
    """Of an app's members."""
    brokers: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One broker at a time is stopped, killed or frozen: without two of three, nobody promises anything."""
    down: set[str] = field(default_factory=set)
    """Processes that shall stay dead for a while."""
    died: list[str] = field(default_factory=list)
    """Processes that have ended though nobody killed them, with what they said last."""

    @property
    def services(self) -> list[str]:
        """Names of the processes that faults may strike."""
        return [*_PROCESSES[self.runner], _PRODUCER]

    @property
    def group(self) -> str:
        """The app's, if there is one."""
        return f"{self.deployment.settings.application}-app"

    def produce(self, file: Path, rate: float) -> None:
        """Starts the producer on a file, at a rate of events per second."""
        self.deployment.start(
            _PRODUCER,
            bootstrap_servers=self.proxy.bootstrap_servers,
            workload="file",
            file=file,
            key="key",
            time_field="at",
            rate=rate,
            exit_when_done=True,
            transaction_timeout=_TRANSACTION_TIMEOUT,
        )

    def produced(self) -> bool:
        """Whether the producer has ended in order: all is acknowledged."""
        return _PRODUCER not in self.deployment.names or self.deployment.exit_code(_PRODUCER) == 0

    async def revive(self) -> None:
        """Starts again, as a cluster would, what has died."""
        for number, broker in enumerate(self.cluster.brokers):
            if broker.pid is None and not self.brokers.locked():
                async with self.brokers:
                    self.died.append(f"broker-{number}: {' | '.join(last_lines(broker.log, 3))}")
                    await asyncio.to_thread(broker.restart)
        for name, lines in self.deployment.dead().items():
            code = self.deployment.exit_code(name)
            if code not in (0, -signal.SIGKILL):
                self.died.append(f"{name} ended with {code}: {' | '.join(lines[-3:])}")
        self.deployment.revive(self.down)

    def signal(self, name: str, what: signal.Signals) -> None:
        """Sends a signal to a process, if it runs."""
        if name in self.deployment.names and self.deployment.exit_code(name) is None:
            os.kill(self.deployment.pid(name), what)

    def _start(self) -> None:
        for name in _PROCESSES[self.runner]:
            self._start_app(name) if name in MEMBERS else self._start_stage(name)

    def _start_stage(self, name: str) -> None:
        given: dict[str, object] = {"bootstrap_servers": self.proxy.bootstrap_servers}
        if name != "spark-0":
            given["transaction_timeout"] = _TRANSACTION_TIMEOUT
        if name in _ROUTERS:
            given |= {"workers": WORKERS, "interval": 3, "linger": 0.2, "idle_timeout": 20}
        if self.runner == "combine":
            given |= {"stages": "combine"} | ({"idle_timeout": 20} if name.startswith("worker") else {})
        self.deployment.start(name, self._clock(name), **given)

    def _start_app(self, name: str) -> None:
        environment = {
            "KEYGROUPING_BOOTSTRAP_SERVERS": self.proxy.bootstrap_servers,
            "PYTHONPATH": str(Path(__file__).parent),
            "REJECTED": str(REJECTED),
            "RUNNER": self.runner,
            **self._clock(name),
        }
        command = ("-m", "keygrouping", "app", "struck_app:app")
        self.deployment.start(name, environment, command, group=self.group, session_timeout=6, port=self.ports[name])

    async def _serves(self) -> bool:
        """Whether all processes have started; Spark tells of its interface when its queries run."""
        said = {name: self.deployment.log(name).read_text() for name in self.deployment.names}
        return all(("on port" if name in MEMBERS else "listening on") in text for name, text in said.items())

    def _clock(self, name: str) -> dict[str, str]:
        if name not in self.clocks:
            return {}
        self.clocks[name].write_text("+0")
        return {
            "LD_PRELOAD": str(faketime()),
            "FAKETIME_TIMESTAMP_FILE": str(self.clocks[name]),
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        }


def faketime() -> Path | None:
    """The library that moves a process's clock, if it is installed (Debian: libfaketime)."""
    for pattern in _LIBRARIES:
        for found in Path("/").glob(pattern[1:]):
            return found
    return None


@contextmanager
def small_disk(folder: Path) -> Iterator[Path | None]:
    """A disk of half a gigabyte in memory; None if this process may not mount one."""
    folder.mkdir(parents=True, exist_ok=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={_DISK_MEGABYTES}m", "none", str(folder)]
    if os.getuid() != 0 or shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@asynccontextmanager
async def world(folder: Path, application: str, runner: str = "native") -> AsyncIterator[World]:
    """Starts brokers, proxy and services in `folder`; ends all when left."""
    async with AsyncExitStack() as stack:
        disk = stack.enter_context(small_disk(folder / "disk"))
        folders = {SMALL_DISK: disk / "broker"} if disk else {}
        cluster = EmbeddedCluster(folder, folders=folders)
        stack.callback(cluster.stop)
        await asyncio.to_thread(cluster.start)
        proxy = stack.enter_context(Proxy(cluster.ports))
        deployment = await stack.enter_async_context(
            Deployment(cluster.bootstrap_servers, application, folder, JOB, shape=Shape(PARTITIONS, WORKERS))
        )
        clocks = {name: folder / f"{name}.clock" for name in _CLOCKED[runner]} if faketime() else {}
        ports = dict(zip(MEMBERS, free_ports(len(MEMBERS)), strict=True))
        made = World(cluster, proxy, deployment, folder, disk, clocks, runner, ports)
        made._start()
        await deployment.until(made._serves)
        yield made
