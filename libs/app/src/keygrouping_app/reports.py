"""Reports of members that share hot keys: how often they tell, for how long it counts, and by which names of keys."""

from __future__ import annotations

import hashlib
from collections.abc import Hashable, Sequence

import msgspec

from keygrouping_app.leveling import Report

_PERIOD = 0.25
"""Seconds between reports of a member at most, in groups of up to `_FEW` members; in larger ones as many times more."""
_FEW = 16
_REMEMBERED, _MISSED = 3.0, 4.0
"""Seconds for which a member counts that tells nothing any more, or periods if they are longer."""
_LONGEST_NAME, _SHOWN_NAME = 64, 40
"""Characters of a key's name; of a longer one so many are shown, and a digest stands for all."""


def period_of(members: int) -> float:
    """Seconds between the reports of each of so many members at most."""
    return _PERIOD * max(1.0, members / _FEW)


def remembered_of(members: int) -> float:
    """Seconds for which each of them counts after its last report."""
    return max(_REMEMBERED, _MISSED * period_of(members))


def with_owners(reports: Sequence[Report]) -> list[Report]:
    """Reports, the latest at the end, with one owner of each slot: the later of two, as the other may be dead."""
    owners = {number: report.member for report in reports for number in report.slots}
    return [
        msgspec.structs.replace(
            report, slots={number: slot for number, slot in report.slots.items() if owners[number] == report.member}
        )
        for report in reports
    ]


def name_of(group: Hashable) -> str:
    """A key in reports: the same name for all members, and a short one."""
    name = repr(group)
    if len(name) <= _LONGEST_NAME:
        return name
    return f"{name[:_SHOWN_NAME]}...{hashlib.blake2b(name.encode(errors='replace'), digest_size=8).hexdigest()}"
