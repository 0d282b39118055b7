"""What the JSON data of a state look like, declared once: laws hold `encode` to it, Spark reads states by it."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

ScalarShape: TypeAlias = Literal["integer", "number", "text", "integer?", "number?"]
"""An integer of 64 bits, any number (or "NaN", "Infinity", "-Infinity", which JSON has no numbers for), a text; with a
question mark it may be null. Spark gets those as text.
"""

Shape: TypeAlias = ScalarShape | tuple["Shape"] | Mapping[str, "Shape"]
"""A scalar, a list of things of one shape, or an object with these members and no others."""

_LARGE = 1 << 63
_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")


def has_shape(data: Any, shape: Shape, *, texts: bool = True) -> bool:
    """Whether JSON data look like this; without `texts` a number is one that can be computed with."""
    if isinstance(shape, tuple):
        return isinstance(data, list) and all(has_shape(item, shape[0], texts=texts) for item in data)
    if isinstance(shape, str):
        return _is_scalar(data, shape, texts)
    return (
        isinstance(data, dict)
        and data.keys() == shape.keys()
        and all(has_shape(data[name], inner, texts=texts) for name, inner in shape.items())
    )


def _is_scalar(data: Any, shape: ScalarShape, texts: bool) -> bool:
    if data is None:
        return shape.endswith("?")
    if shape == "text":
        return isinstance(data, str)
    if shape.startswith("integer"):
        return type(data) is int and -_LARGE <= data < _LARGE
    if isinstance(data, str):
        return texts and data in _NO_NUMBERS
    return type(data) is float or (type(data) is int and (texts or abs(data) <= sys.float_info.max))
