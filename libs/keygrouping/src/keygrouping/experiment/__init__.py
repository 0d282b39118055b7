"""Tables and figures of the papers, drawn anew with this library's groupings, workloads and simulator."""

from keygrouping.experiment.lab import Lab
from keygrouping.experiment.model import Experiment, Outcome
from keygrouping.experiment.registry import ExperimentError, experiment, names

__all__ = ["Experiment", "ExperimentError", "Lab", "Outcome", "experiment", "names"]
