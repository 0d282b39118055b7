"""How well a stream is balanced and what that costs."""

from keygrouping.measure.distribution import Collector, Distribution
from keygrouping.measure.formulas import (
    adaptation,
    cv,
    dist_cost,
    efficiency,
    imbalance,
    imbalance_fraction,
    lambda_,
    least_share,
    std_dev,
)
from keygrouping.measure.indexed import IndexedDistribution
from keygrouping.measure.key_sample import MOST_PAIRS, KeySample
from keygrouping.measure.measures import Measures

__all__ = [
    "MOST_PAIRS",
    "Collector",
    "Distribution",
    "IndexedDistribution",
    "KeySample",
    "Measures",
    "adaptation",
    "cv",
    "dist_cost",
    "efficiency",
    "imbalance",
    "imbalance_fraction",
    "lambda_",
    "least_share",
    "std_dev",
]
