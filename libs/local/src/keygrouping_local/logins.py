"""Embedded brokers that let in only who logs in, for tests of logins."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from keygrouping_local.broker import EmbeddedBroker

_LOGIN = "org.apache.kafka.common.security"
_LISTENER = "listener.name.plaintext"

PASSWORD = "inner"
"""Of every user with a password, the broker's own among them."""


def with_passwords(
    users: Iterable[str] = (), mechanisms: Iterable[str] = (), protocol: str = "SASL_PLAINTEXT"
) -> dict[str, str]:
    """Properties of a broker that takes `PLAIN` of itself and of `users`, and what else `mechanisms` names."""
    known = " ".join(f'user_{name}="{PASSWORD}"' for name in ("broker", *users))
    return {
        "listener.security.protocol.map": f"PLAINTEXT:{protocol},CONTROLLER:PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(["PLAIN", *mechanisms]),
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        f"{_LISTENER}.plain.sasl.jaas.config": f"{_LOGIN}.plain.PlainLoginModule required "
        f'username="broker" password="{PASSWORD}" {known};',
    }


def with_tokens(handler: str | None = None) -> dict[str, str]:
    """Properties of a broker that takes tokens, too.

    `handler` names the Java class that judges tokens; without one Kafka takes those that nobody signed.
    """
    judge = {f"{_LISTENER}.oauthbearer.sasl.server.callback.handler.class": handler} if handler else {}
    return {
        **with_passwords(mechanisms=["OAUTHBEARER"]),
        f"{_LISTENER}.oauthbearer.sasl.jaas.config": f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule "
        'required unsecuredLoginStringClaim_sub="broker";',
        **judge,
    }


@contextmanager
def launched(broker: EmbeddedBroker) -> Iterator[EmbeddedBroker]:
    """Runs it without waiting until it serves, which only who logs in can see."""
    broker.launch()
    try:
        yield broker
    finally:
        broker.stop()
