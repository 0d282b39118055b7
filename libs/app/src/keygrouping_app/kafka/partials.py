"""The topic of partial states in Kafka: how it is made, what is left in it, and a partition in its owner's hands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from keygrouping_app.events import Event, Raw
from keygrouping_app.handlers import AppError, Handler
from keygrouping_app.kafka.changelog import changelog_of, largest_record
from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.overflow import KEPT, config_of, create, faults_of, slots_are_over, until_known
from keygrouping_app.kafka.partition import Partition
from keygrouping_app.partials import partial_of, partials_of
from keygrouping_app.state import State

_WHY = "by which states of hot keys are merged"
_SAFE_COPIES = 3


async def prepare_partials(admin: AIOKafkaAdminClient, settings: Settings, handlers: Mapping[str, Handler]) -> None:
    """Creates the topic for each handler with states that merge. AppError if it can't be, or states would be lost."""
    there = set(await admin.list_topics())
    faults: list[str] = []
    for topic, handler in handlers.items():
        name, before = partials_of(settings.group, topic), changelog_of(settings.group, topic)
        if handler.split and handler.state is not None:
            if before in there:
                faults.append(_unmerged(before, handler))
            faults += await _prepare(admin, topic, name, handler.state)
        elif name in there and not await slots_are_over(admin, settings, [name]):
            faults.append(_unread(settings.group, name, handler))
    if faults:
        raise AppError(faults)


async def _prepare(admin: AIOKafkaAdminClient, topic: str, name: str, state: State) -> list[str]:
    (described,) = await admin.describe_topics([topic])
    partitions, copies = len(described["partitions"]), len(described["partitions"][0]["replicas"])
    wanted = largest_record(state)
    safe = {"min.insync.replicas": "2"} if copies >= _SAFE_COPIES else {}
    options = {**KEPT, **safe, "max.message.bytes": str(wanted)}
    if faults := await create(admin, NewTopic(name, partitions, copies, topic_configs=options), _WHY):
        return faults
    await until_known(admin, name)
    found = await config_of(admin, name)
    faults = faults_of(name, found)
    if int(found.get("max.message.bytes", wanted)) < wanted:
        faults.append(
            f"topic {name!r} takes {found['max.message.bytes']} bytes, and states may have more: kafka-configs --alter "
            f"--entity-type topics --entity-name {name} --add-config max.message.bytes={wanted}"
        )
    return faults


def _unmerged(before: str, handler: Handler) -> str:
    return (
        f"topic {before!r} has the states that {handler.name} kept without split, which it does not read any more: use "
        "another app name, which begins at the first event, or delete that topic to go on without them"
    )


def _unread(group: str, name: str, handler: Handler) -> str:
    return (
        f"topic {name!r} holds states that are not merged yet, and {handler.name} has no State(merge=...) with split "
        f"any more: first run the version that has, without new events, until kafka-consumer-groups --describe --group "
        f"{group} shows no lag there"
    )


class PartialsPartition(Partition):
    """An input of partial states."""

    def _events(self, records: Iterable[Raw]) -> list[Event]:
        return [partial_of(raw, self) for raw in records]
