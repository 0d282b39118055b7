"""What a router knows of its keys."""

from keygrouping.keyspace.generations import BABY, EMPTY, ITEM, MAX_DISTINCT_KEYS, OLD, SPACE_NAMES, TEENAGE, KeySpace

__all__ = ["BABY", "EMPTY", "ITEM", "MAX_DISTINCT_KEYS", "OLD", "SPACE_NAMES", "TEENAGE", "KeySpace"]
