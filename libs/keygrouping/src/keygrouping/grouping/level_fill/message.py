"""A plan of level-fill as it is sent to all sources."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from keygrouping.grouping.base import loads_from
from keygrouping.grouping.level_fill.keys import Keys
from keygrouping.grouping.level_fill.plan import Placement
from keygrouping.grouping.level_fill.shares import Estimates
from keygrouping.grouping.protocol import Weights, Workers

_ROUNDING = 1e-9


@dataclass(frozen=True)
class Plan:
    """What a source needs to know of a plan, and what it tells of it."""

    placement: Placement
    estimates: Estimates
    """What outlasts the plan."""
    moved_keys: int
    largest: float
    """Planned share of the worker that has most of its fair share, over that."""
    feasible: bool
    flexible: bool
    """Whether hot keys are so few that balance is up to the cold ones."""
    together: bool
    """Whether the sources level the whole stream, rather than each its own part; see `exchange`."""
    fingerprint: int
    """That of the seed by which hashes are scrambled, see `hashing.fingerprint_of`."""

    @classmethod
    def made(
        cls,
        placement: Placement,
        estimates: Estimates,
        fair: Weights,
        eps: float,
        moved_keys: int,
        together: bool,
        fingerprint: int,
    ) -> "Plan":
        """Out of what was planned; `fair`: share that each worker should have."""
        largest = float((placement.loads / fair).max())
        return cls(
            placement,
            estimates,
            moved_keys,
            largest,
            feasible=largest <= 1 + eps + _ROUNDING,
            flexible=placement.few_hot,
            together=together,
            fingerprint=fingerprint,
        )

    @classmethod
    def parsed(cls, data: Mapping[str, Any], workers: int, buckets: int, fingerprint: int) -> "Plan":
        """Out of JSON data; a ValueError if it is no plan for this many workers and buckets, and this seed."""
        try:
            planned_for = data["workers"]
            keys = Keys(
                np.array(data["hashes"], np.int64),
                np.array(data["shares"], np.float64),
                np.array(data["width"], np.int64),
                np.array(data["known"], np.int64),
                np.array(data["members"], np.int32),
                np.array(data["taken"], np.float64),
            )
            placement = Placement(
                np.array(data["owner"], np.int32),
                np.array(data["home"], np.int32),
                keys,
                float(data["heaviest_rock"]),
                loads_from(data["loads"], workers),
                loads_from(data["room"], workers),
                None if data["level"] is None else float(data["level"]),
                int(data["moved_buckets"]),
            )
            plan = cls(
                placement,
                Estimates.parsed(data["estimates"], buckets),
                int(data["moved_keys"]),
                float(data["lambda"]),
                bool(data["feasible"]),
                bool(data["flexible"]),
                bool(data["together"]),
                int(data["fingerprint"]),
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"not a plan: {error}") from error
        tables = (placement.owners, placement.home)
        fit = all(table.shape == (buckets,) and not _outside(table, workers) for table in tables)
        if planned_for != workers or not fit:
            raise ValueError(f"not a plan for {workers} workers")
        if plan.fingerprint != fingerprint:
            raise ValueError("a plan of another seed")
        _check(keys, workers)
        if not np.all(np.isfinite([placement.heaviest_rock, placement.level or 0.0])):
            raise ValueError("a plan with a level that is none")
        return plan

    def to_data(self) -> dict[str, Any]:
        """As JSON data, to be sent to all sources.

        `owner`, `home`: the worker of each bucket, and the one that it has while nothing tells against it;
        `heaviest_rock`: the share above which a key is hot; `hashes`, `shares`, `width`, `known`: columns of the
        tracked keys, by hash; `members`, `taken`: those of the first key, then of the next, and the share planned for
        each; `room`: share of each worker that is free for hot keys; `loads`: planned share of each worker; `lambda`:
        the largest of them over its fair share; `level`: the water level in fair shares, null without hot keys;
        `together`: whether sources level the whole stream; `fingerprint`: the seed's; `estimates`: what outlasts the
        plan.
        """
        placement, keys = self.placement, self.placement.keys
        return {
            "changed": True,
            "workers": len(placement.loads),
            "moved_keys": self.moved_keys,
            "moved_state": 0.0,
            "moved_buckets": placement.moved_buckets,
            "feasible": self.feasible,
            "hot_keys": int(np.count_nonzero(keys.width > 1)),
            "lambda": self.largest,
            "level": placement.level,
            "owner": placement.owners.tolist(),
            "home": placement.home.tolist(),
            "room": placement.room.tolist(),
            "loads": placement.loads.tolist(),
            "heaviest_rock": placement.heaviest_rock,
            "flexible": self.flexible,
            "together": self.together,
            "fingerprint": self.fingerprint,
            "hashes": keys.hashes.tolist(),
            "shares": keys.shares.tolist(),
            "width": keys.width.tolist(),
            "known": keys.known.tolist(),
            "members": keys.members.tolist(),
            "taken": keys.taken.tolist(),
            "estimates": self.estimates.to_data(),
        }


def _check(keys: Keys, workers: int) -> None:
    columns = (keys.shares, keys.width, keys.known)
    if keys.hashes.ndim != 1 or keys.members.ndim != 1:
        raise ValueError("a plan whose columns are no lists of numbers")
    if any(column.shape != keys.hashes.shape for column in columns) or keys.taken.shape != keys.members.shape:
        raise ValueError("a plan whose columns don't match")
    if np.any(keys.hashes[1:] <= keys.hashes[:-1]):
        raise ValueError("a plan whose keys are not in order")
    # Beyond so many members a sum could wrap around, and kernels would read past the end.
    if np.any((keys.width < 1) | (keys.width > keys.known) | (keys.known > workers)):
        raise ValueError("a plan with keys without members, or with too many")
    if keys.known.sum() != len(keys.members):
        raise ValueError("a plan with keys without members")
    if _outside(keys.members, workers):
        raise ValueError(f"a plan with members that are not among {workers} workers")
    if not np.all(np.isfinite(np.concatenate([keys.shares, keys.taken]))):
        raise ValueError("a plan with a share that is none")


def _outside(chosen: Workers, workers: int) -> bool:
    return bool(np.any((chosen < 0) | (chosen >= workers)))
