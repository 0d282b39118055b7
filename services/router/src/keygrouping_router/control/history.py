"""One change of what can be set, as the history has it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from keygrouping_router.control.orders import Values

What = Literal["thresholds", "grouping", "workers", "shadow", "overrides"]


@dataclass(frozen=True)
class Change:
    """Who has changed what at which time (seconds since 1970), from what to what."""

    at: float
    by: str
    version: int
    what: What
    before: Values
    after: Values
