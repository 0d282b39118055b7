"""Creates the topics of an application with the settings that exactness needs, or checks those that are there.

`python -m keygrouping_service.kafka.topics` does it once and ends, as a step of a deployment.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import TopicAlreadyExistsError, for_code
from pydantic import Field

from keygrouping_service.arguments import take_no_arguments
from keygrouping_service.errors import Fatal
from keygrouping_service.kafka import clients
from keygrouping_service.kafka.progress import partitions_of
from keygrouping_service.run import run
from keygrouping_service.settings import ServiceSettings, StagesSettings, load

# Event times lie years back or ahead of the clock: no topic may expire or refuse records by their timestamp.
_ANY_TIME = {"retention.ms": "-1", "message.timestamp.after.max.ms": str(2**63 - 1)}
# A record of 1 MB still fits after the headers that say why it went to `dead-letters`.
_ROOMY = {"max.message.bytes": str(2 * 1024 * 1024)}
_COMPACTED = {"cleanup.policy": "compact"}
# What has been purged leaves the disk by whole closed segments: those of 1 GB, the default, would stay for long.
_SMALL_SEGMENTS = {"segment.bytes": str(128 << 20)}
_SAFE_COPIES = {"min.insync.replicas": "2"}
_MOST_REPLICAS = 3
LETTERS_BYTES = 1 << 30
"""Most bytes of `late`, of `dead-letters`, and of `receipts`, which nobody deletes where no observer runs."""

# A record or two per transaction: small segments that are cleaned soon keep what has to be read at a start to some MB.
_ALWAYS_SMALL = {
    "segment.bytes": str(8 * 1024 * 1024),
    "segment.ms": str(60 * 60 * 1000),
    "min.cleanable.dirty.ratio": "0.1",
    "delete.retention.ms": str(10 * 60 * 1000),
}
_LOOKS = 600
_LOOK_SECONDS = 0.05


@dataclass(frozen=True)
class Topic:
    """A topic to be created: its name, number of partitions and own settings.

    `any_number`: one that is there already may have another number of partitions, as the user's own.
    """

    name: str
    partitions: int
    settings: dict[str, str] = field(default_factory=lambda: _ANY_TIME | _ROOMY)
    any_number: bool = False


class TopicsSettings(StagesSettings):
    """How many partitions the topics get."""

    section: ClassVar[str] = "TOPICS"

    create_events: bool = Field(default=True, description="whether to create the events topic if it is missing")
    partitions: int = Field(default=4, ge=1, le=10_000, description="of events (if created here), partials and results")
    max_workers: int = Field(default=16, ge=1, le=10_000, description="partitions of `routed`: most workers ever")
    replication: int | None = Field(default=None, ge=1, description="replicas; unset: 3, or 1 with fewer brokers")
    letters_bytes: int = Field(
        default=LETTERS_BYTES,
        ge=8 << 20,
        description="most bytes that `late`, `dead-letters`, `receipts` and the quarantine topic keep each; the oldest "
        "go first",
    )


def topics_of(
    settings: ServiceSettings, partitions: int = 4, max_workers: int = 16, letters_bytes: int = LETTERS_BYTES
) -> list[Topic]:
    """All topics of an application: `routed` has one partition per possible worker, `late` and the like have one.

    `late`, `dead-letters` and the quarantine topic, if there is one, hold records of any time, so that only their size
    can be bounded, not their age.
    """
    purged = _ANY_TIME | _ROOMY | _SMALL_SEGMENTS
    letters = _ANY_TIME | _ROOMY | {"retention.bytes": str(letters_bytes), "segment.bytes": str(letters_bytes // 8)}
    own = () if settings.quarantine_topic is None else (settings.quarantine_topic,)
    return [
        Topic(settings.events_topic, partitions, any_number=True),
        Topic(settings.partials_topic, partitions, purged),
        Topic(settings.routed_topic, max_workers, purged),
        Topic(settings.results_topic, partitions, _ANY_TIME | _ROOMY | _COMPACTED),
        *(Topic(name, 1, letters) for name in (settings.late_topic, settings.dead_letters_topic, *own)),
        Topic(settings.receipts_topic, 1, letters),
        Topic(settings.positions_topic, 1, _ANY_TIME | _COMPACTED | _ALWAYS_SMALL),
    ]


async def create_topics(admin: AIOKafkaAdminClient, topics: Sequence[Topic], replication: int | None = None) -> None:
    """Creates the topics that don't exist yet and waits until clients see them.

    `Fatal` if one can't be created, or exists with another number of partitions.
    """
    enough = len((await admin.describe_cluster())["brokers"]) >= _MOST_REPLICAS
    replicas = replication or (_MOST_REPLICAS if enough else 1)
    copies = _SAFE_COPIES if replicas >= _MOST_REPLICAS else {}
    existing = set(await admin.list_topics())
    missing = [topic for topic in topics if topic.name not in existing]
    if missing:
        wanted = [NewTopic(t.name, t.partitions, replicas, topic_configs=copies | t.settings) for t in missing]
        answer = await admin.create_topics(wanted)
        for name, code, *reason in answer.topic_errors:
            error = for_code(code)
            if code and error is not TopicAlreadyExistsError:
                raise Fatal(f"topic {name} can't be created: {(reason or [None])[0] or error.__name__}")
    await _check_partitions(admin, topics)


async def _check_partitions(admin: AIOKafkaAdminClient, topics: Sequence[Topic]) -> None:
    for topic in topics:
        found = await _visible_partitions(admin, topic.name)
        if found != topic.partitions and not (topic.any_number and found):
            raise Fatal(
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


async def prepare(settings: TopicsSettings) -> None:
    """Waits for Kafka, creates what is missing and checks the rest."""
    async with clients.started(clients.admin(settings)) as admin:
        if not settings.create_events and not await partitions_of(admin, settings.events_topic):
            raise Fatal(f"topic {settings.events_topic} does not exist: create it, or name the one to read")
        topics = topics_of(settings, settings.partitions, settings.max_workers, settings.letters_bytes)
        unused = {settings.routed_topic} if settings.stages == "combine" else set()
        await create_topics(admin, [topic for topic in topics if topic.name not in unused], settings.replication)


def main() -> int:
    """Creates or checks the topics; gives the exit code."""
    take_no_arguments("python -m keygrouping_service.kafka.topics", about=__doc__)
    settings = load(TopicsSettings)

    async def work(stop: asyncio.Event) -> None:
        preparing = asyncio.create_task(clients.retry(lambda: prepare(settings), "preparing the topics"))
        stopping = asyncio.create_task(stop.wait())
        await asyncio.wait([preparing, stopping], return_when=asyncio.FIRST_COMPLETED)
        if not preparing.done():
            preparing.cancel()
            raise Fatal("stopped before the topics were there")
        stopping.cancel()
        preparing.result()

    return run(work, settings)


if __name__ == "__main__":
    sys.exit(main())
