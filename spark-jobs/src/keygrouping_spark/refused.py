"""Records that are not merged, on their way to the dead letters."""

from __future__ import annotations

from typing import NamedTuple

from keygrouping_service.records.record import Record


class Refused(NamedTuple):
    """A record that goes to the dead letters, the reason, and what is wrong with it in one line."""

    record: Record
    reason: str
    detail: str
