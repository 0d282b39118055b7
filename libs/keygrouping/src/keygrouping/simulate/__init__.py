"""Simulates a stream, its sources and its workers in virtual time."""

from keygrouping.simulate.deal import PARTITIONS, Deal, dealt
from keygrouping.simulate.result import Interval, Performance, Result
from keygrouping.simulate.settings import SimulatorSettings
from keygrouping.simulate.simulator import INTERVAL, simulate
from keygrouping.simulate.sources import create_sources, exchange, exchanging

__all__ = [
    "INTERVAL",
    "PARTITIONS",
    "Deal",
    "Interval",
    "Performance",
    "Result",
    "SimulatorSettings",
    "create_sources",
    "dealt",
    "exchange",
    "exchanging",
    "simulate",
]
