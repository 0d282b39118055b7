"""Groupings by name, so that every program builds them the same way from the same settings."""

import dataclasses
import math
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any

from keygrouping.grouping.dkg import Dkg, DkgSettings
from keygrouping.grouping.key import Key
from keygrouping.grouping.pkg import Pkg, PkgSettings
from keygrouping.grouping.protocol import Grouping
from keygrouping.grouping.shuffle import Shuffle


class GroupingError(ValueError):
    """A grouping that can't be built; one line that names the choices."""


@dataclasses.dataclass(frozen=True)
class NoSettings:
    """Settings of a grouping that has none."""


@dataclasses.dataclass(frozen=True)
class _Entry:
    settings: type[Any]
    build: Callable[[int, Any], Grouping]


_GROUPINGS: dict[str, _Entry] = {
    "shuffle": _Entry(NoSettings, lambda workers, _: Shuffle(workers)),
    "key": _Entry(NoSettings, lambda workers, _: Key(workers)),
    "pkg": _Entry(PkgSettings, Pkg),
    "dkg": _Entry(DkgSettings, Dkg),
}


def names() -> tuple[str, ...]:
    """The names of all groupings."""
    return tuple(_GROUPINGS)


def describe(name: str) -> dict[str, Any]:
    """The settings of a grouping and their defaults."""
    return dataclasses.asdict(_entry(name).settings())


def create(name: str, workers: int, settings: Mapping[str, object] | None = None) -> Grouping:
    """A new grouping by its name; settings that are not given have their defaults.

    Raises GroupingError (a ValueError) with one line for an unknown name or setting, or a value out of range.
    """
    entry = _entry(name)
    try:
        return entry.build(workers, _settings(name, entry.settings, settings or {}))
    except GroupingError:
        raise
    except ValueError as error:
        raise GroupingError(f"grouping {name!r}: {error}") from error


def _entry(name: str) -> _Entry:
    if name not in _GROUPINGS:
        raise GroupingError(f"unknown grouping {name!r}; choose from {', '.join(_GROUPINGS)}")
    return _GROUPINGS[name]


def _settings(name: str, kind: type[Any], given: Mapping[str, object]) -> Any:
    hints = typing.get_type_hints(kind)
    unknown = sorted(given.keys() - hints.keys())
    if unknown:
        choices = ", ".join(hints) or "none"
        raise GroupingError(f"grouping {name!r}: unknown setting {', '.join(unknown)}; choose from {choices}")
    wrong = [
        f"{key} must be {_type_name(hints[key])}, not {value!r}"
        for key, value in given.items()
        if not _fits(value, hints[key])
    ]
    if wrong:
        raise GroupingError(f"grouping {name!r}: {'; '.join(wrong)}")
    return kind(**given)


def _fits(value: object, hint: Any) -> bool:
    if isinstance(hint, types.UnionType):
        return any(_fits(value, choice) for choice in typing.get_args(hint))
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _type_name(hint: Any) -> str:
    if isinstance(hint, types.UnionType):
        return " or ".join(_type_name(choice) for choice in typing.get_args(hint))
    return {bool: "true or false", int: "an integer", float: "a number", type(None): "null"}.get(hint, str(hint))
