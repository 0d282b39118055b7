"""The topic of partial states in Kafka: how it is made, what is left in it, and a partition in its owner's hands."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from aiokafka import TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions
from aiokafka.structs import OffsetAndMetadata

from keygrouping_app.events import Event, Outgoing, Raw
from keygrouping_app.handlers import AppError, Handler
from keygrouping_app.kafka.changelog import ROOM, USUAL_BYTES, begin_again, changelog_of, has_records, slots_of
from keygrouping_app.kafka.clients import Settings
from keygrouping_app.kafka.overflow import KEPT, faults_of, slots_are_over
from keygrouping_app.kafka.own_topics import config_of, create, size_of, until_known
from keygrouping_app.kafka.partition import Partition
from keygrouping_app.kafka.ranges import split_states
from keygrouping_app.partials import marks_of, partial_of, partials_of
from keygrouping_app.state import State

_WHY = "by which states of hot keys are merged"


def largest_partial(state: State) -> int:
    """Bytes of its record."""
    return max(USUAL_BYTES, state.largest + ROOM)


async def prepare_partials(
    admin: AIOKafkaAdminClient, settings: Settings, handlers: Mapping[str, Handler]
) -> dict[str, int]:
    """Creates the topics for each handler with states that merge; gives the partitions of each of their inputs.

    AppError if there can't be any, or states would be lost.
    """
    there = set(await admin.list_topics())
    faults: list[str] = []
    marked: dict[str, int] = {}
    for topic, handler in handlers.items():
        if handler.partials and handler.state is not None:
            faults += await _prepare(admin, topic, handler.partials, handler.state)
            faults += await _faults_of_before(admin, settings, there, handler)
            marked[topic] = await _prepare_marks(admin, settings.group, topic)
        else:
            faults += await _faults_of_merged(admin, settings, there, handler)
    if faults:
        raise AppError(faults)
    return marked


async def check_begun(settings: Settings, tp: TopicPartition, found: OffsetAndMetadata) -> None:
    """AppError if a partition has left partial states that what is committed of it does not know of."""
    group = settings.group
    marks = TopicPartition(marks_of(group, tp.topic), tp.partition)
    # A first transaction that was not committed has left its mark as well, which says nothing.
    if split_states(found.metadata)[1] is not None or not await has_records(settings, marks):
        return
    raise AppError(
        [
            f"the offsets that group {group} has committed of {tp.topic}[{tp.partition}] were reset, have expired, or "
            "are those of a version without State(merge=...): what its events have left is merged already, and would "
            f"be once more. {begin_again(group, tp.topic)}"
        ]
    )


async def _prepare_marks(admin: AIOKafkaAdminClient, group: str, topic: str) -> int:
    size, name = await size_of(admin, topic), marks_of(group, topic)
    if faults := await create(admin, name, size, {"cleanup.policy": "compact"}, _WHY):
        raise AppError(faults)
    if len(await until_known(admin, name)) < size.partitions:  # the input has more than before
        await admin.create_partitions({name: NewPartitions(size.partitions)})
    return size.partitions


async def _faults_of_before(
    admin: AIOKafkaAdminClient, settings: Settings, there: Collection[str], handler: Handler
) -> list[str]:
    """What the handler has left from when each key had a state of its own."""
    topic = handler.topic.name
    before, slots = changelog_of(settings.group, topic), slots_of(settings.group, topic)
    if slots in there and not await slots_are_over(admin, settings, [slots]):
        return [
            f"topic {slots!r} holds events of keys that were handed over before {handler.name} had split, and nobody "
            "would handle them: first run the version without split, and have all keys go home by PUT /keys/KEY/slot"
        ]
    return [_another(before, handler.name, "kept without split")] if before in there else []


async def _prepare(admin: AIOKafkaAdminClient, topic: str, name: str, state: State) -> list[str]:
    wanted = largest_partial(state)
    options = {**KEPT, "max.message.bytes": str(wanted)}
    if faults := await create(admin, name, await size_of(admin, topic), options, _WHY):
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


async def _faults_of_merged(
    admin: AIOKafkaAdminClient, settings: Settings, there: Collection[str], handler: Handler
) -> list[str]:
    """What the handler has left from when its states were merged."""
    name = partials_of(settings.group, handler.topic.name)
    if name in there and not await slots_are_over(admin, settings, [name]):
        return [_unread(name)]
    merged = changelog_of(settings.group, name)
    return [_another(merged, handler.name, "merged")] if handler.kept is not None and merged in there else []


def _another(changelog: str, name: str, how: str) -> str:
    return (
        f"topic {changelog!r} has the states that {name} has {how}, which it would not go on with: use another app "
        "name, which begins at the first event, or delete that topic to go on without them"
    )


def _unread(name: str) -> str:
    return (
        f"topic {name!r} holds states that are not merged yet, and no handler with State(merge=...) and split takes "
        f"them any more: first run the version that has one, once with until='latest' (KEYGROUPING_APP_UNTIL), which "
        f"ends when all is merged; or delete the topic to go on without them"
    )


class MarkedPartition(Partition):
    """An input of which the states are merged."""

    names_record = True

    def tell(self, group: str, found: OffsetAndMetadata) -> None:
        """Has its first transaction tell that it has begun."""
        if split_states(found.metadata)[1] is None:
            self.marks = [Outgoing(marks_of(group, self.tp.topic), self.tp.partition, -1, b"begun", b"{}")]


class PartialsPartition(Partition):
    """An input of partial states."""

    def _events(self, records: Iterable[Raw]) -> list[Event]:
        return [partial_of(raw, self) for raw in records]
