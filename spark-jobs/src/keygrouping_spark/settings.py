"""Settings of the Spark job: those of all services, and section `KEYGROUPING_SPARK_...`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import ClassVar, Literal, Self

from keygrouping_service.settings import PREFIX, Groups, JobSettings, PurgeSettings, TopicName
from pydantic import Field, PrivateAttr, model_validator

from keygrouping_spark.access import Access, Certificates, TokenServer
from keygrouping_spark.support import spark_halves

LEAST_HEAP = 512
"""MiB of the driver's heap, and of an executor's: Spark refuses to start in less than about 480."""

Stages = Literal["worker,aggregator", "worker", "aggregator"]

_STAGES_OF_ALL = f"{PREFIX}STAGES"


class SparkSettings(JobSettings, PurgeSettings):
    """What the Spark job needs beyond the settings of every service."""

    section: ClassVar[str] = "SPARK"

    checkpoint: str = Field(min_length=1, description="folder or URI (file:, s3a:, ...) of the queries' checkpoints")
    stages: Stages = Field(default="worker,aggregator", description="what this application runs")
    jars: Path | None = Field(default=None, description="folder with the jars of Spark's Kafka connector")
    master: str | None = Field(default=None, description="Spark master; spark-submit's, else local[2]")
    driver_memory: str = Field(default="1g", pattern=r"^[1-9]\d*[mg]$", description="heap of the driver")
    java_options: str = Field(
        default="-XX:+UseSerialGC",
        description="of the driver; with -XX:TieredStopAtLevel=1 it starts sooner and computes at a third of the speed",
    )
    shuffle_partitions: int = Field(
        default=4,
        ge=1,
        le=10_000,
        description="parallelism of the state; another number with a checkpoint that has some needs Spark 4.2",
    )
    trigger_seconds: float = Field(default=1.0, ge=0, description="least time between the starts of two batches")
    batch_records: int = Field(default=2_000_000, ge=1, description="most records of one batch")
    progress_seconds: float = Field(default=0.5, gt=0, description="how often progress is read and committed")
    progress_topic: TopicName = Field(
        default="progress", description="one partition; tells the aggregator what is final"
    )
    router_url: str | None = Field(
        default=None,
        pattern=r"^https?://",
        description="address of the router's API; as many executors are asked for as it has workers in use",
    )
    router_token_file: Path | None = Field(
        default=None, description="bearer token for the router's API, if its reads need one"
    )
    routed_readers: Groups = Field(
        default="", description="further consumer groups that read `routed`, by commas: what they need is not deleted"
    )
    partials_readers: Groups = Field(
        default="", description="further consumer groups that read `partials`, by commas: what they need is not deleted"
    )
    ui: bool = Field(default=False, description="whether Spark's own pages are served")
    spark_log_level: Literal["ERROR", "WARN", "INFO", "DEBUG"] = Field(default="WARN", description="what Spark logs")

    _token_server: TokenServer | None = PrivateAttr(default=None)
    _stages_of_all: str = PrivateAttr(default_factory=lambda: os.environ.get(_STAGES_OF_ALL) or "route")

    @model_validator(mode="after")
    def _jars_are_there(self) -> Self:
        if self.jars is not None and not self.connector_jars():
            raise ValueError(f"KEYGROUPING_SPARK_JARS: no jars in {self.jars}: install them or correct the folder")
        return self

    @model_validator(mode="after")
    def _worker_has_something_to_read(self) -> Self:
        if self._stages_of_all not in ("route", "combine"):
            raise ValueError(f"{_STAGES_OF_ALL}={self._stages_of_all}: set it to route or combine, or leave it unset")
        if self.combines and self.runs("worker"):
            raise ValueError(
                f"{_STAGES_OF_ALL}=combine: there is nothing for Spark's worker stage, which reads what routers have "
                f"routed: run native workers and set {PREFIX}SPARK_STAGES=aggregator, or {_STAGES_OF_ALL}=route"
            )
        return self

    @model_validator(mode="after")
    def _java_can_start(self) -> Self:
        heap = int(self.driver_memory[:-1]) * (1024 if self.driver_memory.endswith("g") else 1)
        if heap < LEAST_HEAP:
            raise ValueError(f"KEYGROUPING_SPARK_DRIVER_MEMORY: Spark needs {LEAST_HEAP}m, not {self.driver_memory}")
        if "-Xmx" in self.java_options:
            raise ValueError("KEYGROUPING_SPARK_JAVA_OPTIONS: -Xmx is set by KEYGROUPING_SPARK_DRIVER_MEMORY alone")
        return self

    @model_validator(mode="after")
    def _job_can_be_run_by_spark(self) -> Self:
        spark_halves(self.job.aggregates)
        return self

    @property
    def trigger(self) -> str:
        """The processing-time trigger as Spark's text."""
        return f"{round(self.trigger_seconds * 1000)} milliseconds"

    def connector_jars(self) -> list[Path]:
        """The jars in `jars`."""
        return sorted(self.jars.glob("*.jar")) if self.jars else []

    def runs(self, stage: Literal["worker", "aggregator"]) -> bool:
        """Whether this application runs a stage."""
        return stage in self.stages.split(",")

    @property
    def combines(self) -> bool:
        """Whether native workers read the events themselves, as the stages of all services say; `stages` is Spark's."""
        return self._stages_of_all == "combine"

    @property
    def takes_tokens(self) -> bool:
        """Whether one logs in at Kafka with tokens."""
        return self.security_protocol.startswith("SASL") and self.sasl_mechanism == "OAUTHBEARER"

    def with_token_server(self, server: TokenServer) -> Self:
        """The same settings, by which Spark's clients log in with tokens that they get there."""
        made = self.model_copy()
        made._token_server = server
        return made

    def access(self) -> Access:
        """How Spark's tasks reach Kafka themselves."""
        options = self.kafka_options()
        certificates = None
        if options.pop("ssl_context", None):
            authorities, chain, key = map(_text_of, (self.ssl_cafile, self.ssl_certfile, self.ssl_keyfile))
            certificates = Certificates(authorities, chain, key)
        if self.takes_tokens:
            options["sasl_oauth_token_provider"] = self._token_server
        return Access(options, certificates)

    def spark_kafka_options(self) -> dict[str, str]:
        """Options of the cluster for Spark's Kafka source and sink, with the prefix that Spark wants."""
        options = {"bootstrap.servers": self.bootstrap_servers, "security.protocol": self.security_protocol}
        if self.security_protocol.startswith("SASL"):
            login = self._token_server.java_options() if self._token_server else {"sasl.jaas.config": self._jaas()}
            options |= {"sasl.mechanism": self.sasl_mechanism, **login}
        if self.ssl_cafile:
            options |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": self.ssl_cafile.read_text()}
        if self.ssl_certfile:
            chain, key = self.ssl_certfile.read_text(), (self.ssl_keyfile or self.ssl_certfile).read_text()
            options |= {"ssl.keystore.type": "PEM", "ssl.keystore.certificate.chain": chain, "ssl.keystore.key": key}
        return {f"kafka.{name}": value for name, value in options.items()}

    def _jaas(self) -> str:
        login = "plain.Plain" if self.sasl_mechanism == "PLAIN" else "scram.Scram"
        user, password = (_quoted(text) for text in (self.sasl_username or "", self.password()))
        return f"org.apache.kafka.common.security.{login}LoginModule required username={user} password={password};"


def _text_of(file: Path | None) -> str | None:
    return file.read_text() if file else None


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
