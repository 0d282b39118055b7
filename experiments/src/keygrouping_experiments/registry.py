"""Experiments by name, in the order of the page."""

import importlib

from keygrouping_experiments.model import Experiment

_EXPERIMENTS = {
    "dkg-table-3": "dkg:TABLE_3",
    "dkg-skew": "dkg:SKEW",
    "dkg-workers": "dkg_scale:WORKERS",
    "dkg-sources": "dkg_scale:SOURCES",
    "pkg-imbalance": "pkg:IMBALANCE",
    "pkg-time": "pkg:TIME",
    "pkg-agreement": "pkg_sources:AGREEMENT",
    "pkg-sources": "pkg_sources:SKEWED",
    "pkg-skew": "pkg_choices:SKEW",
    "pkg-choices": "pkg_choices:CHOICES",
    "pkg-memory": "pkg_choices:MEMORY",
    "choices-zipf": "choices:ZIPF",
    "dstream-precision": "dstream:PRECISION",
    "dstream-synopsis": "dstream:SYNOPSIS",
    "dstream-throughput": "dstream_throughput:THROUGHPUT",
    "mixed-skewness": "mixed:SKEWNESS",
    "mixed-migration": "mixed:MIGRATION",
    "mixed-table": "mixed_table:TABLE",
    "mixed-plan-time": "mixed_table:PLAN_TIME",
    "level-fill": "level_fill:LEVEL_FILL",
}
"""Module and constant by name; imported when they are first asked for."""


class ExperimentError(ValueError):
    """An experiment that doesn't exist, or a place where its results can't be written; one line."""


def names() -> tuple[str, ...]:
    """The names of all experiments."""
    return tuple(_EXPERIMENTS)


def experiment(name: str) -> Experiment:
    """An experiment by its name; ExperimentError names the choices."""
    if name not in _EXPERIMENTS:
        raise ExperimentError(f"unknown experiment {name!r}; choose from {', '.join(_EXPERIMENTS)}")
    module, _, constant = _EXPERIMENTS[name].partition(":")
    found: Experiment = getattr(importlib.import_module(f"keygrouping_experiments.{module}"), constant)
    return found
