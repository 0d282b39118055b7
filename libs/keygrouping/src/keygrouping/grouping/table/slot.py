"""What the hash table of a routing-table grouping holds of each key."""

import numpy as np

EMPTY, TRACKED, ROUTED = 0, 1, 2
"""An unused slot; a key at home; a key with an entry in the routing table."""

SLOT = np.dtype(
    [
        ("hash", np.int64),
        ("cost", np.float64),
        ("since", np.float64),
        ("worker", np.int32),
        ("kind", np.int32),
    ]
)
"""One key: its hash, its weight in this interval, the time (seconds) of its first event, its worker, its kind."""
