"""Three embedded brokers as one Kafka cluster: every record on all three, acknowledged once two have it."""

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from keygrouping_local.broker import EmbeddedBroker, new_id
from keygrouping_local.errors import LocalError
from keygrouping_local.ports import HOST, free_ports

BROKERS = 3

_PROPERTIES = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "unclean.leader.election.enable": "false",
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "share.coordinator.state.topic.replication.factor": "3",
    "share.coordinator.state.topic.min.isr": "2",
    "replica.lag.time.max.ms": "5000",
    # Leaders go back to where they were within seconds after their broker is there again, not after five minutes.
    "leader.imbalance.check.interval.seconds": "5",
    "leader.imbalance.per.broker.percentage": "0",
    # A busy machine is not a dead broker.
    "broker.session.timeout.ms": "6000",
}


class EmbeddedCluster:
    """Three brokers as child processes, each also a controller; a context manager that starts and ends them all.

    `brokers` are numbered from 0 and may be stopped, killed and started one by one; two of them must run for the
    cluster to serve. Broker n keeps its data in `folder/broker-n`, or where `folders` says; `properties` go over the
    built-in ones. The folder belongs to one object: a later one makes a cluster of its own, in another folder.
    """

    def __init__(
        self,
        folder: Path,
        *,
        heap: str = "384m",
        properties: Mapping[str, str] | None = None,
        folders: Mapping[int, Path] | None = None,
    ) -> None:
        ports = free_ports(2 * BROKERS)
        self.ports, self._controllers = ports[:BROKERS], ports[BROKERS:]
        identities = [new_id() for _ in range(BROKERS)]
        voters = ",".join(f"{n + 1}@{HOST}:{port}:{identities[n]}" for n, port in enumerate(self._controllers))
        options = [f"--cluster-id={new_id()}", f"--initial-controllers={voters}"]
        self.brokers = [
            EmbeddedBroker(
                (folders or {}).get(n, folder / f"broker-{n}"),
                port=self.ports[n],
                heap=heap,
                properties=_PROPERTIES | self._addresses(n) | dict(properties or {}),
                format_options=options,
            )
            for n in range(BROKERS)
        ]

    @property
    def bootstrap_servers(self) -> str:
        """Address for clients: all brokers."""
        return ",".join(f"{HOST}:{port}" for port in self.ports)

    def start(self) -> "EmbeddedCluster":
        """Starts all brokers at once and returns when they all serve, and know each other."""
        try:
            for broker in self.brokers:
                broker.launch()
            for broker in self.brokers:
                broker.wait(BROKERS)
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Ends all brokers at once: without the others none of them could end in order."""
        for broker in self.brokers:
            broker.kill()

    def freeze(self, number: int) -> None:
        """Stops a broker in the midst of what it does (SIGSTOP), until `thaw`."""
        os.kill(self._pid(number), signal.SIGSTOP)

    def thaw(self, number: int) -> None:
        """Lets a frozen broker go on."""
        os.kill(self._pid(number), signal.SIGCONT)

    def __enter__(self) -> "EmbeddedCluster":
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _pid(self, number: int) -> int:
        pid = self.brokers[number].pid
        if pid is None:
            raise LocalError(f"broker {number} does not run")
        return pid

    def _addresses(self, number: int) -> dict[str, str]:
        listeners = f"PLAINTEXT://{HOST}:{self.ports[number]},CONTROLLER://{HOST}:{self._controllers[number]}"
        return {
            "node.id": str(number + 1),
            "listeners": listeners,
            "advertised.listeners": listeners,
            "controller.quorum.bootstrap.servers": ",".join(f"{HOST}:{port}" for port in self._controllers),
        }
