"""Groupings: the algorithms that say which worker gets an event, all behind one protocol."""

from keygrouping.grouping.protocol import Explanation, Grouping, HotKey, Offline, Planned, SnapshotError, Space
from keygrouping.grouping.registry import GroupingError, create, describe, names, shared_settings
from keygrouping.settings import Description

__all__ = [
    "Description",
    "Explanation",
    "Grouping",
    "GroupingError",
    "HotKey",
    "Offline",
    "Planned",
    "SnapshotError",
    "Space",
    "create",
    "describe",
    "names",
    "shared_settings",
]
