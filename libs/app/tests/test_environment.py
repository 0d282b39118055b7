"""What the environment says goes over the code, and what is wrong there is told all at once."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from keygrouping_app import App, AppError, Event
from keygrouping_app.environment import NAMES, apply
from keygrouping_app.logs import JsonFormatter, set_up_logging

PASSWORD = {"KEYGROUPING_SECURITY_PROTOCOL": "SASL_PLAINTEXT", "KEYGROUPING_SASL_USERNAME": "shop"}
TOKENS = {"KEYGROUPING_SECURITY_PROTOCOL": "SASL_PLAINTEXT", "KEYGROUPING_SASL_MECHANISM": "OAUTHBEARER"}


async def token() -> str:
    return "by coroutine"


def plain_token() -> str:
    return "by function"


def app_of(**environment: str) -> App:
    app = App("billing", brokers="in-code:9092", session_timeout=30.0, kafka={"client_id": "mine"})

    @app.on("orders", timeout=60)
    async def charge(event: Event) -> None: ...

    apply(app, environment)
    return app


def faults(**environment: str) -> list[str]:
    with pytest.raises(AppError) as wrong:
        app_of(**environment)
    return wrong.value.faults


def test_without_variables_the_code_counts() -> None:
    settings = app_of(KEYGROUPING_APP_GROUP="", KEYGROUPING_EVENTS_TOPIC="of-others", HOME="/").settings()
    assert (settings.group, settings.brokers, settings.session_timeout) == ("billing", "in-code:9092", 30.0)
    assert settings.connection == {"bootstrap_servers": "in-code:9092", "client_id": "mine"}


def test_variables_go_over_the_code() -> None:
    app = app_of(
        KEYGROUPING_BOOTSTRAP_SERVERS="k:9092",
        KEYGROUPING_APP_GROUP="shop",
        KEYGROUPING_APP_DEAD_LETTERS="shop.dead",
        KEYGROUPING_APP_START="2026-01-01T00:00:00Z",
        KEYGROUPING_APP_UNTIL="latest",
        KEYGROUPING_APP_INSTANCE_ID="shop-0",
        KEYGROUPING_APP_SESSION_TIMEOUT="7.5",
        KEYGROUPING_APP_COMMIT_INTERVAL="1",
        KEYGROUPING_APP_MAX_EVENTS="5",
        KEYGROUPING_APP_MAX_BYTES="500",
        KEYGROUPING_APP_PORT="8080",
        KEYGROUPING_APP_STOP_SECONDS="70",
        KEYGROUPING_LOG_LEVEL="DEBUG",
        KEYGROUPING_LOG_FORMAT="json",
    )
    app.check()
    settings = app.settings()
    assert (settings.group, settings.brokers, settings.dead_letters) == ("shop", "k:9092", "shop.dead")
    assert (settings.start, settings.until, settings.instance_id) == (1767225600000, "latest", "shop-0")
    assert (settings.session_timeout, settings.commit_interval) == (7.5, 1.0)
    assert (settings.max_events, settings.max_bytes, app.port) == (5, 500, 8080)


@pytest.mark.parametrize("way", ["value", "file"])
def test_a_password_comes_as_a_value_or_better_as_a_file(way: str, tmp_path: Path) -> None:
    (tmp_path / "password").write_text("secret\n")
    file = {"KEYGROUPING_SASL_PASSWORD_FILE": str(tmp_path / "password")}
    given = {"KEYGROUPING_SASL_PASSWORD": "secret"} if way == "value" else file
    assert app_of(**PASSWORD, **given).settings().connection == {
        "bootstrap_servers": "in-code:9092",
        "client_id": "mine",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "PLAIN",
        "sasl_plain_username": "shop",
        "sasl_plain_password": "secret",
    }


@pytest.mark.parametrize(("function", "given"), [(token, "by coroutine"), (plain_token, "by function")])
async def test_tokens_come_from_a_function(function: Callable[..., Any], given: str) -> None:
    name = f"{__name__}:{function.__name__}"
    connection = app_of(**TOKENS, KEYGROUPING_SASL_TOKEN_PROVIDER=name).settings().connection
    assert connection["sasl_mechanism"] == "OAUTHBEARER"
    assert await connection["sasl_oauth_token_provider"].token() == given


def test_tls_trusts_the_systems_authorities_or_those_given() -> None:
    connection = app_of(KEYGROUPING_SECURITY_PROTOCOL="SSL").settings().connection
    assert connection["ssl_context"].check_hostname
    (told,) = faults(KEYGROUPING_SECURITY_PROTOCOL="SSL", KEYGROUPING_SSL_CAFILE="/no/such.crt")
    assert told.startswith("KEYGROUPING_SSL_CAFILE/CERTFILE/KEYFILE: ")


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"KEYGROUPING_APP_GROPU": "a"},
            "KEYGROUPING_APP_GROPU is no setting of an app: is KEYGROUPING_APP_GROUP meant?",
        ),
        ({"KEYGROUPING_APP_X": "a"}, "KEYGROUPING_APP_X is no setting of an app: there are KEYGROUPING_APP_GROUP, "),
        ({"KEYGROUPING_APP_PORT": "http"}, "KEYGROUPING_APP_PORT is 'http': give a number"),
        ({"KEYGROUPING_APP_STOP_SECONDS": "soon"}, "KEYGROUPING_APP_STOP_SECONDS is 'soon': give seconds"),
        (
            {"KEYGROUPING_APP_STOP_SECONDS": "69"},
            "has timeout=60 s, and the process is killed 69 s after SIGTERM: give it 70 s (on Kubernetes by",
        ),
        ({"KEYGROUPING_SECURITY_PROTOCOL": "TLS"}, "is 'TLS': give PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ({"KEYGROUPING_SASL_USERNAME": "a"}, "not used without KEYGROUPING_SECURITY_PROTOCOL, such as SASL_SSL"),
        (PASSWORD, "needs KEYGROUPING_SASL_USERNAME, and KEYGROUPING_SASL_PASSWORD or KEYGROUPING_SASL_PASSWORD_FILE"),
        (PASSWORD | {"KEYGROUPING_SASL_MECHANISM": "GSSAPI"}, "KEYGROUPING_SASL_MECHANISM is 'GSSAPI': give PLAIN"),
        (PASSWORD | {"KEYGROUPING_SASL_PASSWORD_FILE": "/no/such"}, "KEYGROUPING_SASL_PASSWORD_FILE: [Errno 2]"),
        (TOKENS, "KEYGROUPING_SASL_TOKEN_PROVIDER: "),
        (TOKENS | {"KEYGROUPING_SASL_TOKEN_PROVIDER": f"{__name__}:TOKENS"}, "is no function"),
    ],
)
def test_what_cannot_be_used_is_told(given: dict[str, str], told: str) -> None:
    (fault,) = faults(**given)
    assert told in fault


def test_tokens_of_msk_iam_say_what_installs_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "keygrouping_msk_iam", None)
    (fault,) = faults(**TOKENS, KEYGROUPING_SASL_TOKEN_PROVIDER="keygrouping_msk_iam:token")
    assert fault.startswith("KEYGROUPING_SASL_TOKEN_PROVIDER: ")
    assert fault.endswith("in the repository's folder, pip install ./libs/msk-iam")


def test_all_faults_are_told_at_once() -> None:
    given = {"KEYGROUPING_APP_PORT": "http", "KEYGROUPING_APP_X": "1", "KEYGROUPING_SECURITY_PROTOCOL": "TLS"}
    assert len(faults(**given)) == 3


LINKS = {
    "KEYGROUPING_APP_SERVICE_HOST": "10.96.0.11",
    "KEYGROUPING_APP_SERVICE_PORT": "8080",
    "KEYGROUPING_APP_SERVICE_PORT_HTTP": "8080",
    "KEYGROUPING_APP_PORT_8080_TCP": "tcp://10.96.0.11:8080",
    "KEYGROUPING_APP_PORT_8080_TCP_ADDR": "10.96.0.11",
}


def test_what_kubernetes_makes_of_a_service_is_no_setting() -> None:
    assert app_of(**LINKS).port is None
    assert app_of(**LINKS, KEYGROUPING_APP_PORT="9090").port == 9090
    (misspelt,) = faults(**LINKS, KEYGROUPING_APP_PROT="tcp://10.96.0.11:8080")
    assert misspelt.startswith("KEYGROUPING_APP_PROT is no setting of an app: is KEYGROUPING_APP_PORT meant?")
    (taken,) = faults(**LINKS, KEYGROUPING_APP_PORT="tcp://10.96.0.11:8080")
    assert taken == (
        "KEYGROUPING_APP_PORT: 'tcp://10.96.0.11:8080' is what Kubernetes has made of the service keygrouping-app: "
        "set enableServiceLinks: false in the pod's spec, or give the service another name"
    )


def test_every_name_says_what_it_means() -> None:
    assert all(name.startswith("KEYGROUPING_") and says for name, says in NAMES.items())


def test_logs_are_lines_or_objects(capsys: pytest.CaptureFixture[str]) -> None:
    record = logging.makeLogRecord(
        {"name": "shop", "levelname": "INFO", "msg": "%d paid", "args": (3,), "created": 0.5}
    )
    said: dict[str, Any] = json.loads(JsonFormatter().format(record))
    assert said == {"timestamp": "1970-01-01T00:00:00.500000Z", "level": "info", "logger": "shop", "event": "3 paid"}
    with pytest.raises(AppError, match=r"LOG_LEVEL is 'LOUD'(.|\n)*LOG_FORMAT is 'yaml'"):
        set_up_logging({"KEYGROUPING_LOG_LEVEL": "LOUD", "KEYGROUPING_LOG_FORMAT": "yaml"})
    capsys.readouterr()
