"""Logging in with tokens: all services on a Kafka that takes OAUTHBEARER alone, with Kafka's own unsecured tokens."""

from __future__ import annotations

import asyncio
import base64
import os
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import orjson
import pytest
from aiokafka import TopicPartition
from aiokafka.errors import KafkaError
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.logins import launched, with_tokens
from keygrouping_local.ports import free_ports
from keygrouping_local.process import last_lines, spawn, terminate
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.topics import Topic, create_topics, topics_of
from keygrouping_service.settings import PREFIX, ServiceSettings
from keygrouping_service.testing import fetch, until

pytestmark = [pytest.mark.kafka]

SERVICES = ("router", "worker", "aggregator", "observer", "producer")
USER = "keygrouping"
JOB = '{"window": "1s", "lateness": "0s", "aggregates": [{"name": "n", "op": "count"}]}'
DEADLINE = 300
SECURITY = {
    "SECURITY_PROTOCOL": "SASL_PLAINTEXT",
    "SASL_MECHANISM": "OAUTHBEARER",
    "SASL_TOKEN_PROVIDER": "oauth_token:token",
}
MODULE = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_oauthbearer import token
"""


def token() -> str:
    """A JWS without signature, which Kafka takes by default; valid for a minute."""
    now = int(time.time())
    parts = ({"alg": "none"}, {"sub": USER, "iat": now - 5, "exp": now + 60})
    return ".".join([*(base64.urlsafe_b64encode(orjson.dumps(part)).decode().rstrip("=") for part in parts), ""])


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker that lets in whoever has a token; the brokers among themselves have passwords."""
    with launched(EmbeddedBroker(tmp_path / "broker", properties=with_tokens())) as broker:
        yield broker


@pytest.fixture
def environment(broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """That of all services, whose tokens come from a module that is installed beside them."""
    (tmp_path / "oauth_token.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    own = {"BOOTSTRAP_SERVERS": broker.bootstrap_servers, "JOB": JOB, "ROUTER_IDLE_TIMEOUT": "1", **SECURITY}
    for name, value in own.items():
        monkeypatch.setenv(PREFIX + name, value)
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {**kept, "PYTHONPATH": str(tmp_path)}


async def test_a_pipeline_logs_in_with_tokens(environment: dict[str, str], tmp_path: Path) -> None:
    settings = ServiceSettings()
    await ready(settings)
    ports = dict(zip(SERVICES, free_ports(len(SERVICES)), strict=True))
    environment |= {f"{PREFIX}{name.upper()}_HTTP_PORT": str(port) for name, port in ports.items()}
    environment |= {f"{PREFIX}OBSERVER_ROUTER_URL": f"http://127.0.0.1:{ports['router']}"}
    services = {
        name: spawn([sys.executable, "-m", f"keygrouping_{name}"], tmp_path / name, environment) for name in SERVICES
    }
    try:
        async with asyncio.timeout(DEADLINE):
            assert await first_result(settings)
            async with httpx.AsyncClient(timeout=60) as client:
                for port in ports.values():
                    await until(partial(is_ready, client, port))
    except TimeoutError:
        raise AssertionError({name: last_lines(tmp_path / name, 5) for name in services}) from None
    finally:
        codes = {name: terminate(process, DEADLINE) for name, process in services.items()}
    assert set(codes.values()) == {0}


async def ready(settings: ServiceSettings) -> None:
    """Makes the topics and some events, as soon as Kafka answers."""
    async with asyncio.timeout(DEADLINE):
        while True:
            try:
                async with clients.started(clients.admin(settings)) as admin:
                    await create_topics(admin, [*topics_of(settings, 1, 4), Topic("progress", 1)])
                    break
            except KafkaError:
                await asyncio.sleep(0.2)
    async with clients.started(clients.producer(settings)) as producer:
        for second in range(100):
            await producer.send(settings.events_topic, b"{}", b"k", 0, 1_700_000_000_000 + 1000 * second)
        await producer.flush()


async def is_ready(client: httpx.AsyncClient, port: int) -> bool:
    try:
        return (await client.get(f"http://127.0.0.1:{port}/readyz")).is_success
    except httpx.TransportError:
        return False


async def first_result(settings: ServiceSettings) -> bytes | None:
    async with clients.started(clients.reader(settings)) as reader:
        tp = TopicPartition(settings.results_topic, 0)
        reader.assign([tp])
        await reader.seek_to_beginning(tp)
        while True:
            for record in (await fetch(reader, tp, timeout_ms=200)).get(tp, ()):
                return record.value
