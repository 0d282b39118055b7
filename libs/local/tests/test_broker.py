"""Laws of the embedded broker."""

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.errors import LocalError
from keygrouping_local.jars import default_jars_dir
from keygrouping_local.ports import HOST, is_free

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(tmp_path_factory.mktemp("own") / "broker") as running:
        yield running


async def write(broker: EmbeddedBroker, topic: str, value: bytes) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, enable_idempotence=True) as producer:
        await producer.send_and_wait(topic, value, partition=0)


async def read(broker: EmbeddedBroker, topic: str, count: int) -> list[bytes]:
    async with AIOKafkaConsumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        await consumer.seek_to_beginning()
        return [(await consumer.getone()).value for _ in range(count)]


async def create(broker: EmbeddedBroker, topic: str) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 1, 1)])
    await admin.close()


async def test_records_and_address_survive_stop_and_kill(own_broker: EmbeddedBroker, topic_prefix: str) -> None:
    address = own_broker.bootstrap_servers
    await create(own_broker, topic_prefix)
    await write(own_broker, topic_prefix, b"before the stop")
    own_broker.restart()
    await write(own_broker, topic_prefix, b"before the kill")
    own_broker.kill()
    assert own_broker.pid is None
    own_broker.start()
    assert own_broker.bootstrap_servers == address
    assert await read(own_broker, topic_prefix, 2) == [b"before the stop", b"before the kill"]


async def test_data_survive_a_port_that_someone_took(own_broker: EmbeddedBroker, topic_prefix: str) -> None:
    await create(own_broker, topic_prefix)
    await write(own_broker, topic_prefix, b"kept")
    own_broker.stop()
    port = int(own_broker.bootstrap_servers.partition(":")[2])
    with socket.create_server((HOST, port)):
        own_broker.start()
        assert own_broker.bootstrap_servers != f"{HOST}:{port}"
        assert await read(own_broker, topic_prefix, 1) == [b"kept"]


def test_start_is_idempotent(own_broker: EmbeddedBroker) -> None:
    pid = own_broker.start().pid
    assert own_broker.start().pid == pid


def test_a_second_broker_on_the_same_folder_is_refused(own_broker: EmbeddedBroker) -> None:
    with pytest.raises(LocalError, match="another broker uses"):
        EmbeddedBroker(own_broker.log.parent).start()


def test_a_broker_that_dies_by_itself_is_noticed(own_broker: EmbeddedBroker) -> None:
    own_broker.check()
    assert own_broker.pid is not None
    process = psutil.Process(own_broker.pid)
    process.kill()
    psutil.wait_procs([process])
    with pytest.raises(LocalError, match="the broker ended"):
        own_broker.check()
    own_broker.restart()


def test_a_broker_started_in_a_thread_outlives_the_thread(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path / "broker")
    thread = threading.Thread(target=broker.start)
    thread.start()
    thread.join()
    try:
        broker.check()
        assert broker.pid is not None
    finally:
        broker.stop()


def test_the_broker_dies_with_its_parent_even_when_that_is_killed(tmp_path: Path) -> None:
    program = (
        "import sys, pathlib, keygrouping_local.broker as b\n"
        "print(b.EmbeddedBroker(pathlib.Path(sys.argv[1])).start().pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "broker")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert parent.stdout is not None
    child = psutil.Process(int(parent.stdout.readline()))
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()
    _, alive = psutil.wait_procs([child], timeout=20)
    assert not alive


def test_a_wanted_port_that_is_taken_is_told_in_one_line(tmp_path: Path) -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        assert not is_free(port)
        with pytest.raises(LocalError, match=f"port {port} is taken: .* choose another port$"):
            EmbeddedBroker(tmp_path, port=port).start()


def test_missing_jars_are_told_with_the_fix(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="run `make install`"):
        EmbeddedBroker(tmp_path, tmp_path / "no-jars").start()


def test_a_broker_that_can_not_start_says_why(tmp_path: Path) -> None:
    broker = EmbeddedBroker(tmp_path, default_jars_dir(), properties={"num.io.threads": "none"})
    with pytest.raises(LocalError, match=r"num\.io\.threads"):
        broker.start()
    assert broker.pid is None


def test_data_of_a_newer_kafka_are_told_with_the_fix(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fault = "org.apache.kafka.common.errors.UnsupportedVersionException: Can't read version 4 of BrokerEndpoint"
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"""#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "17.0.1"' >&2; exit; fi
echo "{fault}" >&2; exit 1
""")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    data = tmp_path / "data"
    (data / "kafka").mkdir(parents=True)
    (data / "kafka" / "meta.properties").touch()
    with pytest.raises(LocalError, match=f"^{data} was written by a newer Kafka, .*: remove that folder"):
        EmbeddedBroker(data).start()


def test_the_address_is_unknown_before_the_start(tmp_path: Path) -> None:
    with pytest.raises(LocalError, match="has not been started"):
        _ = EmbeddedBroker(tmp_path).bootstrap_servers
