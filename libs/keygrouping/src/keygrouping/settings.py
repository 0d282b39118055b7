"""Settings as data: meaning, unit and range of each, so that all programs check and show them alike."""

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from typing import Any, NamedTuple

_TYPE_NAMES = {bool: "true or false", int: "an integer", float: "a number", str: "a text", type(None): "null"}
_SCHEMA_TYPES = {bool: "boolean", int: "integer", float: "number", str: "string", type(None): "null"}


class Description(NamedTuple):
    """One setting, for people and programs."""

    name: str
    default: Any
    meaning: str
    unit: str
    """Empty for numbers without one."""
    kind: str
    """What a value must be, such as "a number or null"."""
    range: str
    """Such as "from 10 to 100000" or "above 0"; empty where all values of the type will do."""


class SettingsError(ValueError):
    """Settings that can't be used; one line with all faults."""


def setting(
    default: Any,
    meaning: str,
    *,
    unit: str = "",
    least: float | None = None,
    above: float | None = None,
    most: float | None = None,
) -> Any:
    """A field of a settings class: its default, meaning, unit and the range that its numbers lie in."""
    return dataclasses.field(
        default=default, metadata={"meaning": meaning, "unit": unit, "least": least, "above": above, "most": most}
    )


@dataclasses.dataclass(frozen=True)
class Settings:
    """Base of all settings classes: every field is a `setting` of bool, int, float, str, a Literal, a tuple of numbers
    (`tuple[float, ...]`; a list will do), or one of them or None. Raises SettingsError with all faults of all fields.
    """

    def __post_init__(self) -> None:
        faults = []
        hints = typing.get_type_hints(type(self))
        for field in dataclasses.fields(self):
            value, hint = getattr(self, field.name), hints[field.name]
            if not _fits(value, hint):
                faults.append(f"{field.name} must be {_type_name(hint)}, not {value!r}")
            elif not _in_range(value, field.metadata):
                faults.append(f"{field.name} must be {_range(field.metadata)}, not {value!r}")
            elif isinstance(value, list):
                object.__setattr__(self, field.name, tuple(value))
        faults = faults or self._faults()
        if faults:
            raise SettingsError("; ".join(faults))

    def _faults(self) -> list[str]:
        """What is wrong between fields that are each right by themselves."""
        return []

    @classmethod
    def of(cls, given: Mapping[str, object]) -> typing.Self:
        """The settings with these values, and defaults for the others; SettingsError names unknown ones."""
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(given.keys() - set(known))
        if unknown:
            raise SettingsError(f"unknown setting {', '.join(unknown)}; choose from {', '.join(known) or 'none'}")
        return cls(**given)

    @classmethod
    def describe(cls) -> tuple[Description, ...]:
        """All settings in order."""
        hints = typing.get_type_hints(cls)
        return tuple(
            Description(
                field.name,
                field.default,
                field.metadata["meaning"],
                field.metadata["unit"],
                _type_name(hints[field.name]),
                _range(field.metadata),
            )
            for field in dataclasses.fields(cls)
        )

    @classmethod
    def schema(cls) -> dict[str, dict[str, Any]]:
        """JSON schemas of all settings, by name: what a value of each must be, as far as a schema can say it."""
        hints = typing.get_type_hints(cls)
        return {field.name: _schema(hints[field.name], field.metadata) for field in dataclasses.fields(cls)}


def _schema(hint: Any, bounds: Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(hint, types.UnionType):
        return {"anyOf": [_schema(choice, bounds) for choice in typing.get_args(hint)]}
    if typing.get_origin(hint) is typing.Literal:
        return {"enum": list(typing.get_args(hint))}
    if typing.get_origin(hint) is tuple:
        return {"type": "array", "items": _schema(typing.get_args(hint)[0], bounds)}
    if hint not in (int, float):
        return {"type": _SCHEMA_TYPES[hint]}
    words = {"minimum": "least", "exclusiveMinimum": "above", "maximum": "most"}
    limits = {word: bounds[bound] for word, bound in words.items() if bounds[bound] is not None}
    return {"type": _SCHEMA_TYPES[hint], **limits}


def _fits(value: object, hint: Any) -> bool:
    if isinstance(hint, types.UnionType):
        return any(_fits(value, choice) for choice in typing.get_args(hint))
    if typing.get_origin(hint) is typing.Literal:
        return value in typing.get_args(hint)
    if typing.get_origin(hint) is tuple:
        return isinstance(value, list | tuple) and all(_fits(item, typing.get_args(hint)[0]) for item in value)
    if hint is float:
        return isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value)
    if hint is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, hint)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # An integer that no float can hold.
        return False


def _in_range(value: object, bounds: Mapping[str, Any]) -> bool:
    if isinstance(value, list | tuple):
        return all(_in_range(item, bounds) for item in value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return True
    low, above, high = bounds["least"], bounds["above"], bounds["most"]
    return (low is None or value >= low) and (above is None or value > above) and (high is None or value <= high)


def _range(bounds: Mapping[str, Any]) -> str:
    low, above, high = bounds["least"], bounds["above"], bounds["most"]
    if low is not None and high is not None:
        return f"from {low:.12g} to {high:.12g}"
    parts = [] if low is None else [f"at least {low:.12g}"]
    parts += [] if above is None else [f"above {above:.12g}"]
    parts += [] if high is None else [f"at most {high:.12g}"]
    return " and ".join(parts)


def _type_name(hint: Any) -> str:
    if isinstance(hint, types.UnionType):
        return " or ".join(_type_name(choice) for choice in typing.get_args(hint))
    if typing.get_origin(hint) is typing.Literal:
        return "one of " + ", ".join(map(str, typing.get_args(hint)))
    if typing.get_origin(hint) is tuple:
        return "a list of numbers"
    return _TYPE_NAMES[hint]
