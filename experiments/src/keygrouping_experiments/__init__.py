"""Tables and figures of the papers, redrawn with keygrouping's groupings, workloads and simulator."""

from keygrouping_experiments.lab import Lab
from keygrouping_experiments.model import Experiment, Outcome
from keygrouping_experiments.registry import ExperimentError, experiment, names

__all__ = ["Experiment", "ExperimentError", "Lab", "Outcome", "experiment", "names"]
