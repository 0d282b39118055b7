"""Workloads by name.

Source: the synthetic data sets of Dalabasmaz and Can, "Dynamic Key Grouping" (2020), table 2.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from keygrouping.workload.countries import COUNTRIES, HOT_COUNTRY

CHUNK = 10_000
"""Events per array; part of what a seed means."""

_SKEW = re.compile(r"country-skew-(0|[1-9][0-9]?|100)")
_HALF_SKEW = "country-half-skew"
_HALF_SKEW_PER_CENT = 80


class WorkloadError(ValueError):
    """A workload that does not exist; one line that names the choices."""


@dataclass(frozen=True)
class Workload:
    """A stream of keys, the same for the same name, number of events and seed. Constant memory."""

    name: str
    events: int
    seed: int
    skews: tuple[int, ...]
    """Per cent of the events that are the hot key whatever is drawn, for each equal part of the stream."""

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys that can occur."""
        return COUNTRIES

    def indices(self) -> Iterator[NDArray[np.int64]]:
        """The stream as positions in `keys`, in arrays of CHUNK and a shorter last one."""
        random = np.random.default_rng(self.seed)
        hot = COUNTRIES.index(HOT_COUNTRY)
        for start in range(0, self.events, CHUNK):
            positions = np.arange(start, min(start + CHUNK, self.events))
            skews = np.array(self.skews)[positions * len(self.skews) // self.events]
            is_hot = random.integers(0, 100, positions.size) < skews
            yield np.where(is_hot, hot, random.integers(0, len(COUNTRIES), positions.size))

    def batches(self) -> Iterator[list[bytes]]:
        """The stream as lists of keys."""
        names = [name.encode() for name in self.keys]
        for chunk in self.indices():
            yield [names[index] for index in chunk.tolist()]


def names() -> tuple[str, ...]:
    """The published workloads; any whole per cent of skew is accepted."""
    return (*(f"country-skew-{skew}" for skew in range(0, 101, 10)), _HALF_SKEW)


def workload(name: str, events: int, seed: int = 0) -> Workload:
    """A workload by name.

    `country-skew-R`: R per cent of the events are Turkey, the others uniform over all 204 names (Turkey among
    them). `country-half-skew`: the first half like R = 80, the second like R = 0.
    """
    if events < 0:
        raise WorkloadError(f"workload {name!r}: events must not be negative, not {events}")
    if name == _HALF_SKEW:
        return Workload(name, events, seed, (_HALF_SKEW_PER_CENT, 0))
    if matched := _SKEW.fullmatch(name):
        return Workload(name, events, seed, (int(matched[1]),))
    raise WorkloadError(f"unknown workload {name!r}; choose from country-skew-R (R from 0 to 100) and {_HALF_SKEW}")
