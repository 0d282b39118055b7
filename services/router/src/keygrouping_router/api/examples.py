"""One example of each shape, for the documentation; tests check that each is what it is an example of."""

from __future__ import annotations

from typing import Any

from keygrouping_router.api import shapes

_KEY: dict[str, Any] = {
    "key": "DE",
    "key_base64": None,
    "hash": None,
    "id": "DE",
    "count": 41200.0,
    "error": 12.0,
    "share": 0.412,
    "share_low": 0.41188,
    "share_high": 0.412,
    "width": 2,
    "hot": True,
    "workers": [1, 3],
    "space": "hot",
    "first_seen": "2026-01-31T11:58:02.113Z",
    "last_seen": "2026-01-31T12:00:00.000Z",
    "hot_since": "2026-01-31T11:58:10.004Z",
}

_HEAD: dict[str, Any] = {
    "grouping": "level-fill",
    "workers": 4,
    "epoch": 3,
    "replicas": ["router-0", "router-1"],
    "interval_seconds": 10.0,
    "events": 1250000,
    "total_keys": 213,
    "tracked_keys": 213,
    "spaces": [
        {"name": "hot", "size": 1, "kept": 1, "capacity": 128, "meaning": "tracked keys that several workers share"}
    ],
    "loads": [25010.0, 24990.0, 25000.0, 25000.0],
    "lambda": 1.0004,
    "least_share": 0.9996,
    "std_dev": 0.01,
    "dist_cost": 1.005,
    "lambda_before": 1.93,
    "at": "2026-01-31T12:00:00.000Z",
}

_SETTING = {
    "name": "eps",
    "value": 0.03,
    "default": 0.01,
    "meaning": "how far a worker may be above the average for a light key to stay whole",
    "unit": "",
    "kind": "a number",
    "range": "from 0 to 1",
}

_SHADOW = {
    "name": "pkg",
    "settings": {},
    "in_force": False,
    "lambda": 1.31,
    "std_dev": 7.9,
    "dist_cost": 1.4,
    "hot_keys": 0,
    "events": 12500,
}

_PLAN = {
    "epoch": 3,
    "at": "2026-01-31T12:00:00.000Z",
    "round": 17,
    "part": 0.0,
    "by": "router-0",
    "grouping": "level-fill",
    "workers": 4,
    "hot_keys": 1,
    "moved_keys": 2,
    "moved_state": 0.0,
    "feasible": True,
    "plan_ms": 1.3,
    "details": {"lambda": 1.0},
}

_FILLING = {
    "level": 1.0,
    "workers": [
        {"worker": 0, "fair": 0.25, "light": 0.2, "hot": 0.05, "room": 0.05, "filled": 1.0},
        {"worker": 1, "fair": 0.25, "light": 0.1, "hot": 0.15, "room": 0.15, "filled": 1.001},
        {"worker": 2, "fair": 0.25, "light": 0.18, "hot": 0.07, "room": 0.07, "filled": 1.0},
        {"worker": 3, "fair": 0.25, "light": 0.108, "hot": 0.142, "room": 0.142, "filled": 0.999},
    ],
    "hot_keys": 1,
    "keys": [
        {
            "key": "DE",
            "key_base64": None,
            "hash": None,
            "id": "DE",
            "share": 0.412,
            "members": [
                {"worker": 1, "share": 0.15},
                {"worker": 3, "share": 0.142},
                {"worker": 2, "share": 0.07},
                {"worker": 0, "share": 0.05},
            ],
        }
    ],
}

_DONE: dict[str, Any] = {
    "changed": True,
    "epoch": 4,
    "before": {},
    "after": {"DE": {"action": "pin", "worker": 3, "until": "2026-01-31T13:00:00.000Z"}},
    "notes": [],
}

EXAMPLES: dict[type[shapes.Model], dict[str, Any]] = {
    shapes.KeyReport: {
        **_KEY,
        "home": 3,
        "candidates": [1, 3],
        "age_seconds": 117.9,
        "why": "a heavy key with 41.20 % of the weight (fair share 25.00 %) fills workers 1 (planned 21.00 %, "
        "room 20.80 %), 3 (planned 20.20 %, room 20.00 %) to the level; widened 110.0 s ago: the plan",
    },
    shapes.KeySpaceReport: {**_HEAD, "keys": [_KEY], "total": 213},
    shapes.Thresholds: {"grouping": "level-fill", "version": 7, "done": None, "settings": [_SETTING]},
    shapes.DryRun: {
        "dry_run": True,
        "changes": {
            "hot_keys": {"before": 1, "after": 2},
            "cold_width": {"before": 1, "after": 1},
            "widths": [{"key": "FR", "key_base64": None, "hash": None, "id": "FR", "before": 1, "after": 2}],
            "lambda": {"before": 1.21, "after": 1.02},
            "dist_cost": {"before": 1.005, "after": 1.009},
            "sampled_events": 10000,
        },
        "settings": [_SETTING],
    },
    shapes.History: {
        "entries": [
            {
                "at": "2026-01-31T12:00:00.000Z",
                "by": "api (10.0.0.7)",
                "version": 7,
                "what": "workers",
                "before": {"workers": 4},
                "after": {"workers": 6},
            }
        ]
    },
    shapes.WorkersReport: {
        "workers": 1,
        "mode": "fixed",
        "max_workers": 10,
        "total_lag": 120,
        "items": [
            {
                "worker": 0,
                "state": "active",
                "load": 25010.0,
                "share": 1.0,
                "load_of_ideal": 1.0,
                "capacity": 1.0,
                "lag": 120,
            }
        ],
        "lambda": 1.0,
        "least_share": 1.0,
        "epoch": 3,
        "version": 7,
        "done": None,
    },
    shapes.WorkersChange: {"workers": 6, "capacities": {"0": 2.0}},
    shapes.GroupingReport: {
        "name": "level-fill",
        "settings": {"eps": 0.03},
        "version": 7,
        "done": None,
        "epoch": 3,
        "sharing": "shared",
        "observe_only": False,
        "seed": "5f3c",
        "available": [{"name": "shuffle", "meaning": "round robin, whatever the key", "settings": []}],
    },
    shapes.GroupingChange: {"name": "w-choices", "settings": {}},
    shapes.PlanReport: _PLAN,
    shapes.PlanInForce: {**_PLAN, "filling": _FILLING},
    shapes.PlanHistory: {"entries": [_PLAN]},
    shapes.ShadowReport: {
        "sample": 1.0,
        "sampled_part": 1.0,
        "sampled_events": 12500,
        "interval_seconds": 10.0,
        "groupings": [_SHADOW],
        "run": [_SHADOW],
        "version": 7,
        "done": None,
    },
    shapes.ShadowDryRun: {
        "dry_run": True,
        "sample": 0.1,
        "sampled_events": 12500,
        "groupings": [_SHADOW | {"name": "level-fill", "in_force": True}, _SHADOW],
    },
    shapes.OverridesReport: {
        "version": 7,
        "done": _DONE,
        "epoch": 4,
        "items": [
            {
                "key": "DE",
                "key_base64": None,
                "hash": None,
                "id": "DE",
                "action": "pin",
                "worker": 3,
                "width": None,
                "until": "2026-01-31T13:00:00.000Z",
                "workers": [3],
                "resting": None,
            }
        ],
    },
    shapes.OverrideChange: {"action": "pin", "worker": 3, "seconds": 3600.0},
    shapes.ShadowChange: {"groupings": [{"name": "pkg"}, {"name": "w-choices"}], "sample": 0.1},
    shapes.Readiness: {
        "status": "ready",
        "assigned": [0, 1],
        "caught_up": True,
        "lag": 0,
        "store": {"name": "redis", "state": "ok", "since": None, "detail": None},
        "left_out": [],
    },
}
