"""One typed settings class per service, read from the environment, with every fault told at once.

Names: a field `bootstrap_servers` of `ServiceSettings` is `KEYGROUPING_BOOTSTRAP_SERVERS` for all services; a field
`workers` of the router is `KEYGROUPING_ROUTER_WORKERS`. A shared field may be overridden for one service by its
section: `KEYGROUPING_ROUTER_HTTP_PORT` wins over `KEYGROUPING_HTTP_PORT`. So one environment serves all services,
and yet no misspelt name goes unnoticed: a name in our prefix that is neither shared, nor of this service's
section, nor in another service's section is a fault. What Kubernetes makes of a service whose name begins like ours is
no setting.
"""

from __future__ import annotations

import difflib
import os
import re
import ssl
import sys
from collections.abc import Iterable, Mapping, Set
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self, TypeVar

from keygrouping.job import JobError, JobSpec
from keygrouping.service_links import collision, service_links
from keygrouping_kafka.sasl_tokens import Tokens, load_callback
from pydantic import BeforeValidator, Field, SecretStr, ValidationError, model_validator
from pydantic.fields import FieldInfo
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from keygrouping_service.store_url import parse_url
from keygrouping_service.tokens import FORM
from keygrouping_service.tokens import parse as tokens_of

PREFIX = "KEYGROUPING_"
REQUEST_TIMEOUT_MS = 15_000
"""Also for connecting: packets to the pod that a broker was in before vanish; only a new attempt finds the new pod."""
SECTIONS = (
    "ROUTER",
    "WORKER",
    "AGGREGATOR",
    "PRODUCER",
    "SPARK",
    "OBSERVER",
    "TOPICS",
    "PROBE",
    "LOCAL",
    "INSPECT",
    "APP",
    "EVENTLOAD",
    "HTTPLOAD",
)
"""Prefixes of the services' own settings; a service looks only into its own section."""

_NAME = re.compile(rf"{PREFIX}\w+")
_ALIKE = 0.55
"""From which likeness on a name may be meant by another."""
EXIT_SETTINGS = 2
"""Exit code of a service that refuses its settings."""


def read_job(value: object) -> JobSpec:
    """The job of a setting: a JobSpec, its JSON text, or the path of a JSON file. Raises ValueError."""
    if isinstance(value, JobSpec):
        return value
    text = str(value)
    if not text.lstrip().startswith("{"):
        try:
            text = Path(text).read_text()
        except OSError as error:
            raise ValueError(f"neither JSON nor a readable file: {text!r} ({error.strerror or error})") from None
    try:
        return JobSpec.from_json(text)
    except JobError as error:
        raise ValueError("; ".join(str(error).splitlines())) from None


Job = Annotated[JobSpec, BeforeValidator(read_job), Field(description="what is computed, see aggregates.md")]
Port = Annotated[int, Field(ge=0, le=65535)]
Compression = Annotated[
    Literal["none", "gzip", "snappy", "lz4", "zstd"],
    Field(description="compression of what is written; level 1 of lz4"),
]
Groups = Annotated[str, Field(pattern=r"^([A-Za-z0-9._-]+(,[A-Za-z0-9._-]+)*)?$")]
"""Names of consumer groups, by commas."""
TopicName = Annotated[
    str, Field(max_length=249, pattern=r"^([A-Za-z0-9_-]|\.[A-Za-z0-9_-]|\.\.[A-Za-z0-9._-])[A-Za-z0-9._-]*$")
]
"""What Kafka takes for a topic's name: neither `.` nor `..`."""


class _Environment(PydanticBaseSettingsSource):
    """Reads a settings class by the naming rule of this module; unknown names become unknown fields."""

    def get_field_value(self, field: FieldInfo, field_name: str) -> tuple[Any, str, bool]:
        del field
        for name in names_of(self.settings_cls, field_name):
            if self._environment.get(name, ""):
                return self._environment[name], field_name, False
        return None, field_name, False

    @property
    def _environment(self) -> Mapping[str, str]:
        assert issubclass(self.settings_cls, ServiceSettings)
        return self.settings_cls.environment

    def __call__(self) -> dict[str, Any]:
        values: dict[str, Any] = dict.fromkeys(unknown_names(self.settings_cls, self._environment))
        for field_name, field in self.settings_cls.model_fields.items():
            value, _, _ = self.get_field_value(field, field_name)
            if value is not None:
                values[field_name] = value
        return values


class ServiceSettings(BaseSettings):
    """What every service needs: the cluster, the names of the topics, its HTTP port.

    A service derives its own class, sets `section` to its entry in `SECTIONS` and adds its fields.
    """

    model_config = SettingsConfigDict(
        extra="forbid", frozen=True, arbitrary_types_allowed=True, validate_default=False, allow_inf_nan=False
    )
    section: ClassVar[str] = ""
    environment: ClassVar[Mapping[str, str]] = os.environ
    """What it is read from."""

    bootstrap_servers: str = Field(
        pattern=r"^[^\s,;/]+:[0-9]{1,5}( *, *[^\s,;/]+:[0-9]{1,5})*$",
        description="host:port of one or more brokers, by commas",
    )
    application: str = Field(
        default="keygrouping",
        pattern=r"^[A-Za-z0-9._-]{1,100}$",
        description="prefix of groups and transactional ids",
    )
    events_topic: TopicName = Field(default="events", description="what is read; nothing is ever changed in it")
    routed_topic: TopicName = Field(default="routed", description="events by worker: partition w is that of worker w")
    partials_topic: TopicName = Field(default="partials", description="partial aggregates of the workers")
    results_topic: TopicName = Field(default="results", description="final results by key and window")
    late_topic: TopicName = Field(default="late", description="events that came too late, with the reason")
    dead_letters_topic: TopicName = Field(
        default="dead-letters", description="records that can't be used, with the reason"
    )
    quarantine_topic: TopicName | None = Field(
        default=None, description="events of keys that are quarantined to it; unset: the topic of dead letters"
    )
    receipts_topic: TopicName = Field(
        default="receipts", description="what became of which input offsets: a record per transaction of a router"
    )
    distribution_topic: TopicName = Field(default="distribution", description="the observer's snapshots")
    positions_topic: TopicName = Field(
        default="positions", description="copies of all committed offsets, as brokers forget those of groups that rest"
    )
    begin_again: str = Field(
        default="",
        pattern=r"^([A-Za-z0-9_-]{22}(,[A-Za-z0-9_-]{22})*)?$",
        description="ids of topics, by commas: a stage whose position in such a topic can't be used begins again at "
        "its beginning; without it, the stage stops and says so",
    )

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] = Field(
        default="PLAINTEXT", description="how to talk to Kafka"
    )
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = Field(
        default="PLAIN", description="how to log in at Kafka"
    )
    sasl_username: str | None = Field(default=None, description="user name at Kafka")
    sasl_password: SecretStr | None = Field(default=None, description="its password; better given as a file")
    sasl_password_file: Path | None = Field(default=None, description="file that holds the password")
    sasl_token_provider: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$",
        description="with OAUTHBEARER: module:function, installed with the service, that takes nothing and gives a "
        "token; it is called for each connection",
    )
    ssl_cafile: Path | None = Field(default=None, description="the CAs to trust; unset: those of the system")
    ssl_certfile: Path | None = Field(default=None, description="the client's certificate, if Kafka asks for one")
    ssl_keyfile: Path | None = Field(default=None, description="its key; unset: in the file of the certificate")

    http_host: str = Field(default="127.0.0.1", description="address to listen on; 0.0.0.0: all")
    http_port: Port = Field(default=0, description="port of health, metrics and API; 0 takes a free one")
    http_hosts: str = Field(
        default="",
        pattern=r"^[A-Za-z0-9.*_,: -]*$",
        description="further names, by commas, that the HTTP side is asked by; *.example.org: all below it, *: any. "
        "Addresses, names without a dot and below .svc need not be named",
    )
    http_body_timeout: float = Field(
        default=60, gt=0, le=3600, description="seconds in which the body of a request has to come as a whole"
    )
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(default="INFO", description="what is logged")
    log_format: Literal["text", "json"] = Field(default="text", description="lines for people, or JSON objects")
    otel_endpoint: str | None = Field(
        default=None,
        pattern=r"^https?://[^\s/]",
        description="base URL of an OpenTelemetry collector (OTLP over HTTP), such as http://collector:4318; unset: as "
        "OTEL_EXPORTER_OTLP_ENDPOINT says, else no traces",
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Values given by the caller, then the environment by the rule of this module, and nothing else."""
        del env_settings, dotenv_settings, file_secret_settings
        return init_settings, _Environment(settings_cls)

    @model_validator(mode="after")
    def _security_is_complete(self) -> Self:
        if self.security_protocol.startswith("SASL"):
            self._require_login()
        if "SSL" in self.security_protocol.replace("SASL_", ""):
            self.ssl_context()
        return self

    def _require_login(self) -> None:
        needs = f"{PREFIX}SECURITY_PROTOCOL={self.security_protocol} needs"
        if self.sasl_mechanism == "OAUTHBEARER":
            if self.sasl_token_provider is None:
                raise ValueError(f"{needs} {PREFIX}SASL_TOKEN_PROVIDER with {PREFIX}SASL_MECHANISM=OAUTHBEARER")
            self.tokens()
            return
        if not self.sasl_username or (self.sasl_password is None and self.sasl_password_file is None):
            raise ValueError(f"{needs} {PREFIX}SASL_USERNAME and {PREFIX}SASL_PASSWORD or {PREFIX}SASL_PASSWORD_FILE")
        self.password()

    @model_validator(mode="after")
    def _every_topic_has_a_name_of_its_own(self) -> Self:
        fields: dict[str, list[str]] = {}
        for field in type(self).model_fields:
            if field.endswith("_topic"):
                fields.setdefault(getattr(self, field), []).append(name_in_use(type(self), field))
        faults = [
            f"{' and '.join(names)} are both {topic!r}: each needs a topic of its own"
            for topic, names in fields.items()
            if len(names) > 1
        ]
        if faults:
            raise ValueError("; ".join(faults))
        return self

    @property
    def http_bounds(self) -> dict[str, Any]:
        """What `app.serving` is to refuse."""
        hosts = [name.strip() for name in self.http_hosts.split(",")]
        return {"hosts": [name for name in hosts if name], "body_seconds": self.http_body_timeout}

    def group(self, stage: str) -> str:
        """Consumer group of a stage (`router`, `worker`, `aggregator`)."""
        return f"{self.application}-{stage}"

    @property
    def observer_group(self) -> str:
        """Group in which the observer commits how far it has counted `partials`; it has no members."""
        return self.group("observer-partials")

    def transactional_id(self, stage: str, partition: int) -> str:
        """Transactional id of a stage for one input partition."""
        return f"{self.application}-{stage}-{partition}"

    def password(self) -> str:
        """The SASL password, from the setting or its file; ValueError if the file can't be read."""
        return _secret(self.sasl_password, self.sasl_password_file, f"{PREFIX}SASL_PASSWORD_FILE")

    def tokens(self) -> Tokens:
        """What gives tokens for OAUTHBEARER; ValueError if the setting names no function."""
        try:
            return Tokens(load_callback(self.sasl_token_provider or ""))
        except ValueError as error:
            raise ValueError(f"{PREFIX}SASL_TOKEN_PROVIDER: {error}") from None

    def ssl_context(self) -> ssl.SSLContext:
        """TLS context of the configured files; ValueError if one of them is unusable."""
        return _tls_context(self.ssl_cafile, self.ssl_certfile, self.ssl_keyfile, f"{PREFIX}SSL_")

    @property
    def begin_again_in(self) -> frozenset[str]:
        """The topics' ids in `begin_again`."""
        return frozenset(self.begin_again.split(",")) - {""}

    def kafka_options(self) -> dict[str, Any]:
        """Keyword arguments that every aiokafka client of this service takes."""
        options: dict[str, Any] = {
            "bootstrap_servers": self.bootstrap_servers,
            "security_protocol": self.security_protocol,
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
        }
        if self.security_protocol.startswith("SASL") and self.sasl_mechanism == "OAUTHBEARER":
            options |= {"sasl_mechanism": self.sasl_mechanism, "sasl_oauth_token_provider": self.tokens()}
        elif self.security_protocol.startswith("SASL"):
            options |= {
                "sasl_mechanism": self.sasl_mechanism,
                "sasl_plain_username": self.sasl_username,
                "sasl_plain_password": self.password(),
            }
        if self.security_protocol in ("SSL", "SASL_SSL"):
            options["ssl_context"] = self.ssl_context()
        return options


class Aggregated(NamedTuple):
    """Whose events partials are made of: the group that reads them, and the topic."""

    group: str
    topic: str


class StagesSettings(ServiceSettings):
    """Settings of whoever has to know between which topics events are combined."""

    stages: Literal["route", "combine"] = Field(
        default="route",
        description="route: routers spread events, and workers read what is routed; combine: no router, native workers "
        "read `events` itself, for keys or aggregates of which the hop costs more than it gains",
    )

    @property
    def aggregated(self) -> Aggregated:
        """Whose events partials are made of."""
        if self.stages == "combine":
            return Aggregated(self.group("router"), self.events_topic)
        return Aggregated(self.group("worker"), self.routed_topic)


class JobSettings(ServiceSettings):
    """Settings of a service that runs the job: `job` is its JSON text or the path of a JSON file."""

    job: Job


class StageSettings(JobSettings, StagesSettings):
    """Settings of a stage that reads a topic as a member of a consumer group (see `partitions.PartitionRunner`)."""

    session_timeout: float = Field(
        default=10, ge=1, le=300, description="seconds until a member that fell silent loses its partitions"
    )
    instance_id: str | None = Field(
        default=None, description="static member of the group: a restart within the session keeps its partitions"
    )
    compression: Compression = "none"
    batch_bytes: int = Field(default=1 << 20, ge=1024, le=1 << 24, description="most bytes of one written batch")
    fetch_bytes: int = Field(default=1 << 20, ge=1024, le=1 << 26, description="most bytes fetched per partition")
    transaction_timeout: float = Field(
        default=60, ge=5, le=900, description="seconds until the broker aborts the transaction of a dead member"
    )


class PurgeSettings(ServiceSettings):
    """Settings of a stage that deletes what has been read; to be mixed in (see `purging`)."""

    purge: bool = Field(
        default=True, description="whether what all readers of `routed` and `partials` have committed is deleted"
    )
    purge_after: float = Field(
        default=900, ge=0, le=86_400 * 365, description="seconds for which it is kept all the same, to be looked at"
    )


class StoreSettings(ServiceSettings):
    """Settings of a service that shares state with its replicas; to be mixed in (see `store.open_store`)."""

    store_url: str = Field(
        default="memory://",
        description="memory://, file:///path/state.json, or redis://host:port/db; rediss:// with TLS; "
        "redis+sentinel://host:port,.../service/db; redis+cluster://host:port,...",
    )
    store_password: SecretStr | None = Field(default=None, description="better given as a file")
    store_password_file: Path | None = Field(default=None, description="read for every connection")
    store_sentinel_password_file: Path | None = Field(default=None, description="if the sentinels ask for a password")
    store_cafile: Path | None = Field(default=None, description="the CAs to trust; unset: those of the system")
    store_certfile: Path | None = Field(default=None, description="the client's certificate, if the store asks for one")
    store_keyfile: Path | None = Field(default=None, description="its key; unset: in the file of the certificate")
    store_prefix: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9._-]{1,100}$",
        description="what all keys begin with; unset: the application's name",
    )
    store_timeout: float = Field(default=2, gt=0, le=60, description="seconds until a call gives up")

    @model_validator(mode="after")
    def _store_can_be_opened(self) -> Self:
        try:
            parse_url(self.store_url)
        except ValueError as error:
            raise ValueError(f"{PREFIX}STORE_URL: {error}") from None
        self.store_password_text()
        self.sentinel_password_text()
        if self.store_url.startswith("rediss"):
            _tls_context(self.store_cafile, self.store_certfile, self.store_keyfile, f"{PREFIX}STORE_")
        return self

    @property
    def key_prefix(self) -> str:
        """What all keys of this application in a shared store begin with."""
        return self.store_prefix or self.application

    @property
    def has_store_password(self) -> bool:
        """Whether the store asks for a password."""
        return self.store_password is not None or self.store_password_file is not None

    def store_password_text(self) -> str:
        """The store's password as it is now; ValueError if its file can't be read."""
        return _secret(self.store_password, self.store_password_file, f"{PREFIX}STORE_PASSWORD_FILE")

    def sentinel_password_text(self) -> str:
        """The sentinels' password as it is now; ValueError if its file can't be read."""
        return _secret(None, self.store_sentinel_password_file, f"{PREFIX}STORE_SENTINEL_PASSWORD_FILE")


class TokenSettings(ServiceSettings):
    """Settings of a service whose HTTP interface changes things; to be mixed in (see `auth` and `limits`)."""

    api_token_file: Path | None = Field(
        default=None,
        description="bearer tokens, one a line as NAME ROLE TOKEN with a ROLE of read or write, of which changes need "
        "one that writes; unset: they need none",
    )
    api_reads: Literal["open", "closed"] = Field(
        default="open", description="whether reads need a token too, of any role"
    )
    api_rate: int = Field(default=100, ge=0, description="most requests per second of one address; 0: no limit")

    @model_validator(mode="after")
    def _tokens_are_there(self) -> Self:
        if self.api_token_file is None:
            if self.api_reads == "closed":
                raise ValueError(f"{PREFIX}API_READS=closed needs {PREFIX}API_TOKEN_FILE")
            return self
        tokens, faults = tokens_of(_secret(None, self.api_token_file, f"{PREFIX}API_TOKEN_FILE"))
        if faults or not tokens:
            said = "; ".join(faults) or f"holds no token: {FORM}"
            raise ValueError(f"{PREFIX}API_TOKEN_FILE: {self.api_token_file}: {said}")
        return self


class ApiSettings(TokenSettings):
    """The same, where bodies are small."""

    api_body_bytes: int = Field(default=1 << 20, ge=1, description="most bytes of a request's body")


def _secret(value: SecretStr | None, file: Path | None, name: str) -> str:
    if file is None:
        return value.get_secret_value() if value else ""
    try:
        return file.read_text().rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{name}: {error}") from None


def _tls_context(cafile: Path | None, certfile: Path | None, keyfile: Path | None, prefix: str) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=cafile)
        if certfile:
            context.load_cert_chain(certfile, keyfile)
    except OSError as error:
        raise ValueError(f"{prefix}CAFILE/CERTFILE/KEYFILE: {error}") from None
    return context


Settings = TypeVar("Settings", bound=ServiceSettings)
_SHARED = {
    name: field.annotation
    for settings in (StageSettings, PurgeSettings, StoreSettings, ApiSettings)
    for name, field in settings.model_fields.items()
}
"""The fields that services have in common, with their types: a field of another type means something else."""


def names_of(settings_class: type[BaseSettings], field_name: str) -> list[str]:
    """Environment names of a field, the one that wins first."""
    section = getattr(settings_class, "section", "")
    shared = PREFIX + field_name.upper()
    own = [f"{PREFIX}{section}_{field_name.upper()}"] if section else []
    field = settings_class.model_fields.get(field_name)
    is_shared = field_name in _SHARED and (field is None or field.annotation == _SHARED[field_name])
    return [*own, shared] if is_shared or not own else own


def unknown_names(settings_class: type[BaseSettings], environment: Mapping[str, str]) -> list[str]:
    """Names in our prefix that no service knows, or that are in this service's section but unknown to it."""
    fields = {*settings_class.model_fields, *_SHARED}
    known = {name for field_name in fields for name in names_of(settings_class, field_name)}
    known |= {PREFIX + field_name.upper() for field_name in _SHARED}  # also of fields that mean something else here
    own = getattr(settings_class, "section", "")
    others = tuple(f"{PREFIX}{section}_" for section in SECTIONS if section != own)
    links = service_links(environment)
    ours = (name for name in environment if name.startswith(PREFIX) and name not in links)
    return sorted(name for name in ours if name not in known and not name.startswith(others))


def load(settings_class: type[Settings]) -> Settings:
    """The service's settings; prints one line per fault to stderr and exits with code 2 if there are any."""
    try:
        return settings_class()
    except ValidationError as error:
        for line in describe_faults(settings_class, error):
            print(line, file=sys.stderr)  # noqa: T201
    raise SystemExit(EXIT_SETTINGS)


def describe_faults(settings_class: type[ServiceSettings], error: ValidationError) -> Iterable[str]:
    """One line per fault: the name of the setting, and what is wrong with it.

    What several settings together are refused for is judged as if those that are wrong by themselves were not set.
    """
    links = service_links(os.environ)
    wrong: set[str] = set()
    for fault in error.errors(include_url=False):
        place = str(fault["loc"][0]) if fault["loc"] else ""
        message = fault["msg"].removeprefix("Value error, ")
        if fault["type"] == "extra_forbidden":
            wrong.add(place)
            yield f"{place}: unknown setting{_guess(settings_class, place)}"
        elif not place:
            yield message
        else:
            wrong.update(names_of(settings_class, place))
            name = name_in_use(settings_class, place)
            yield collision(name, os.environ[name], links[name]) if name in links else f"{name}: {message}"
    if wrong:
        yield from _faults_without(settings_class, wrong)


def _faults_without(settings_class: type[ServiceSettings], wrong: Set[str]) -> Iterable[str]:
    """What else would be told without these settings, and does not speak of them."""

    class Rest(settings_class):  # type: ignore[misc, valid-type]
        environment: ClassVar[Mapping[str, str]] = {n: v for n, v in os.environ.items() if n not in wrong}

    try:
        Rest()
    except ValidationError as error:
        together = [fault["msg"].removeprefix("Value error, ") for fault in error.errors() if not fault["loc"]]
        yield from (line for line in together if wrong.isdisjoint(_NAME.findall(line)))


def _guess(settings_class: type[ServiceSettings], name: str) -> str:
    known = [n for field_name in settings_class.model_fields for n in names_of(settings_class, field_name)]
    # Without what most of them begin with, which makes all alike.
    begin = re.compile(f"{PREFIX}({settings_class.section}_)?")
    by_end = {begin.sub("", each): each for each in known}
    close = difflib.get_close_matches(begin.sub("", name), by_end, n=1, cutoff=_ALIKE)
    return f"; did you mean {by_end[close[0]]}?" if close else f"; known are {', '.join(sorted(known))}"


def name_in_use(settings_class: type[ServiceSettings], field_name: str) -> str:
    """Environment name of a field: the one that is set, else the one that all services share."""
    names = names_of(settings_class, field_name)
    return next((name for name in names if os.environ.get(name, "")), names[-1])
