"""How the knowledge of a replica stands in the store."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from itertools import islice
from typing import Annotated, Any

import numpy as np
from keygrouping.keyspace import SpaceSaving
from keygrouping.measure import MOST_PAIRS, KeySample
from pydantic import BaseModel, ConfigDict, Field

from keygrouping_router.knowledge.keyspace import Knowledge
from keygrouping_router.knowledge.tracker import Sighting
from keygrouping_router.limits import MAX_TRACKED, MAX_WORKERS, Number, Time

_STRETCH = 1000
"""Keys that are gone through in one stretch."""


async def knowledge_to_data(known: Knowledge) -> dict[str, Any]:
    """All of it as JSON data of bounded size; lets other tasks run between stretches."""
    counts = known.counts.to_data()
    hashes = counts["hash"]
    seen: list[Sighting] = []
    names: list[str | None] = []
    times: list[float] = []
    for start in range(0, len(hashes), _STRETCH):
        await asyncio.sleep(0)
        stretch = hashes[start : start + _STRETCH]
        times += map(known.last_seen, stretch)
        found = [known.sightings.get(hashed, _UNSEEN) for hashed in stretch]
        names += [None if one.name is None else base64.b64encode(one.name).decode() for one in found]
        seen += found
    await asyncio.sleep(0)
    return {
        "replica": known.replica,
        "events": known.events,
        "capacity": known.counts.capacity,
        "counts": counts,
        "distinct": known.distinct.to_data(),
        "names": names,
        "first_seen": [one.first_seen for one in seen],
        "last_seen": times,
        "hot": [[hashed, width, known.hot_since.get(hashed)] for hashed, width in known.widths.items()],
        "loads": known.loads.tolist(),
        "before": known.before.tolist(),
        "spread": known.spread.to_data(),
    }


async def knowledge_from_data(data: Mapping[str, Any]) -> Knowledge:
    """The knowledge that gave the data; raises if there is none. Lets other tasks run between stretches."""
    told = _Told.model_validate(data)
    hashes = np.array(told.counts["hash"], np.int64).tolist()
    seen: dict[int, Sighting] = {}
    rows = zip(hashes, told.names, told.first_seen, strict=True)
    while stretch := list(islice(rows, _STRETCH)):
        seen |= {
            hashed: Sighting(None if name is None else base64.b64decode(name), first)
            for hashed, name, first in stretch
            if first
        }
        await asyncio.sleep(0)
    last_seen = dict(zip(hashes, told.last_seen, strict=True))
    if len(told.loads) != len(told.before):
        raise ValueError("loads of different numbers of workers")
    return Knowledge(
        replica=told.replica,
        events=told.events,
        counts=SpaceSaving.from_data(told.capacity, told.counts),
        distinct=KeySample.from_data(told.distinct),
        sightings=seen,
        last_seen=lambda hashed: last_seen.get(hashed, 0.0),
        hot_since={hashed: since for hashed, _, since in told.hot if since is not None},
        widths={hashed: width for hashed, width, _ in told.hot},
        loads=np.array(told.loads, np.float64),
        before=np.array(told.before, np.float64),
        spread=KeySample.from_data(told.spread, max(MOST_PAIRS, 4 * len(told.loads))),
    )


_Load = Annotated[float, Field(ge=0, le=1e150)]
_Loads = Annotated[list[_Load], Field(min_length=1, max_length=MAX_WORKERS)]
_Width = Annotated[int, Field(ge=0, le=MAX_WORKERS)]
_Hash = Annotated[int, Field(ge=-(2**63), lt=2**63)]


class _Told(BaseModel):
    """What a replica tells of its knowledge, as it stands in the store."""

    model_config = ConfigDict(frozen=True)

    replica: str = Field(max_length=200)
    events: Number
    capacity: int = Field(ge=1, le=MAX_TRACKED)
    counts: dict[str, Any]
    distinct: dict[str, Any]
    names: list[str | None]
    first_seen: list[Time]
    last_seen: list[Time]
    hot: list[tuple[_Hash, _Width, Time | None]]
    loads: _Loads
    before: _Loads
    spread: dict[str, Any]


_UNSEEN = Sighting(None, 0.0)
