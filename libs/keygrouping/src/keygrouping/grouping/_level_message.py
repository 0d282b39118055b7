"""A plan of level-fill as it is sent to all sources."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from keygrouping.grouping._level_plan import Keys, Placement
from keygrouping.grouping._level_shares import Estimates
from keygrouping.grouping.base import loads_from
from keygrouping.grouping.protocol import Weights, Workers

_FEW_HOT = 0.1
"""Share of hot keys below which balance is up to the cold ones."""
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Plan:
    """What a source needs to know of a plan."""

    epoch: int
    owners: Workers
    room: Weights
    heaviest_rock: float
    flexible: bool
    keys: Keys
    estimates: Estimates

    @classmethod
    def parsed(cls, data: Mapping[str, Any], workers: int, buckets: int) -> "Plan":
        """Out of JSON data; a ValueError if it is no plan for this many workers and buckets."""
        try:
            planned_for = data["workers"]
            owners = np.array(data["owner"], np.int32)
            keys = Keys(
                np.array(data["hashes"], np.int64),
                np.array(data["shares"], np.float64),
                np.array(data["width"], np.int64),
                np.array(data["known"], np.int64),
                np.array(data["members"], np.int32),
                np.array(data["taken"], np.float64),
            )
            estimates = Estimates.parsed(data["estimates"], buckets)
            room = loads_from(data["room"], workers)
            plan = cls(
                int(data["epoch"]), owners, room, float(data["heaviest_rock"]), bool(data["flexible"]), keys, estimates
            )
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"not a plan: {error}") from error
        if planned_for != workers or owners.shape != (buckets,) or _outside(owners, workers):
            raise ValueError(f"not a plan for {workers} workers")
        _check(keys, workers)
        return plan


def message(
    epoch: int, placement: Placement, estimates: Estimates, fair: Weights, eps: float, moved_keys: int
) -> dict[str, Any]:
    """A plan as JSON data.

    `owner`: the worker of each bucket; `heaviest_rock`: the share above which a key is hot; `hashes`, `shares`,
    `width`, `known`: columns of the tracked keys, by hash; `members`, `taken`: those of the first key, then of the
    next, and the share planned for each; `room`: share of each worker that is free for hot keys; `loads`: planned
    share of each worker; `lambda`: the largest of them over its fair share; `level`: the water level in fair shares,
    null without hot keys; `estimates`: what outlasts the plan.
    """
    keys = placement.keys
    largest = float((placement.loads / fair).max())
    return {
        "epoch": epoch,
        "workers": len(fair),
        "moved_keys": moved_keys,
        "moved_state": 0.0,
        "moved_buckets": int(placement.moved_buckets),
        "feasible": largest <= 1 + eps + _ROUNDING,
        "hot_keys": int(np.count_nonzero(keys.width > 1)),
        "lambda": largest,
        "level": placement.level,
        "owner": placement.owners.tolist(),
        "room": placement.room.tolist(),
        "loads": placement.loads.tolist(),
        "heaviest_rock": placement.heaviest_rock,
        "flexible": float(keys.shares[keys.shares > placement.heaviest_rock].sum()) < _FEW_HOT,
        "hashes": keys.hashes.tolist(),
        "shares": keys.shares.tolist(),
        "width": keys.width.tolist(),
        "known": keys.known.tolist(),
        "members": keys.members.tolist(),
        "taken": keys.taken.tolist(),
        "estimates": estimates.to_data(),
    }


def _check(keys: Keys, workers: int) -> None:
    if np.any(keys.hashes[1:] <= keys.hashes[:-1]):
        raise ValueError("a plan whose keys are not in order")
    columns = (keys.shares, keys.width, keys.known)
    if any(column.shape != keys.hashes.shape for column in columns) or keys.taken.shape != keys.members.shape:
        raise ValueError("a plan whose columns don't match")
    if np.any((keys.width < 1) | (keys.width > keys.known)) or keys.known.sum() != len(keys.members):
        raise ValueError("a plan with keys without members")
    if _outside(keys.members, workers) or not np.all(np.isfinite(keys.shares)):
        raise ValueError(f"a plan with members that are not among {workers} workers")


def _outside(chosen: Workers, workers: int) -> bool:
    return bool(np.any((chosen < 0) | (chosen >= workers)))
