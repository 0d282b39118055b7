"""How Spark's tasks reach Kafka: what the driver's settings and files say, as executors need not have those files."""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import httpx
from aiokafka.abc import AbstractTokenProvider
from aiokafka.errors import KafkaConnectionError

CLIENT = "spark"
"""The name by which Spark's clients ask for tokens."""

_OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLogin"
_ANSWER_MS = 10_000
"""For connecting, and for the answer: the function may ask somebody."""


@dataclass(frozen=True)
class TokenServer(AbstractTokenProvider):  # type: ignore[misc]
    """Where Spark's clients get tokens: the driver, which gives them to who has its secret (see `token_endpoint`)."""

    url: str
    secret: str = field(repr=False)

    @property
    def login(self) -> tuple[str, str]:
        """User and password there."""
        return CLIENT, self.secret

    async def token(self) -> str:
        """A token that is valid now."""
        form = {"grant_type": "client_credentials"}
        try:
            # No proxy of the environment may see the secret.
            async with httpx.AsyncClient(timeout=_ANSWER_MS / 1000, trust_env=False) as client:
                answer = await client.post(self.url, data=form, auth=self.login)
                return str(answer.raise_for_status().json()["access_token"])
        except (httpx.HTTPError, ValueError, KeyError) as error:
            raise KafkaConnectionError(f"the driver gives no token for Kafka: {error!r}") from error

    def java_options(self) -> dict[str, str]:
        """Options of Java's clients, to ask the same."""
        return {
            "sasl.jaas.config": f'{_OAUTH}Module required clientId="{CLIENT}" clientSecret="{self.secret}";',
            "sasl.login.callback.handler.class": f"{_OAUTH}CallbackHandler",
            "sasl.login.connect.timeout.ms": str(_ANSWER_MS),
            "sasl.login.read.timeout.ms": str(_ANSWER_MS),
            "sasl.oauthbearer.token.endpoint.url": self.url,
        }


@dataclass(frozen=True)
class Certificates:
    """What TLS needs, as texts in PEM."""

    authorities: str | None
    """The CAs to trust; None: those of the system."""
    chain: str | None = field(repr=False)
    """The client's certificate, if it has one; its key may be in it."""
    key: str | None = field(repr=False)

    def context(self) -> ssl.SSLContext:
        """The TLS context."""
        # What is between certificates may be in any language, and is refused unless it is ASCII.
        authorities = self.authorities and self.authorities.encode("ascii", "ignore").decode()
        context = ssl.create_default_context(cadata=authorities)
        if self.chain:
            # OpenSSL takes them from files alone: from one in memory.
            with open(os.memfd_create("certificate"), "w") as file:
                file.write("\n".join(filter(None, (self.chain, self.key))))
                file.flush()
                context.load_cert_chain(f"/proc/self/fd/{file.fileno()}")
        return context


@dataclass(frozen=True)
class Access:
    """A cluster, and how to log in there; it goes to the tasks by value."""

    options: Mapping[str, Any] = field(repr=False)
    """Of every client, but for its TLS context."""
    certificates: Certificates | None

    def kafka_options(self) -> dict[str, Any]:
        """Keyword arguments that every aiokafka client takes."""
        tls = {"ssl_context": self.certificates.context()} if self.certificates else {}
        return {**self.options, **tls}
