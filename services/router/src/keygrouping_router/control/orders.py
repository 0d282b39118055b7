"""What can be ordered: another number of workers, another grouping, other comparisons, an override of a key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

Values = dict[str, JsonValue]
"""Settings by name, as JSON has them."""

Sharing = Literal["shared", "independent"]
Action = Literal["pin", "split", "whole", "quarantine-worker", "quarantine-topic"]


@dataclass(frozen=True)
class WorkersChange:
    """Another W (`auto`: the present one, which follows the running workers from now on), and other capacities.

    `capacities` are by worker; None leaves them as they are.
    """

    workers: int | Literal["auto"]
    capacities: Mapping[int, float] | None = None


@dataclass(frozen=True)
class GroupingChange:
    """Another grouping, or the same with other settings, or another seed. What is None stays as it is."""

    name: str
    settings: Values | None = None
    sharing: Sharing | None = None
    observe_only: bool | None = None
    seed: int | Literal["new"] | None = None


@dataclass(frozen=True)
class ShadowGrouping:
    """A grouping to compare with."""

    name: str
    settings: Values = field(default_factory=dict)


@dataclass(frozen=True)
class ShadowChange:
    """Which groupings are compared with the one in force, and on which part of the traffic at most (None: as it is)."""

    groupings: Sequence[ShadowGrouping]
    sample: float | None = None


@dataclass(frozen=True)
class OverrideChange:
    """What is to become of a key, and until when: a time in seconds since 1970, or so many seconds from now on."""

    action: Action
    worker: int | None = None
    width: int | None = None
    until: float | None = None
    seconds: float | None = None


@dataclass(frozen=True)
class KeyOverride:
    """An override in force until a time in seconds since 1970."""

    key: bytes
    action: Action
    worker: int | None
    width: int | None
    until: float
