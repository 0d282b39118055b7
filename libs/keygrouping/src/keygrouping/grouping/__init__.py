"""Groupings: the algorithms that say which worker gets an event, all behind one protocol."""

from keygrouping.grouping.overrides import Override, Overrides
from keygrouping.grouping.protocol import (
    CHECKS,
    LEAST_CAPACITY,
    MOST_CAPACITY,
    Explanation,
    Filled,
    Filling,
    Grouping,
    HotKey,
    Offline,
    Planned,
    PouredKey,
    SnapshotError,
    Space,
    UrgentlyPlanned,
)
from keygrouping.grouping.registry import GroupingError, create, describe, live_names, names, schema, shared_settings
from keygrouping.settings import Description

__all__ = [
    "CHECKS",
    "LEAST_CAPACITY",
    "MOST_CAPACITY",
    "Description",
    "Explanation",
    "Filled",
    "Filling",
    "Grouping",
    "GroupingError",
    "HotKey",
    "Offline",
    "Override",
    "Overrides",
    "Planned",
    "PouredKey",
    "SnapshotError",
    "Space",
    "UrgentlyPlanned",
    "create",
    "describe",
    "live_names",
    "names",
    "schema",
    "shared_settings",
]
