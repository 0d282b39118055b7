"""What a router knows of its keys."""

from keygrouping.keyspace.counting_bloom import CountingBloomFilter
from keygrouping.keyspace.generations import KeySpace
from keygrouping.keyspace.items import BABY, EMPTY, ITEM, MAX_DISTINCT_KEYS, OLD, SPACE_NAMES, TEENAGE
from keygrouping.keyspace.predictor import HotKeyPredictor, PredictorRules
from keygrouping.keyspace.space_saving import COUNTER, SKETCH, Bounds, SpaceSaving, WindowedSpaceSaving

__all__ = [
    "BABY",
    "COUNTER",
    "EMPTY",
    "ITEM",
    "MAX_DISTINCT_KEYS",
    "OLD",
    "SKETCH",
    "SPACE_NAMES",
    "TEENAGE",
    "Bounds",
    "CountingBloomFilter",
    "HotKeyPredictor",
    "KeySpace",
    "PredictorRules",
    "SpaceSaving",
    "WindowedSpaceSaving",
]
