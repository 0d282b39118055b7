"""What an app takes from the environment: its image stays the same in every environment.

Names that all services have mean the same here, such as `KEYGROUPING_SASL_USERNAME`; an app's own begin with
`KEYGROUPING_APP_`. An empty variable counts as none. What is given goes over what the code says.
"""

from __future__ import annotations

import difflib
import ssl
from collections.abc import Callable, Iterable, Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any, Protocol

from keygrouping_app.handlers import AppError, Handler

PREFIX = "KEYGROUPING_"
OWN = f"{PREFIX}APP_"
BROKERS = f"{PREFIX}BOOTSTRAP_SERVERS"
LOG_LEVEL, LOG_FORMAT = f"{PREFIX}LOG_LEVEL", f"{PREFIX}LOG_FORMAT"

_ARGUMENTS: dict[str, tuple[str, Callable[[str], Any], str]] = {
    BROKERS: ("brokers", str, "host:port of one or more brokers, by commas"),
    f"{OWN}GROUP": ("name", str, "the App's name, which is its consumer group's"),
    f"{OWN}DEAD_LETTERS": ("dead_letters", str, "topic for events that have failed for good"),
    f"{OWN}START": ("start", str, "where the app begins: earliest, latest, or a time"),
    f"{OWN}UNTIL": ("until", str, "where it ends, a backfill: latest, or a time"),
    f"{OWN}INSTANCE_ID": ("instance_id", str, "makes the member static: the same after a restart, each member another"),
    f"{OWN}SESSION_TIMEOUT": ("session_timeout", float, "seconds until a member that fell silent loses its partitions"),
    f"{OWN}COMMIT_INTERVAL": ("commit_interval", float, "seconds between commits"),
    f"{OWN}MAX_EVENTS": ("max_events", int, "events that a member holds in memory at most"),
    f"{OWN}MAX_BYTES": ("max_bytes", int, "bytes that a member holds in memory at most"),
    f"{OWN}PORT": ("port", int, "port of /metrics, /healthz, /readyz, /keys, /grouping and /state"),
}
_STOP = f"{OWN}STOP_SECONDS"
_SECURITY = {
    f"{PREFIX}SECURITY_PROTOCOL": "PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL",
    f"{PREFIX}SASL_MECHANISM": "PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER",
    f"{PREFIX}SASL_USERNAME": "user name at Kafka",
    f"{PREFIX}SASL_PASSWORD": "its password; better given as a file",
    f"{PREFIX}SASL_PASSWORD_FILE": "file that holds the password",
    f"{PREFIX}SASL_TOKEN_PROVIDER": "with OAUTHBEARER: module:function that takes nothing and gives a token",
    f"{PREFIX}SSL_CAFILE": "the CAs to trust; unset: those of the system",
    f"{PREFIX}SSL_CERTFILE": "the client's certificate, if Kafka asks for one",
    f"{PREFIX}SSL_KEYFILE": "its key; unset: in the file of the certificate",
}
_OTHERS = {
    _STOP: "seconds that the process has after SIGTERM; an app whose handlers may run longer does not start",
    LOG_LEVEL: "DEBUG, INFO, WARNING or ERROR",
    LOG_FORMAT: "text, or json: one object a line",
}
NAMES: dict[str, str] = {**{name: says for name, (_, _, says) in _ARGUMENTS.items()}, **_SECURITY, **_OTHERS}
"""All variables, and what they mean."""

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_STOPPING = 10.0
"""Seconds beyond the longest call that a stop may take: what has ended is committed, and the group left."""


class Configurable(Protocol):
    """An `App`, as far as it takes what the environment says."""

    @property
    def handlers(self) -> Sequence[Handler]:
        """Its functions."""

    def override(self, given: Mapping[str, Any], connection: Mapping[str, Any]) -> None:
        """Takes other values for arguments of `App`, by name, and further options of aiokafka's clients."""


def apply(app: Configurable, environment: Mapping[str, str]) -> None:
    """Gives an app what the environment says; AppError with all that is wrong there.

    What Kubernetes makes of a service called such as `keygrouping-app` is no setting.
    """
    from keygrouping.service_links import collision, service_links

    links = service_links(environment)
    given = {name: value for name, value in environment.items() if value and (name in NAMES or name not in links)}
    faults = [*_unknown(given), *_too_slow(app, given)]
    found: dict[str, Any] = {}
    for name, (argument, read, _) in _ARGUMENTS.items():
        if name in given:
            try:
                found[argument] = read(given[name])
            except ValueError:
                taken = name in links
                wrong = f"{name} is {given[name]!r}: give a number"
                faults.append(collision(name, given[name], links[name]) if taken else wrong)
    try:
        options = _connection(given)
    except ValueError as error:
        faults.append(str(error))
    if faults:
        raise AppError(faults)
    app.override(found, options)


def _unknown(given: Iterable[str]) -> Iterable[str]:
    """Other names of an app's own section are slips of the pen."""
    known = [name.removeprefix(OWN) for name in NAMES if name.startswith(OWN)]
    for name in sorted(given):
        if name.startswith(OWN) and name not in NAMES:
            close = difflib.get_close_matches(name.removeprefix(OWN), known, 1)
            meant = f"is {OWN}{close[0]} meant?" if close else f"there are {', '.join(OWN + each for each in known)}"
            yield f"{name} is no setting of an app: {meant}"


def _too_slow(app: Configurable, given: Mapping[str, str]) -> Iterable[str]:
    """A call that may outlast the process would be killed, and run again elsewhere, after every stop."""
    if _STOP not in given:
        return
    try:
        seconds = float(given[_STOP])
    except ValueError:
        yield f"{_STOP} is {given[_STOP]!r}: give seconds"
        return
    for handler in app.handlers:
        if not isinstance(handler.timeout, Real):
            continue  # which the app tells
        needed = handler.timeout + _STOPPING
        if needed > seconds:
            yield (
                f"{handler.name} on {handler.topic.name!r} has timeout={handler.timeout:g} s, and the process is "
                f"killed {seconds:g} s after SIGTERM: give it {needed:g} s (on Kubernetes by "
                "terminationGracePeriodSeconds), or the handler a shorter timeout"
            )


def _connection(given: Mapping[str, str]) -> dict[str, Any]:
    """aiokafka's options for security; ValueError if they don't go together."""
    protocol = given.get(f"{PREFIX}SECURITY_PROTOCOL")
    if protocol is None:
        if said := sorted(_SECURITY.keys() & given.keys()):
            raise ValueError(f"{', '.join(said)}: not used without {PREFIX}SECURITY_PROTOCOL, such as SASL_SSL")
        return {}
    if protocol not in _PROTOCOLS:
        raise ValueError(f"{PREFIX}SECURITY_PROTOCOL is {protocol!r}: give {', '.join(_PROTOCOLS)}")
    options: dict[str, Any] = {"security_protocol": protocol}
    if protocol.startswith("SASL"):
        options |= _login(given)
    if protocol.endswith("SSL"):
        options["ssl_context"] = _tls(given)
    return options


def _login(given: Mapping[str, str]) -> dict[str, Any]:
    mechanism = given.get(f"{PREFIX}SASL_MECHANISM", "PLAIN")
    if mechanism not in _MECHANISMS:
        raise ValueError(f"{PREFIX}SASL_MECHANISM is {mechanism!r}: give {', '.join(_MECHANISMS)}")
    if mechanism == "OAUTHBEARER":
        return {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": _tokens(given)}
    user, password = given.get(f"{PREFIX}SASL_USERNAME"), _password(given)
    if not user or not password:
        raise ValueError(
            f"{PREFIX}SASL_MECHANISM={mechanism} needs {PREFIX}SASL_USERNAME, and {PREFIX}SASL_PASSWORD or "
            f"{PREFIX}SASL_PASSWORD_FILE"
        )
    return {"sasl_mechanism": mechanism, "sasl_plain_username": user, "sasl_plain_password": password}


def _password(given: Mapping[str, str]) -> str:
    name = f"{PREFIX}SASL_PASSWORD_FILE"
    if name not in given:
        return given.get(f"{PREFIX}SASL_PASSWORD", "")
    try:
        return Path(given[name]).read_text().rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{name}: {error}") from None


def _tokens(given: Mapping[str, str]) -> Any:
    from keygrouping_kafka.sasl_tokens import Tokens, load_callback

    name = f"{PREFIX}SASL_TOKEN_PROVIDER"
    try:
        return Tokens(load_callback(given.get(name, "")))
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from None


def _tls(given: Mapping[str, str]) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=given.get(f"{PREFIX}SSL_CAFILE"))
        if certificate := given.get(f"{PREFIX}SSL_CERTFILE"):
            context.load_cert_chain(certificate, given.get(f"{PREFIX}SSL_KEYFILE"))
    except OSError as error:
        raise ValueError(f"{PREFIX}SSL_CAFILE/CERTFILE/KEYFILE: {error}") from None
    return context
