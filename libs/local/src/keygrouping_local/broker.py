"""An embedded Kafka broker (KRaft, one node, 127.0.0.1) for laptops and tests; data and address survive restarts."""

import base64
import fcntl
import json
import os
import re
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO

from keygrouping_local import archives
from keygrouping_local.errors import LocalError
from keygrouping_local.jars import default_jars_dir, require_jars
from keygrouping_local.java import find_java
from keygrouping_local.metadata import serves
from keygrouping_local.ports import HOST, free_ports, is_free
from keygrouping_local.process import killed_from_outside, last_lines, spawn, terminate

_POLL_SECONDS = 0.05
_PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "auto.create.topics.enable": "false",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "4",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # After a kill the controller waits for the dead broker's session to run out before the new one may register.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "message.max.bytes": str(2 * 1024 * 1024),
    "log.retention.ms": "-1",
    # A laptop may rest for weeks between two runs; the default forgets where its groups stood after one.
    "offsets.retention.minutes": str(10 * 365 * 24 * 60),
    "transactional.id.expiration.ms": str(2**31 - 1),
    "log.cleaner.dedupe.buffer.size": str(16 * 1024 * 1024),
    "num.network.threads": "2",
    "num.io.threads": "4",
}

# C1 only: the optimizing compiler would take 20 s of CPU in the first minute, beside all the others that start.
_JVM_OPTIONS = (
    "-XX:+UseSerialGC",
    "-XX:TieredStopAtLevel=1",
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
)

_OF_A_NEWER_KAFKA = re.compile(r"Can't read version \d+ of|[Nn]o MetadataVersion with feature level")
"""What Kafka says of a record, or of a `metadata.version`, that it does not know yet."""


class EmbeddedBroker:
    """A Kafka broker as a child process; a context manager, and startable again after stop() or kill().

    `data_dir` holds log, identity and ports: a later broker on the same folder is the same cluster at the same
    address, as long as the ports are free. `port` fixes the port (LocalError if it is taken), `heap` is the JVM's
    -Xmx, `properties` go over the built-in broker properties, `java_options` replace those that make it start from its
    class-data archive, `format_options` those that make the empty folder a cluster of its own. `timeout` is the seconds
    that start and stop may take: after a kill Kafka first reads the logs of all partitions again. The process is killed
    when this one ends.
    """

    def __init__(  # noqa: PLR0913 -- independent settings, each with a default
        self,
        data_dir: Path,
        jars_dir: Path | None = None,
        port: int | None = None,
        heap: str = "512m",
        properties: Mapping[str, str] | None = None,
        timeout: float = 180.0,
        java_options: Sequence[str] | None = None,
        format_options: Sequence[str] | None = None,
    ) -> None:
        self._dir = data_dir.absolute()
        self._jars_dir = jars_dir or default_jars_dir()
        self._wanted_port = port
        self._heap = heap
        self._extra = dict(properties or {})
        self._timeout = timeout
        self._java_options = archives.reading("broker") if java_options is None else java_options
        self._format_options = _alone() if format_options is None else format_options
        self._process: subprocess.Popen[bytes] | None = None
        self._lock: IO[str] | None = None
        self._port = 0

    @property
    def bootstrap_servers(self) -> str:
        """Address for clients, `127.0.0.1:PORT`; known once the broker has been started."""
        if not self._port:
            raise LocalError("the broker has not been started")
        return f"{HOST}:{self._port}"

    @property
    def pid(self) -> int | None:
        """Process id of the running broker."""
        return self._process.pid if self._process and self._process.poll() is None else None

    @property
    def log(self) -> Path:
        """File with all that the broker says."""
        return self._dir / "broker.log"

    @property
    def jars(self) -> list[Path]:
        """The broker's jars, which also hold Kafka's console tools."""
        return require_jars("broker", self._jars_dir)

    def start(self) -> "EmbeddedBroker":
        """Starts the broker and returns when it serves; does nothing if it runs."""
        if self.pid is None:
            self.launch()
            self.wait()
        return self

    def launch(self) -> None:
        """Starts the broker without waiting; its address is known then."""
        self._acquire()
        try:
            self._launch()
        except BaseException:
            self.kill()
            raise

    def wait(self, brokers: int = 1) -> None:
        """Returns when a launched broker serves and knows so many of its cluster, itself among them.

        Kills it and raises LocalError if that isn't so in time.
        """
        try:
            self._wait_until_it_serves(brokers)
        except BaseException:
            self.kill()
            raise

    def check(self) -> None:
        """Raises LocalError with the broker's last lines if it has ended by itself."""
        if self._process is not None and (code := self._process.poll()) is not None:
            if (killed := killed_from_outside(code)) is not None:
                raise LocalError(f"the broker {killed}; its log: {self.log}")
            lines = "".join(f"\n  {line}" for line in last_lines(self.log))
            raise LocalError(f"the broker ended with exit code {code}; its last lines:{lines}")

    def stop(self) -> None:
        """Ends the broker in order (a kill after `timeout` seconds)."""
        if self._process is not None:
            terminate(self._process, self._timeout)
        self._release()

    def kill(self) -> None:
        """Kills the broker at once (SIGKILL), as a fault would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._release()

    def restart(self) -> None:
        """Stops and starts again, with the same data at the same address."""
        self.stop()
        self.start()

    def __enter__(self) -> "EmbeddedBroker":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _acquire(self) -> None:
        self._dir.mkdir(parents=True, exist_ok=True)
        lock = (self._dir / "lock").open("w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            lock.close()
            raise LocalError(f"another broker uses {self._dir}: stop it first") from error
        self._lock = lock

    def _release(self) -> None:
        self._process = None
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def _launch(self) -> None:
        java = [str(find_java().path), "-cp", os.pathsep.join(map(str, self.jars))]
        self._port, controller = self._choose_ports()
        configuration = self._dir / "server.properties"
        configuration.write_text(self._server_properties(self._port, controller))
        if not (self._dir / "kafka" / "meta.properties").exists():
            _format(java, configuration, self._format_options)
        options = [f"-Xmx{self._heap}", *_JVM_OPTIONS, *self._java_options]
        self._process = spawn([*java, *options, "kafka.Kafka", configuration], self.log)

    def _choose_ports(self) -> tuple[int, int]:
        """Returns the ports of broker and controller: as wanted, else those of last time, else free ones."""
        if self._wanted_port is not None and not is_free(self._wanted_port):
            raise LocalError(f"port {self._wanted_port} is taken: end what listens there or choose another port")
        memory = self._dir / "ports.json"
        known: list[int] = json.loads(memory.read_text()) if memory.exists() else []
        wanted = [self._wanted_port or (known[0] if known else 0), known[1] if known else 0]
        fresh = free_ports(2)
        chosen = [port if port and is_free(port) else free for port, free in zip(wanted, fresh, strict=True)]
        memory.write_text(json.dumps(chosen))
        return chosen[0], chosen[1]

    def _server_properties(self, port: int, controller: int) -> str:
        addresses = {
            "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller}",
            "controller.quorum.bootstrap.servers": f"{HOST}:{controller}",
            "log.dirs": str(self._dir / "kafka"),
        }
        lines = (_PROPERTIES | addresses | self._extra).items()
        return "".join(f"{name}={value}\n" for name, value in lines)

    def _wait_until_it_serves(self, brokers: int) -> None:
        assert self._process is not None
        deadline = time.monotonic() + self._timeout
        while not serves(HOST, self._port, brokers):
            if self._process.poll() is not None:
                reason = self._reason()
                if _OF_A_NEWER_KAFKA.search(reason):
                    raise LocalError(
                        f"{self._dir} was written by a newer Kafka, whose data this one can't read ({reason}): "
                        "remove that folder, with all that the broker holds, or start the version that wrote it"
                    )
                raise LocalError(f"the broker ended ({reason}): see {self.log}")
            if time.monotonic() > deadline:
                raise LocalError(f"the broker does not serve after {self._timeout:.0f} s: see {self.log}")
            time.sleep(_POLL_SECONDS)

    def _reason(self) -> str:
        return _fault(last_lines(self.log, 200))


def new_id() -> str:
    """A Kafka UUID: 22 characters of URL-safe base64. A leading dash would read as an option of a command."""
    return "A" + base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()[1:]


def _alone() -> list[str]:
    return ["--standalone", f"--cluster-id={new_id()}"]


def _format(java: list[str], configuration: Path, options: Sequence[str]) -> None:
    """Gives the empty data folder a cluster id."""
    arguments = ["format", *options, "-c", str(configuration)]
    tool = [*java, *_JVM_OPTIONS, *archives.reading("broker"), "kafka.tools.StorageTool", *arguments]
    answer = subprocess.run(tool, capture_output=True, text=True)
    if answer.returncode != 0:
        reason = _fault((answer.stdout + answer.stderr).splitlines())
        raise LocalError(f"the broker's data folder can't be formatted: {reason}")


def _fault(lines: list[str]) -> str:
    """The line that tells most: the last that names an error and isn't part of a stack."""
    faults = [line for line in lines if re.search("ERROR|Exception", line) and not line.startswith("\t")]
    return (faults or lines or ["no output"])[-1].strip()
