"""The two clocks of the router, to be replaced where time must stand still."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple


class Times(NamedTuple):
    """`steady` never goes back and is what groupings go by; `wall` says seconds since 1970 and is for people."""

    steady: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
