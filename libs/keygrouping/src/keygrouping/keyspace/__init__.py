"""What a router knows of its keys."""

from keygrouping.keyspace.generations import BABY, EMPTY, ITEM, OLD, SPACE_NAMES, TEENAGE, KeySpace

__all__ = ["BABY", "EMPTY", "ITEM", "OLD", "SPACE_NAMES", "TEENAGE", "KeySpace"]
