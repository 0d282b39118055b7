"""Settings as data: meaning, unit and range of each, so that all programs check and show them alike."""

from __future__ import annotations

import dataclasses
import functools
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError

_TYPE_NAMES = {bool: "true or false", int: "an integer", float: "a number", str: "a text", type(None): "null"}
_STRICT = ConfigDict(strict=True, allow_inf_nan=False)
_OUT_OF_RANGE = {"greater_than", "greater_than_equal", "less_than", "less_than_equal"}


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
        for (name, kind), field in zip(_types(type(self)).items(), dataclasses.fields(self), strict=True):
            value = getattr(self, name)
            if isinstance(value, list):
                object.__setattr__(self, name, tuple(value))
            try:
                kind.validate_python(getattr(self, name))
            except ValidationError as error:
                out_of_range = any(found["type"] in _OUT_OF_RANGE for found in error.errors(include_url=False))
                wanted = _range(field.metadata) if out_of_range else _type_name(typing.get_type_hints(type(self))[name])
                faults.append(f"{name} must be {wanted}, not {value!r}")
        faults = faults or self._faults()
        if faults:
            raise SettingsError("; ".join(faults))

    def _faults(self) -> list[str]:
        """What is wrong between fields that are each right by themselves."""
        return []

    @classmethod
    def of(cls, given: Mapping[str, object]) -> typing.Self:
        """The settings with these values, and defaults for the others; SettingsError with all faults."""
        known = [field.name for field in dataclasses.fields(cls)]
        unknown = sorted(given.keys() - set(known))
        try:
            settings = cls(**{name: value for name, value in given.items() if name in known})
        except SettingsError as error:
            if not unknown:
                raise
            raise SettingsError(f"{error}; {_unknown(unknown, known)}") from error
        if unknown:
            raise SettingsError(_unknown(unknown, known))
        return settings

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
        return {name: kind.json_schema() for name, kind in _types(cls).items()}


def _unknown(names: Sequence[str], known: Sequence[str]) -> str:
    return f"unknown setting {', '.join(names)}; choose from {', '.join(known) or 'none'}"


def _types_of(kind: type[Settings]) -> dict[str, TypeAdapter[Any]]:
    """What checks the value of each setting, and knows its JSON schema."""
    hints = typing.get_type_hints(kind)
    return {
        field.name: TypeAdapter(_bounded(hints[field.name], field.metadata), config=_STRICT)
        for field in dataclasses.fields(kind)
    }


_types: Callable[[Any], dict[str, TypeAdapter[Any]]] = functools.cache(_types_of)


def _bounded(hint: Any, bounds: Mapping[str, Any]) -> Any:
    """A type whose numbers lie within the bounds."""
    if isinstance(hint, types.UnionType):
        return typing.Union[tuple(_bounded(choice, bounds) for choice in typing.get_args(hint))]  # noqa: UP007
    if typing.get_origin(hint) is tuple:
        return types.GenericAlias(tuple, (_bounded(typing.get_args(hint)[0], bounds), ...))
    if hint not in (int, float):
        return hint
    return Annotated[hint, Field(ge=bounds["least"], gt=bounds["above"], le=bounds["most"])]


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
