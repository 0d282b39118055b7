"""Simulates a stream, its sources and its workers in virtual time."""

from keygrouping.simulate.result import Interval, Performance, Result
from keygrouping.simulate.settings import SimulatorSettings
from keygrouping.simulate.simulator import INTERVAL, simulate
from keygrouping.simulate.sources import create_sources

__all__ = [
    "INTERVAL",
    "Interval",
    "Performance",
    "Result",
    "SimulatorSettings",
    "create_sources",
    "simulate",
]
