"""What the answer to a write says of what was done."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Any, TypeVar

from keygrouping.grouping import describe, shared_settings

from keygrouping_router.api.shapes import Changeable, Done
from keygrouping_router.api.views import shown_values
from keygrouping_router.control.history import Change
from keygrouping_router.control.state import Control
from keygrouping_router.naming import id_of

Report = TypeVar("Report", bound=Changeable)

_MOST_OVERRIDES = 10


def done_with(report: Report, done: Done) -> Report:
    """The report, and what was done."""
    return report.model_copy(update={"done": done})


def done_of(entry: Change | None, control: Control, epoch: int) -> Done:
    """What a change has done, of which this is the entry in the history; None: nothing was changed."""
    if entry is None:
        return Done(changed=False, epoch=epoch, before={}, after={}, notes=["all was so already: nothing was stored"])
    before, after = shown_values(entry.what, entry.before), shown_values(entry.what, entry.after)
    differing = [name for name in sorted({*before, *after}) if before.get(name) != after.get(name)]
    return Done(
        changed=True,
        epoch=epoch,
        before={name: before[name] for name in differing if name in before},
        after={name: after[name] for name in differing if name in after},
        notes=list(_NOTES[entry.what](entry, control)),
    )


def _of_grouping(entry: Change, control: Control) -> Iterator[str]:
    was: Any = entry.before
    name, settings = control.grouping, control.settings
    if was["name"] == name and settings and settings == was["settings"]:
        yield f"the settings of {name} are kept: {_listed(settings)}"
    if was["name"] != name and was["settings"]:
        yield f"the settings of {was['name']} are given up: {_listed(was['settings'])}"
    if control.sharing == "shared" and shared_settings(name) is None:
        yield f"{name} makes no plans that routers could share: each routes by its own"
    if control.observe_only:
        yield f"events go by key hash; {name} is only observed"
    yield from _of_capacities(control)


def _of_workers(_: Change, control: Control) -> Iterator[str]:
    if control.auto:
        yield f"W follows the workers that are running; it is {control.workers} now"
    yield from _of_capacities(control)
    yield from _of_overrides(_, control)


def _of_capacities(control: Control) -> Iterator[str]:
    heeds = any(entry.name == "capacities" for entry in describe(control.routed_by))
    if control.capacities and not heeds:
        yield f"{control.routed_by} takes no account of capacities"
    elif control.capacities and control.settings.get("capacities"):
        yield "the capacities among the thresholds count instead: set them to [] there"


def _of_shadow(_: Change, __: Control) -> Iterator[str]:
    yield "the comparison begins now; where events go has not changed"


def _of_overrides(_: Change, control: Control) -> Iterator[str]:
    for key, why in list(control.layout.resting.items())[:_MOST_OVERRIDES]:
        yield f"the override of {id_of(key)[:100]} rests: {why}"
    places = control.layout.places
    narrow = (each for each in control.overrides if each.width is not None and each.width > len(places[each.key]))
    for each in islice(narrow, _MOST_OVERRIDES):
        found = len(places[each.key])
        yield f"{id_of(each.key)[:100]} is split over {found}, not {each.width}: there are no more workers for it"


def _of_thresholds(_: Change, __: Control) -> Iterator[str]:
    yield from ()


_NOTES = {
    "grouping": _of_grouping,
    "workers": _of_workers,
    "shadow": _of_shadow,
    "overrides": _of_overrides,
    "thresholds": _of_thresholds,
}


def _listed(settings: Any) -> str:
    return ", ".join(f"{name}={value}" for name, value in settings.items())
