"""Logging in with tokens: Spark's clients ask the driver for them, and again before they end."""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import httpx
import orjson
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError
from keygrouping.partial import Result
from keygrouping_kafka.sasl_tokens import Tokens
from keygrouping_local import archives
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.jars import default_jars_dir
from keygrouping_local.logins import launched, with_tokens
from keygrouping_local.process import last_lines, spawn, terminate
from keygrouping_local.small_spark import java_options
from keygrouping_service.errors import Fatal
from keygrouping_service.http.app import create_app, serving
from keygrouping_service.http.media import FORM
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.end_of_input import finish_input
from keygrouping_service.kafka.progress import Committed, Progress, commit_progress, partitions_of
from keygrouping_service.kafka.topics import create_topics, topics_of
from keygrouping_service.settings import PREFIX, ServiceSettings
from keygrouping_service.testing import fetch, until
from keygrouping_spark.settings import SparkSettings
from keygrouping_spark.token_endpoint import PATH, TokenEndpoint, is_jwt

SECRET = b"a secret of issuer and broker, of at least 32 bytes"
LIFETIME, GRACE = 20, 10
"""Seconds that a token is valid, and that the broker takes it after that, so that a busy machine may be late."""
WINDOW = 60_000
WORKERS = 2
JOB = '{"window": "1m", "lateness": "0s", "aggregates": [{"name": "n", "op": "count"}]}'
LOGIN = {
    "SECURITY_PROTOCOL": "SASL_PLAINTEXT",
    "SASL_MECHANISM": "OAUTHBEARER",
    "SASL_TOKEN_PROVIDER": "signed_token:token",
}
MODULE = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from test_tokens import token
"""


def token() -> str:
    """A signed token, as an issuer gives them."""
    now = int(time.time())
    return jwt({"sub": "keygrouping", "iat": now, "exp": now + LIFETIME})


def jwt(claims: object) -> str:
    signed = ".".join(encoded(orjson.dumps(part)) for part in ({"alg": "HS256"}, claims))
    return f"{signed}.{encoded(hmac.digest(SECRET, signed.encode(), hashlib.sha256))}"


def encoded(part: bytes) -> str:
    return base64.urlsafe_b64encode(part).decode().rstrip("=")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker that lets in who has a signed token, for as long as the token is valid."""
    keys = tmp_path / "keys.json"
    keys.write_bytes(orjson.dumps({"keys": [{"kty": "oct", "alg": "HS256", "k": encoded(SECRET)}]}))
    made = EmbeddedBroker(
        tmp_path / "broker",
        properties={
            **with_tokens("org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"),
            "listener.name.plaintext.oauthbearer.connections.max.reauth.ms": str(LIFETIME * 1000),
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "sasl.oauthbearer.clock.skew.seconds": str(GRACE),
        },
        java_options=[*archives.reading("broker"), f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={keys.as_uri()}"],
    )
    with launched(made) as broker:
        yield broker


@pytest.fixture
def environment(broker: EmbeddedBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The job's, whose tokens come from a module that is installed beside it."""
    (tmp_path / "signed_token.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name, value in {"BOOTSTRAP_SERVERS": broker.bootstrap_servers, **LOGIN}.items():
        monkeypatch.setenv(PREFIX + name, value)
    own = {
        "JOB": JOB,
        "SPARK_CHECKPOINT": str(tmp_path / "checkpoint"),
        "SPARK_JARS": str(default_jars_dir() / "spark"),
        "SPARK_SHUFFLE_PARTITIONS": "2",
        "SPARK_TRIGGER_SECONDS": "0.2",
        "SPARK_JAVA_OPTIONS": java_options(archives.reading("spark")),
    }
    kept = {name: value for name, value in os.environ.items() if name != "SPARK_HOME"}
    settings = {PREFIX + name: value for name, value in own.items()}
    # What the tests run with stays: another version of Spark, for one.
    path = os.pathsep.join(filter(None, (str(tmp_path), os.environ.get("PYTHONPATH"))))
    return {**kept, **settings, "PYTHONPATH": path, "PYSPARK_PYTHON": sys.executable}


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.timeout(1800)
async def test_the_job_logs_in_with_tokens_and_with_new_ones_when_they_end(
    environment: dict[str, str], tmp_path: Path
) -> None:
    settings = ServiceSettings()
    await until(partial(topics_are_made, settings))
    log = tmp_path / "driver.log"
    driver = spawn([sys.executable, "-m", "keygrouping_spark"], log, environment)
    try:
        await send(settings, 0)
        await promise(settings, WINDOW)
        await until(partial(has_results, settings, 1, driver, log))
        await until(partial(passed, time.monotonic() + LIFETIME + GRACE))
        await send(settings, 1)
        await finish_input(settings)
        await until(partial(has_results, settings, 2, driver, log))
    finally:
        code = terminate(driver, 300)
    assert code == 0, last_lines(log, 30)
    found = [(r.key, r.start, r.aggregates["n"]) for r in await results(settings)]
    assert sorted(found) == [(key, n * WINDOW, 10) for key in (b"a", b"b") for n in range(2)]


def passed(moment: float) -> bool:
    return time.monotonic() > moment


async def topics_are_made(settings: ServiceSettings) -> bool:
    try:
        async with clients.started(clients.admin(settings)) as admin:
            await create_topics(admin, topics_of(settings, 1, WORKERS))
    except KafkaError:
        return False
    return True


async def send(settings: ServiceSettings, window: int) -> None:
    """Ten events of each of two keys, a key for each worker."""
    async with clients.started(clients.producer(settings)) as producer:
        for second in range(10):
            for worker, key in enumerate((b"a", b"b")):
                await producer.send(settings.routed_topic, b"{}", key, worker, window * WINDOW + second)
        await producer.flush()


async def promise(settings: ServiceSettings, event_time: int) -> None:
    """The router says that it sends nothing before this time any more."""
    options = {**settings.kafka_options(), "enable_auto_commit": False}
    async with clients.started(AIOKafkaConsumer(group_id=settings.group("router"), **options)) as consumer:
        consumer.assign([TopicPartition(settings.events_topic, 0)])
        await commit_progress(consumer, settings.events_topic, {0: Committed(0, Progress(event_time))})


async def results(settings: ServiceSettings) -> list[Result]:
    """All that are committed."""
    async with clients.started(clients.admin(settings)) as admin, clients.started(clients.reader(settings)) as reader:
        found: list[Result] = []
        for partition in await partitions_of(admin, settings.results_topic):
            tp = TopicPartition(settings.results_topic, partition)
            reader.assign([tp])
            end = (await reader.end_offsets([tp]))[tp]
            await reader.seek_to_beginning(tp)
            while await reader.position(tp) < end:
                records = (await fetch(reader, tp, timeout_ms=200)).get(tp, ())
                found += [Result.decode(record.value) for record in records if record.value is not None]
        return found


async def has_results(settings: ServiceSettings, windows: int, driver: Any, log: Path) -> bool:
    assert driver.poll() is None, last_lines(log, 30)
    return len(await results(settings)) >= 2 * windows


async def opaque() -> str:
    return base64.urlsafe_b64encode(b"https://kafka.eu-west-1.amazonaws.com/?Action=...").decode()


@pytest.mark.parametrize(
    ("given", "taken"),
    [
        pytest.param(token(), True, id="signed"),
        pytest.param(jwt({"sub": "a", "exp": 1.5}), True, id="a fraction of a second"),
        pytest.param(jwt({"sub": " ", "exp": 1}), False, id="blank subject"),
        pytest.param(jwt({"exp": 1}), False, id="no subject"),
        pytest.param(jwt({"sub": "a"}), False, id="no end"),
        pytest.param(jwt([]), False, id="no object"),
        pytest.param(token().rpartition(".")[0] + ".", False, id="no signature"),
        pytest.param("a.b.c", False, id="not base64"),
        pytest.param("opaque", False, id="opaque"),
    ],
)
def test_java_takes_signed_jwts_that_say_whose_they_are_and_when_they_end(given: str, taken: bool) -> None:
    assert is_jwt(given) == taken


def job_settings(**changes: str) -> SparkSettings:
    """Settings with a function that is never called."""
    given = {"bootstrap_servers": "none:9", "checkpoint": "none", "job": JOB, **changes}
    login = {name.lower(): value for name, value in LOGIN.items()} | {"sasl_token_provider": "time:ctime"}
    return SparkSettings.model_validate(login | given)


class Context:
    """What is asked of a Spark session, in one process or with executors."""

    def __init__(self, *, local: bool) -> None:
        self._local = local
        self.sparkContext = self._jsc = self
        self.sc = self.getConf = lambda: self

    def isLocal(self) -> bool:
        return self._local

    def get(self, name: str) -> str:
        return {"spark.driver.host": "driver.shop.svc"}[name]


async def test_tokens_that_java_does_not_take_are_told_at_the_start() -> None:
    with pytest.raises(Fatal, match="no JWT with sub and exp"):
        await TokenEndpoint(Tokens(opaque)).login(job_settings(), cast(Any, Context(local=True)), 1)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
async def test_executors_that_cannot_ask_are_told_at_the_start(host: str) -> None:
    with pytest.raises(Fatal, match=f"KEYGROUPING_HTTP_HOST={host} is reached from this machine alone"):
        await TokenEndpoint(Tokens(token)).login(job_settings(http_host=host), cast(Any, Context(local=False)), 1)


@pytest.mark.parametrize(
    ("listening", "local", "asked"),
    [
        ("0.0.0.0", False, "driver.shop.svc"),
        ("0.0.0.0", True, "127.0.0.1"),
        ("127.0.0.1", True, "127.0.0.1"),
        ("::1", True, "[::1]"),
    ],
)
async def test_clients_ask_where_the_driver_is_reached(listening: str, local: bool, asked: str) -> None:
    settings = job_settings(http_host=listening)
    made = await TokenEndpoint(Tokens(token)).login(settings, cast(Any, Context(local=local)), 8080)
    options = made.spark_kafka_options()
    assert options["kafka.sasl.oauthbearer.token.endpoint.url"] == f"http://{asked}:8080{PATH}"
    assert options["kafka.sasl.mechanism"] == "OAUTHBEARER"


def settings_at(made: SparkSettings, url: str) -> SparkSettings:
    """The same, where the endpoint has another address."""
    assert made._token_server is not None
    return made.with_token_server(replace(made._token_server, url=url))


async def test_only_who_has_the_secret_of_the_driver_gets_a_token() -> None:
    endpoint = TokenEndpoint(Tokens(token))
    app = create_app("test", lambda: True, endpoint.router)
    made = await endpoint.login(job_settings(), cast(Any, Context(local=True)), 1)
    secret = made.spark_kafka_options()["kafka.sasl.jaas.config"].partition('clientSecret="')[2].partition('"')[0]
    async with serving(app, "127.0.0.1", 0, media=(FORM,)) as port, httpx.AsyncClient() as client:
        ask = partial(client.post, f"http://127.0.0.1:{port}{PATH}", data={"grant_type": "client_credentials"})
        given = await ask(auth=("spark", secret))
        assert is_jwt(given.json()["access_token"])
        by_task = settings_at(made, f"http://127.0.0.1:{port}{PATH}").access().options["sasl_oauth_token_provider"]
        assert is_jwt(await by_task.token())
        assert (await ask()).status_code == 401
        for auth in (("spark", "a guess"), ("other", secret)):
            assert (await ask(auth=auth)).status_code == 401
