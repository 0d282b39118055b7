"""Groupings: the algorithms that say which worker gets an event, all behind one protocol."""

from keygrouping.grouping.protocol import Explanation, Grouping, HotKey, Offline, Planned, SnapshotError
from keygrouping.grouping.registry import GroupingError, create, describe, names
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
    "create",
    "describe",
    "names",
]
