"""Whether settings are of the types that their annotations say: what is not is told, rather than failing somewhere."""

from __future__ import annotations

from collections import abc
from collections.abc import Iterator, Mapping
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

_NAMES: dict[Any, str] = {
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    str: "text",
    NoneType: "None",
}


def type_faults(annotated: Any, given: Mapping[str, Any], place: str = "") -> Iterator[str]:
    """What of the settings, by name, is of another type than a class or function has annotated for it, each with what
    to do; `place` stands before the names."""
    hints = get_type_hints(annotated)
    for name, value in given.items():
        if name in hints and not _is_a(value, hints[name]):
            yield f"{place}{name} is {value!r:.200}: give {_told(hints[name])}"


def fields_of(settings: Any) -> dict[str, Any]:
    """The values of a dataclass's fields."""
    return {name: getattr(settings, name) for name in settings.__dataclass_fields__}


def _is_a(value: Any, hint: Any) -> bool:
    """As type checkers have it: a whole number is a number, and a boolean is either. Which literals there are is
    checked, and told, where their meanings are."""
    kind = get_origin(hint) or hint
    if kind in (Union, UnionType):
        return any(_is_a(value, each) for each in get_args(hint))
    if kind in (Any, Literal):
        return True
    if kind is abc.Callable:
        return callable(value)
    if getattr(kind, "_is_protocol", False):
        return all(callable(getattr(value, name, None)) for name in vars(kind) if not name.startswith("_"))
    return isinstance(value, {int: Integral, float: Real}.get(kind, kind))


def _told(hint: Any) -> str:
    kind = get_origin(hint) or hint
    if kind in (Union, UnionType):
        *others, last = dict.fromkeys(map(_told, get_args(hint)))
        return f"{', '.join(others)} or {last}" if others else last
    if kind is Literal:
        return " or ".join(map(repr, get_args(hint)))
    return "a function" if kind is abc.Callable else _NAMES.get(kind, f"a {kind.__name__}")
