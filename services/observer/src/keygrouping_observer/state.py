"""What survives a restart: records of a compacted topic, in one transaction with the snapshot they belong to."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from typing import Any

import orjson
from keygrouping_service.errors import Fatal
from keygrouping_service.kafka.owned import OwnedPartition

from keygrouping_observer import widths
from keygrouping_observer.figures import Totals
from keygrouping_observer.identities import Source

log = logging.getLogger(__name__)

RUN_KEY = b"run"
"""Key of the one record that holds everything but the workers of the keys."""

_VERSION = 1
_MOST_RECORDS = 5000
_POLL_SECONDS = 0.2


@dataclass
class LaneState:
    """Where a partition of `partials` stands: everything before `next` has been counted."""

    next: int = 0
    again: int = 0
    """Reading begins here, so that repetitions of what lies in between are known."""
    dead_lettered: int = 0
    """What can't be used before this offset is in the dead letters."""


@dataclass
class RunState:
    """What is known of the run up to the end (ms) of the last interval."""

    closed: int = 0
    since: int = 0
    intervals: int = 0
    workers: int = 0
    """Workers in use, as the router said last; 0: it has not said."""
    capacities: list[float] = field(default_factory=list)
    """Of these workers, as the router said last."""
    halvings: int = 0
    partials: str = ""
    """The id of `partials`."""
    floors: dict[Source, int] = field(default_factory=dict)
    lanes: dict[int, LaneState] = field(default_factory=dict)
    totals: Totals = field(default_factory=Totals)

    def encode(self) -> bytes:
        """The record's value."""
        floors = [[*source, floor] for source, floor in self.floors.items()]
        return orjson.dumps({"v": _VERSION, **asdict(self), "floors": floors}, option=orjson.OPT_NON_STR_KEYS)

    @classmethod
    def decode(cls, value: bytes) -> RunState:
        """Reads a record's value; ValueError, KeyError or TypeError if it is none."""
        data: dict[str, Any] = orjson.loads(value)
        if data.pop("v") != _VERSION:
            raise ValueError("it is of another version")
        lanes = {int(partition): LaneState(**lane) for partition, lane in data.pop("lanes").items()}
        floors = {(topic, worker): floor for topic, worker, floor in data.pop("floors")}
        return cls(lanes=lanes, floors=floors, totals=Totals(**data.pop("totals")), **data)


async def restore(owned: OwnedPartition) -> tuple[RunState, Iterable[tuple[bytes, bytes]]]:
    """Reads the state topic to its end: the state of the run and the records of the keys' workers.

    `Fatal` if the state can't be read: to begin a new run silently would be worse.
    """
    end = await owned.end()
    run, rows = None, dict[bytes, bytes]()
    while owned.position < end and not owned.stopping:
        for record in await owned.poll(_MOST_RECORDS, _POLL_SECONDS):
            if record.key == RUN_KEY:
                run = record.value
            elif record.key is not None and record.key.startswith(widths.PREFIX):
                if record.value is None:
                    rows.pop(record.key, None)
                else:
                    rows[record.key] = record.value
    if run is None:
        return RunState(), ()
    try:
        return RunState.decode(run), rows.items()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Fatal(
            f"{owned.tp.topic} holds no state of this observer ({error}): delete the topic to begin a new run"
        ) from None
