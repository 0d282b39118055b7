"""Where a replay stands, as committed with its events: the offsets and metadata of a consumer group nobody joins.

The group `{application}-producer` holds, for every partition of the events topic, the next position in the source
(as offset) and what is being replayed (as metadata), written in the transactions that write the events. So after any
crash the partition's events and its position agree, and the replay goes on without loss or double. As brokers forget
the offsets of such a group, a copy goes to the topic of positions, in the same transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from aiokafka.structs import OffsetAndMetadata
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from keygrouping_producer.plan import Plan


class Run(BaseModel):
    """A replay: its number, the plan in force, the plan of the settings it grew out of, and its partitions.

    slots: transactional producers that took part, which the next start has to fence.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int = Field(ge=1)
    plan: Plan
    configured: Plan
    partitions: int = Field(ge=1)
    slots: int = Field(ge=1)


class Counters(BaseModel):
    """Of one partition since the run began: events written, bad lines; and keyless items of the source so far."""

    model_config = ConfigDict(extra="forbid")

    sent: int = 0
    bad: int = 0
    unkeyed: int = 0


class _Metadata(BaseModel):
    model_config = ConfigDict(extra="forbid")

    run: Run
    counters: Counters


@dataclass(frozen=True, slots=True)
class Place:
    """A partition's state in a run: the next position of the source, and its counters."""

    run: Run
    position: int
    counters: Counters

    def encode(self) -> OffsetAndMetadata:
        """What is committed for the partition."""
        metadata = _Metadata(run=self.run, counters=self.counters)
        return OffsetAndMetadata(self.position, metadata.model_dump_json(exclude_defaults=True))

    @classmethod
    def decode(cls, stored: OffsetAndMetadata) -> Place | None:
        """Reads what was committed; None if nothing was, or if it is not ours (a group reset by a tool)."""
        if stored.offset < 0:
            return None
        try:
            metadata = _Metadata.model_validate_json(stored.metadata or "")
        except ValidationError:
            return None
        return cls(metadata.run, stored.offset, metadata.counters)


def resume(places: Iterable[Place | None], configured: Plan, partitions: int, slots: int) -> Run:
    """The run to go on with after a start: the last one, or a new one if the settings ask for another workload.

    What was set live holds over restarts, as long as the settings stay what they were.
    """
    last = max((place.run for place in places if place), key=lambda run: run.number, default=None)
    if last is None:
        return Run(number=1, plan=configured, configured=configured, partitions=partitions, slots=slots)
    if last.configured == configured:
        plan = last.plan
    elif last.plan.workload == configured.workload:
        plan = configured
    else:
        return begin(last, configured, configured, partitions, slots)
    return last.model_copy(update={"plan": plan, "configured": configured, "slots": slots})


def begin(last: Run, plan: Plan, configured: Plan, partitions: int, slots: int) -> Run:
    """A new run after `last`, from the beginning of the plan's workload."""
    return Run(number=last.number + 1, plan=plan, configured=configured, partitions=partitions, slots=slots)


def places_in(run: Run, stored: Mapping[int, Place | None], partitions: Iterable[int]) -> dict[int, Place]:
    """Where each partition stands in `run`; what was committed for an earlier run counts as the beginning."""
    places = {}
    for partition in partitions:
        place = stored.get(partition)
        current = place if place is not None and place.run.number == run.number else None
        places[partition] = (
            Place(run, current.position, current.counters.model_copy()) if current else Place(run, 0, Counters())
        )
    return places
