"""Creates the topics of a run with the settings that exactness needs."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import TopicAlreadyExistsError, for_code
from keygrouping_service.progress import partitions_of
from keygrouping_service.settings import PREFIX, ServiceSettings

from keygrouping_local.errors import LocalError

# Event times lie years back or ahead of the clock: no topic may expire or refuse records by their timestamp.
_ANY_TIME = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
# A record of 1 MB still fits after the headers that say why it went to `dead-letters`.
_ROOMY = {"max.message.bytes": str(2 * 1024 * 1024)}
_LOOKS = 600
_LOOK_SECONDS = 0.05
_COMPACTED = {"cleanup.policy": "compact"}


@dataclass(frozen=True)
class Topic:
    """A topic to be created: its name, number of partitions and own settings."""

    name: str
    partitions: int
    settings: dict[str, str] = field(default_factory=lambda: _ANY_TIME | _ROOMY)


def settings_for(bootstrap_servers: str, application: str) -> ServiceSettings:
    """Settings of an application whose topics all begin with its name, so that applications never mix.

    Security and the like come from the environment, as for every service.
    """
    return ServiceSettings(bootstrap_servers=bootstrap_servers, application=application, **_names(application))


def environment_of(settings: ServiceSettings) -> dict[str, str]:
    """The address and the names as environment of the services."""
    fields = ("bootstrap_servers", "application", *_names(settings.application))
    return {f"{PREFIX}{name.upper()}": getattr(settings, name) for name in fields}


def topics_of(settings: ServiceSettings, partitions: int = 4, max_workers: int = 16) -> list[Topic]:
    """All topics of an application: `routed` has one partition per possible worker, `late` and the like have one."""
    return [
        *(Topic(name, partitions) for name in (settings.events_topic, settings.partials_topic)),
        Topic(settings.routed_topic, max_workers),
        Topic(settings.results_topic, partitions, _ANY_TIME | _ROOMY | _COMPACTED),
        *(Topic(name, 1) for name in (settings.late_topic, settings.dead_letters_topic)),
    ]


def _names(application: str) -> dict[str, Any]:
    kinds = ("events", "routed", "partials", "results", "late", "dead-letters")
    return {f"{kind.replace('-', '_')}_topic": f"{application}.{kind}" for kind in kinds}


async def create_topics(admin: AIOKafkaAdminClient, topics: Sequence[Topic]) -> None:
    """Creates the topics that don't exist yet and waits until clients see them.

    LocalError if one exists with another number of partitions.
    """
    brokers = (await admin.describe_cluster())["brokers"]
    replicas = 3 if len(brokers) >= 3 else 1
    existing = set(await admin.list_topics())
    missing = [topic for topic in topics if topic.name not in existing]
    if missing:
        wanted = [NewTopic(t.name, t.partitions, replicas, topic_configs=t.settings) for t in missing]
        answer = await admin.create_topics(wanted)
        for name, code, *reason in answer.topic_errors:
            error = for_code(code)
            if code and error is not TopicAlreadyExistsError:
                raise LocalError(f"topic {name} can't be created: {(reason or [None])[0] or error.__name__}")
    await _check_partitions(admin, topics)


async def delete_topics(admin: AIOKafkaAdminClient, prefix: str) -> None:
    """Deletes all topics whose names begin with the prefix."""
    doomed = [name for name in await admin.list_topics() if name.startswith(prefix)]
    if doomed:
        await admin.delete_topics(doomed)


async def _check_partitions(admin: AIOKafkaAdminClient, topics: Sequence[Topic]) -> None:
    for topic in topics:
        found = await _visible_partitions(admin, topic.name)
        if found != topic.partitions:
            raise LocalError(
                f"topic {topic.name} has {found} partitions, not {topic.partitions}:"
                " delete it or choose another application"
            )


async def _visible_partitions(admin: AIOKafkaAdminClient, name: str) -> int:
    """Number of partitions, once the brokers that clients ask have heard of the topic from the controller."""
    for _ in range(_LOOKS):
        if partitions := await partitions_of(admin, name):
            return len(partitions)
        await asyncio.sleep(_LOOK_SECONDS)
    return 0
