"""An aggregate in two steps."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from pyspark.sql import Column


class Split(NamedTuple):
    """What each part of a key keeps, and what is made of a key's parts."""

    partials: list[Column]
    merged: Callable[..., Column]
    """The whole's aggregate, of as many columns as there are values and partials."""
    values: Sequence[Column] = ()
    """If given, rows that are equal here are a part, wherever they are: the merge gets each value once. It must leave
    out nulls, which it gets for what other aggregates need, too."""
