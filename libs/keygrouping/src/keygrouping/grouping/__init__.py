"""Groupings: the algorithms that say which worker gets an event, all behind one protocol."""

from keygrouping.grouping.protocol import Explanation, Grouping, HotKey, SnapshotError
from keygrouping.grouping.registry import GroupingError, create, describe, names

__all__ = [
    "Explanation",
    "Grouping",
    "GroupingError",
    "HotKey",
    "SnapshotError",
    "create",
    "describe",
    "names",
]
