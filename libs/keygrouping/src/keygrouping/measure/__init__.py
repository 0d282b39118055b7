"""How well a stream is balanced and what that costs."""

from keygrouping.measure.distribution import Distribution, Measures
from keygrouping.measure.formulas import dist_cost, efficiency, lambda_, std_dev

__all__ = ["Distribution", "Measures", "dist_cost", "efficiency", "lambda_", "std_dev"]
