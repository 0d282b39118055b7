"""What every program here gets from the benchmark, and the mark of its first record."""

import os
import time

BROKERS = os.environ["PEER_BROKERS"]
SOURCE = os.environ["PEER_SOURCE"]
TARGET = os.environ["PEER_TARGET"]
"""Ten partitions; it exists."""
WORK = os.environ["PEER_WORK"]
"""`route`: every record to the partition of its key; `count`: number and two sums per key and window."""
MODE = os.environ["PEER_MODE"]
APPLICATION = os.environ["PEER_APPLICATION"]
"""A new name for groups, transactions and tables."""
FOLDER = os.environ["PEER_FOLDER"]
"""An empty folder."""
WINDOW_MS = 10_000
GRACE_MS = 2_000_000
"""More than from the first event to the records that close the windows: they come before the others' last events where
partitions are read in turn."""

_seen = False


def first(at: float | None = None) -> None:
    """Notes when the first record came; cheap when called again."""
    global _seen
    if not _seen:
        _seen = True
        with open(os.path.join(FOLDER, "first"), "w") as file:
            file.write(repr(at or time.time()))
