"""What of a control document can be followed where not all of it can."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from keygrouping_router.control.state import Control
from keygrouping_router.errors import Refused

_GROUPING = ("grouping", "settings", "sharing", "observe_only")


def partly(stored: Control, environment: Control, fault: str) -> Iterator[tuple[Control, list[str]]]:
    """Documents with less and less of a stored one that has this fault, each with what it is without, a line each.

    W, capacities and overrides stay. Whether one of them can be used is for the caller to find out.
    """
    bare = replace(stored, shadow=())
    without: list[str] = []
    if stored.shadow:
        yield _without_bad_comparisons(bare, stored)
        without = [f"the comparison with {', '.join(entry.name for entry in stored.shadow)}"]
        yield bare, [f"{without[0]}: {fault}"]
    plain = replace(bare, settings={})
    yield plain, [*without, f"the settings of {stored.grouping}: {fault}"]
    own = replace(bare, **{name: getattr(environment, name) for name in _GROUPING})
    yield own, [*without, f"the grouping {stored.grouping} ({environment.grouping} routes instead): {fault}"]


def _without_bad_comparisons(bare: Control, stored: Control) -> tuple[Control, list[str]]:
    good, bad = [], []
    for entry in stored.shadow:
        try:
            replace(bare, shadow=(entry,)).check()
            good.append(entry)
        except Refused as error:
            bad.append(f"the comparison with {entry.name}: {error}")
    return replace(bare, shadow=tuple(good)), bad
