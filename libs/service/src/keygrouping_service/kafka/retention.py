"""How near retention is to what a stage has yet to read: what it is about to delete unread."""

from __future__ import annotations

from collections.abc import Mapping

from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

_NEAR = 0.75
"""Part of what a topic keeps (of its time, or of its records) beyond which a record is soon deleted."""


class Retention:
    """The retention of one topic, as it is now: it may be changed while a stage runs."""

    def __init__(self, admin: AIOKafkaAdminClient, probe: AIOKafkaConsumer, topic: str) -> None:
        self._admin = admin
        self._probe = probe
        self._topic = topic

    async def expiring(self, unread: Mapping[int, tuple[int, int]], now_ms: int) -> int | None:
        """Records that are to be deleted soon, of those that are unread: the next offset and the end, by partition.

        None if the topic's settings may not be read. Raises Kafka errors.
        """
        settings = await self._settings()
        if settings is None:
            return None
        waiting = {TopicPartition(self._topic, p): (at, end) for p, (at, end) in unread.items() if at < end}
        if not waiting or "delete" not in settings.get("cleanup.policy", "delete"):
            return 0
        soon = {tp: at for tp, (at, _) in waiting.items()}
        if (kept_ms := int(settings.get("retention.ms", -1))) >= 0:
            soon = _later(soon, await self._older_than(waiting, now_ms - int(_NEAR * kept_ms)))
        if int(settings.get("retention.bytes", -1)) >= 0:
            soon = _later(soon, await self._oldest_part(waiting))
        return sum(soon[tp] - at for tp, (at, _) in waiting.items())

    async def _older_than(
        self, waiting: Mapping[TopicPartition, tuple[int, int]], time_ms: int
    ) -> dict[TopicPartition, int]:
        """Up to where the records of each partition are older."""
        found = await self._probe.offsets_for_times(dict.fromkeys(waiting, max(0, time_ms)))
        return {tp: end if found.get(tp) is None else min(found[tp].offset, end) for tp, (_, end) in waiting.items()}

    async def _oldest_part(self, waiting: Mapping[TopicPartition, tuple[int, int]]) -> dict[TopicPartition, int]:
        """Up to where the oldest records of each partition lie; nothing of those of which nothing was deleted yet."""
        firsts = await self._probe.beginning_offsets(list(waiting))
        return {
            tp: first + int((1 - _NEAR) * (waiting[tp][1] - first)) if first > 0 else 0 for tp, first in firsts.items()
        }

    async def _settings(self) -> dict[str, str] | None:
        (answer,) = await self._admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, self._topic)])
        ((code, _, _, _, entries, *_),) = answer.resources
        return None if code else {name: value for name, value, *_ in entries if value is not None}


def _later(one: Mapping[TopicPartition, int], other: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    return {tp: max(offset, other[tp]) for tp, offset in one.items()}
