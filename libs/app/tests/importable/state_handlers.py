"""Handlers with state that do what their events say, in a module that other processes can import."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

from keygrouping_app import Event, Output
from lane_handlers import act


@dataclass
class Seen:
    """Offsets of the events that a key has had."""

    offsets: list[int] = field(default_factory=list)


def note(event: Event, seen: Seen) -> Output | None:
    """A plain handler; what it does comes when the state is changed already."""
    seen.offsets.append(event.offset)
    return act(event)


async def note_async(event: Event, seen: Seen) -> Output | None:
    """A coroutine."""
    seen.offsets.append(event.offset)
    if event.value["do"] == "sleep":
        await asyncio.sleep(3600)
    return act(event)


def note_batch(events: list[Event], seen: Seen) -> None:
    """Of many."""
    for event in events:
        seen.offsets.append(event.offset)
        act(event)


def broken_upgrade(old: Any, version: int) -> Any:
    """An upgrade that does not know what it is given."""
    raise LookupError(f"version {version} had {old}")
