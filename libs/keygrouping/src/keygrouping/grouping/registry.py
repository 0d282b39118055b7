"""Groupings by name, so that every program builds them the same way from the same settings.

Other packages add theirs by an entry point of the group `keygrouping.groupings`: its name is the grouping's, its object
the class, a `BaseGrouping`.
"""

import functools
import importlib
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from keygrouping.grouping.base import BaseGrouping
from keygrouping.grouping.protocol import Grouping, Offline, Planned
from keygrouping.settings import Description

_GROUPINGS = {
    "shuffle": "shuffle:Shuffle",
    "key": "key:Key",
    "pkg": "choices.pkg:Pkg",
    "potc": "choices.potc:Potc",
    "on-greedy": "choices.on_greedy:OnGreedy",
    "off-greedy": "choices.off_greedy:OffGreedy",
    "dkg": "dkg:Dkg",
    "d-choices": "choices.d_choices:DChoices",
    "w-choices": "choices.w_choices:WChoices",
    "dstream": "dstream:DStream",
    "dkg-legacy": "dkg.legacy:DkgLegacy",
    "llfd": "table.llfd:Llfd",
    "mintable": "table.mintable:MinTable",
    "minmig": "table.minmig:MinMig",
    "mixed": "table.mixed:Mixed",
    "mixed-bf": "table.mixed_bf:MixedBruteForce",
    "readj": "table.readj:Readj",
    "distribution-aware": "distribution_aware:DistributionAware",
    "consistent": "consistent:Consistent",
    "dagreedy": "dagreedy:DaGreedy",
    "fish": "fish:Fish",
    "level-fill": "level_fill:LevelFill",
}
"""Module and class by name; imported when they are first asked for."""

PLUGINS = "keygrouping.groupings"
"""Group of the entry points of other packages."""


class GroupingError(ValueError):
    """A grouping that can't be built; one line that names the choices."""


def names() -> tuple[str, ...]:
    """The names of all groupings, those of other packages last."""
    return (*_GROUPINGS, *_plugins())


@functools.cache
def live_names() -> tuple[str, ...]:
    """The names of those that can route a stream as it comes, and need not know its keys beforehand."""
    return tuple(name for name in names() if not _is_offline(name))


def describe(name: str) -> tuple[Description, ...]:
    """The settings of a grouping: names, defaults, meanings, units and ranges."""
    return _class(name).settings.describe()


def schema(name: str) -> dict[str, dict[str, Any]]:
    """JSON schemas of a grouping's settings, by name."""
    return _class(name).settings.schema()


def shared_settings(name: str) -> Mapping[str, object] | None:
    """The settings with which a grouping leaves planning to its owner, so that several sources can share one plan.

    See `protocol.Planned`. None: the grouping has nothing to share.
    """
    return _class(name).shared_settings


def secret_setting(name: str) -> str | None:
    """The setting that takes a secret number, from 1 to 2**53 - 1, so that nobody can choose keys that harm it.

    Who runs several sources draws one for all of them. None: the grouping has none, as those that were published.
    """
    return _class(name).secret_setting


def create(name: str, workers: int, settings: Mapping[str, object] | None = None) -> Grouping:
    """A new grouping by its name; settings that are not given have their defaults.

    Raises GroupingError (a ValueError) with one line for an unknown name or setting, or a value out of range.
    """
    grouping = _class(name)
    try:
        return grouping(workers, grouping.settings.of(settings or {}))
    except ValueError as error:
        raise GroupingError(f"grouping {name!r}: {error}") from error


def create_shared(name: str, workers: int, settings: Mapping[str, object] | None = None) -> Planned:
    """A new grouping that leaves planning to its owner, so that several sources can share one plan.

    `settings` are those besides `shared_settings`. Raises GroupingError as `create` does, and for one that has nothing
    to share.
    """
    shared = shared_settings(name)
    found = None if shared is None else create(name, workers, {**(settings or {}), **shared})
    if not isinstance(found, Planned):
        having = ", ".join(each for each in names() if shared_settings(each) is not None)
        raise GroupingError(f"grouping {name!r} has no plan to share; choose from {having}")
    return found


def _class(name: str) -> type[BaseGrouping[Any]]:
    if name in _plugins():
        return _plugged_in(_plugins()[name])
    if name not in _GROUPINGS:
        raise GroupingError(f"unknown grouping {name!r}; choose from {', '.join(names())}")
    module, _, class_name = _GROUPINGS[name].partition(":")
    found: type[BaseGrouping[Any]] = getattr(importlib.import_module(f"keygrouping.grouping.{module}"), class_name)
    return found


def _is_offline(name: str) -> bool:
    try:
        return isinstance(create(name, 1), Offline)
    except GroupingError:  # Who asks for it is told why it can't be loaded.
        return False


@functools.cache
def _plugins() -> Mapping[str, EntryPoint]:
    """The groupings of other packages; a name that is taken already is none of theirs."""
    found = sorted(entry_points(group=PLUGINS), key=lambda point: point.name)
    return {point.name: point for point in found if point.name not in _GROUPINGS}


def _plugged_in(point: EntryPoint) -> type[BaseGrouping[Any]]:
    try:
        found = point.load()
    except (ImportError, AttributeError) as error:
        raise GroupingError(f"grouping {point.name!r}: {point.value} can't be loaded: {error}") from error
    if not (isinstance(found, type) and issubclass(found, BaseGrouping)):
        raise GroupingError(f"grouping {point.name!r}: {point.value} must be a subclass of BaseGrouping")
    return found
