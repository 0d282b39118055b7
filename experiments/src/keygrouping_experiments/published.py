"""The figures that the papers print, and those that their public code gives, as data with their sources."""

import csv
from collections.abc import Mapping
from functools import cache
from importlib import resources
from typing import NamedTuple

from keygrouping_experiments.model import Comparison

Measured = Mapping[tuple[str, str], float]
"""Figures by case and measure."""


class Published(NamedTuple):
    """A figure that was published."""

    value: float
    source: str


@cache
def published(experiment: str) -> Mapping[tuple[str, str], Published]:
    """The published figures of an experiment by case and measure."""
    return {
        (row["case"], row["measure"]): Published(float(row["value"]), row["source"])
        for row in _rows()
        if row["experiment"] == experiment
    }


def compare(experiment: str, measured: Measured) -> tuple[Comparison, ...]:
    """Every published figure of an experiment beside ours; KeyError if one of them was not measured."""
    return tuple(
        Comparison(case, measure, value, measured[case, measure], source)
        for (case, measure), (value, source) in published(experiment).items()
    )


@cache
def _rows() -> tuple[dict[str, str], ...]:
    text = resources.files(__package__).joinpath("published.csv").read_text("utf-8")
    return tuple(csv.DictReader(text.splitlines()))
