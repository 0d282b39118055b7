"""Kafka's tokens for Spark, whose clients are Java's: they ask the driver, as an OAuth client asks its server.

So the function that gives tokens runs in the driver alone. Clients of Kafka 3.9, which Spark has, would read a token
from a file once, and send the same one when it has ended.
"""

from __future__ import annotations

import base64
import hmac
import ipaddress
import json
import secrets
from typing import Any

from fastapi import APIRouter, HTTPException, Request
from keygrouping_kafka.sasl_tokens import Tokens
from keygrouping_service.errors import Fatal
from keygrouping_service.http.audit import set_caller
from pyspark.sql import SparkSession

from keygrouping_spark.access import CLIENT, TokenServer
from keygrouping_spark.settings import SparkSettings

PATH = "/kafka-token"


class TokenEndpoint:
    """Gives tokens to who has the secret that this driver has made up."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens
        self._secret = secrets.token_urlsafe(32)
        self.router = APIRouter()
        self.router.add_api_route(PATH, self._give, methods=["POST"], include_in_schema=False)

    async def login(self, settings: SparkSettings, spark: SparkSession, port: int) -> SparkSettings:
        """The settings by which Spark's clients ask here; `Fatal` if they can't, or would not take the tokens."""
        if not is_jwt(await self._tokens.token()):
            raise Fatal(
                "KEYGROUPING_SASL_TOKEN_PROVIDER gives a token that is no JWT with sub and exp, and Spark's clients, "
                "which are Java's, take no other: log in with SCRAM, or run native workers and aggregators"
            )
        where = f"http://{_host(settings.http_host, spark)}:{port}{PATH}"
        return settings.with_token_server(TokenServer(where, self._secret))

    async def _give(self, request: Request) -> dict[str, str]:
        given = request.headers.get("authorization", "")
        wanted = "Basic " + base64.b64encode(f"{CLIENT}:{self._secret}".encode()).decode()
        if not hmac.compare_digest(given.encode(), wanted.encode()):
            raise HTTPException(401, "only Spark's own clients get tokens here")
        set_caller(request, CLIENT)
        return {"access_token": await self._tokens.token(), "token_type": "Bearer"}


def is_jwt(token: str) -> bool:
    """Whether Java's clients take it: three parts, of which the second says whose it is and when it ends."""
    parts = token.split(".")
    if len(parts) != 3 or not all(parts):
        return False
    try:
        claims = json.loads(base64.urlsafe_b64decode(parts[1] + "=" * (-len(parts[1]) % 4)))
    except ValueError:
        return False
    if not isinstance(claims, dict):
        return False
    subject, end = claims.get("sub"), claims.get("exp")
    return isinstance(subject, str) and bool(subject.strip()) and isinstance(end, int | float)


def _host(listening: str, spark: SparkSession) -> str:
    """Where driver and executors reach what listens there."""
    context: Any = spark.sparkContext._jsc.sc()
    if not context.isLocal():
        if _is_loopback(listening):
            raise Fatal(
                f"KEYGROUPING_HTTP_HOST={listening} is reached from this machine alone, and Spark's executors ask the "
                "driver for tokens: set it to 0.0.0.0, or to the driver's address"
            )
        return str(spark.sparkContext.getConf().get("spark.driver.host"))
    if listening in ("0.0.0.0", "::"):
        return "127.0.0.1"
    return f"[{listening}]" if ":" in listening else listening


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
