"""The topics that the observer writes: it creates those that are missing."""

from __future__ import annotations

from keygrouping_service.kafka import clients
from keygrouping_service.kafka.topics import Topic, create_topics

from keygrouping_observer.settings import ObserverSettings

# Only closed segments are compacted, and a restart reads all that is left: so they are small.
_COMPACTED = {"cleanup.policy": "compact", "segment.bytes": str(16 << 20)}


async def prepare_topics(settings: ObserverSettings) -> None:
    """Makes sure that `distribution` and the state topic exist, each with one partition; `Fatal` otherwise."""
    async with clients.started(clients.admin(settings)) as admin:
        topics = [
            Topic(settings.distribution_topic, 1, {}),
            *(Topic(name, 1, _COMPACTED) for name in (settings.state_topic, settings.audit_topic)),
        ]
        await create_topics(admin, topics)
