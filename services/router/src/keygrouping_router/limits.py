"""Bounds of what is taken from people and from the store."""

from __future__ import annotations

from typing import Annotated

from keygrouping.grouping import LEAST_CAPACITY, MOST_CAPACITY
from pydantic import Field

MAX_WORKERS = 10_000
MAX_TRACKED = 100_000
"""Most keys with a count."""
MAX_KEYS = 1000
"""Most keys of one answer."""
TOP = 20
"""Hot keys in an `interval` event."""

MAX_OVERRIDES = 100
"""Most keys with an override."""
LONGEST_OVERRIDDEN = 10_000
"""Bytes of a key with an override, at most: all of them are in one document."""
LONGEST_OVERRIDE = 366 * 86_400
"""Seconds until the end of an override, at most."""

MAX_SHADOWS = 8
"""Most groupings that are compared with the one in force."""
LARGEST = 2**53 - 1
"""Of whole numbers: beyond that JSON holds not all of them."""

LATEST = 253_402_300_799.0
"""The end of the last year that can be written as a time, in seconds since 1970."""

MOST_EPOCH = 10**13
"""Of epochs that the store says: plans that are made a hundred times a second get there in 3,000 years. From a larger
one routers would soon count beyond what partials may say."""

Epoch = Annotated[int, Field(ge=0, le=MOST_EPOCH)]
Number = Annotated[int, Field(ge=0, le=LARGEST)]
"""An epoch, a version, a count."""
Capacity = Annotated[float, Field(ge=LEAST_CAPACITY, le=MOST_CAPACITY)]
"""How much a worker can do, relative to the others."""
Time = Annotated[float, Field(ge=0, le=LATEST)]
"""Seconds since 1970."""
