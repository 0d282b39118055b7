"""An aggregate in two steps."""

from collections.abc import Callable
from typing import NamedTuple

from pyspark.sql import Column


class Split(NamedTuple):
    """What each part of a key keeps, and what is made of a key's parts."""

    partials: list[Column]
    merged: Callable[..., Column]
    """The whole's aggregate, of as many columns as there are partials."""
    values: Column | None = None
    """Rows that are equal here must be of one part: the aggregate counts each value once."""
