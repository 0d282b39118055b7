"""Logging in as at Amazon MSK with IAM: signed tokens over Kafka's own OAUTHBEARER, read by the broker as MSK does."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path

import keygrouping_msk_iam
import pytest
from aiokafka.errors import KafkaError
from keygrouping.app import App, Event
from keygrouping_local.broker import EmbeddedBroker
from keygrouping_local.java import find_java
from keygrouping_local.logins import launched, with_tokens
from keygrouping_msk_iam import MskIam
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.topics import Topic, create_topics
from keygrouping_service.settings import PREFIX, ServiceSettings
from keygrouping_service.testing import until

pytestmark = [pytest.mark.kafka]

USER = "AKIDEXAMPLE"
VALIDATOR = """
import java.nio.charset.StandardCharsets;
import java.util.*;
import javax.security.auth.callback.*;
import javax.security.auth.login.AppConfigurationEntry;
import org.apache.kafka.common.security.auth.AuthenticateCallbackHandler;
import org.apache.kafka.common.security.oauthbearer.*;

/** Lets in who has asked, as USER in REGION, to connect; it does not know the secret, so it can't check signatures. */
public class MskValidator implements AuthenticateCallbackHandler {
    public void configure(Map<String, ?> configs, String mechanism, List<AppConfigurationEntry> entries) {}
    public void close() {}
    public void handle(Callback[] callbacks) throws UnsupportedCallbackException {
        for (Callback each : callbacks) {
            if (each instanceof OAuthBearerValidatorCallback) validate((OAuthBearerValidatorCallback) each);
            else if (!(each instanceof OAuthBearerExtensionsValidatorCallback))
                throw new UnsupportedCallbackException(each);
        }
    }
    private void validate(OAuthBearerValidatorCallback callback) {
        String value = callback.tokenValue();
        String url = new String(Base64.getUrlDecoder().decode(value), StandardCharsets.UTF_8);
        boolean good = url.startsWith("https://kafka.eu-west-1.amazonaws.com/")
            && url.contains("Action=kafka-cluster%3AConnect") && url.contains("X-Amz-Credential=AKIDEXAMPLE%2F")
            && url.matches(".*X-Amz-Signature=[0-9a-f]{64}.*");
        if (!good) { callback.error("invalid_token", null, null); return; }
        long now = System.currentTimeMillis();
        callback.token(new OAuthBearerToken() {
            public String value() { return value; }
            public Set<String> scope() { return Set.of(); }
            public long lifetimeMs() { return now + 900_000; }
            public String principalName() { return "AKIDEXAMPLE"; }
            public Long startTimeMs() { return now; }
        });
    }
}
"""


class Broker(EmbeddedBroker):
    """One with a class of the test's own."""

    classes: Path

    @property
    def jars(self) -> list[Path]:
        return [self.classes, *super().jars]


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    """A broker that lets in whoever has a token; the brokers among themselves have passwords."""
    broker = Broker(tmp_path / "broker", properties=with_tokens("MskValidator"))
    broker.classes = tmp_path
    source = tmp_path / "MskValidator.java"
    source.write_text(VALIDATOR)
    compiler = find_java().path.with_name("javac")
    subprocess.run([compiler, "-cp", ":".join(map(str, broker.jars)), "-d", tmp_path, source], check=True, timeout=120)
    with launched(broker):
        yield broker


async def test_services_and_apps_log_in_with_signed_tokens(
    broker: EmbeddedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keygrouping_msk_iam, "_provider", None)
    for name, value in {
        "AWS_ACCESS_KEY_ID": USER,
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "eu-west-1",
        f"{PREFIX}BOOTSTRAP_SERVERS": broker.bootstrap_servers,
        f"{PREFIX}SECURITY_PROTOCOL": "SASL_PLAINTEXT",
        f"{PREFIX}SASL_MECHANISM": "OAUTHBEARER",
        f"{PREFIX}SASL_TOKEN_PROVIDER": "keygrouping_msk_iam:token",
    }.items():
        monkeypatch.setenv(name, value)
    settings = ServiceSettings()

    async def made() -> bool:
        try:
            async with clients.started(clients.admin(settings)) as admin:
                await create_topics(admin, [Topic("orders", 1), Topic("dead-letters", 1)])
        except KafkaError:
            return False
        return True

    await until(made)
    async with clients.started(clients.producer(settings)) as producer:
        await producer.send_and_wait("orders", b"{}", b"alice")
    assert await handled_by_an_app(broker, MskIam("eu-west-1")) == ["alice"]
    with pytest.raises(KafkaError):
        await handled_by_an_app(broker, MskIam("us-east-1"))


async def handled_by_an_app(broker: EmbeddedBroker, tokens: MskIam) -> list[str]:
    """The key of the first event that an app handles."""
    login = {
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "OAUTHBEARER",
        "sasl_oauth_token_provider": tokens,
    }
    app = App("billing", brokers=broker.bootstrap_servers, kafka=login)
    keys: list[str] = []

    @app.on("orders")
    async def charge(event: Event) -> None:
        keys.append(event.key)

    stop = asyncio.Event()
    running = asyncio.create_task(app.serve(stop))
    try:
        await until(lambda: keys or running.done())
    finally:
        stop.set()
        await running
    return keys
