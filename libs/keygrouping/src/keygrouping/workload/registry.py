"""Workloads by name, so that every program draws the same stream from the same name, length, seed and settings."""

import importlib
import re
from collections.abc import Mapping

from keygrouping.settings import Description, Settings
from keygrouping.workload.model import Generated, Model
from keygrouping.workload.stream import Workload, WorkloadError

_MODELS = {
    "zipf": "synthetic:ZipfKeys",
    "ln1": "synthetic:LogNormal1",
    "ln2": "synthetic:LogNormal2",
    "twitter-election": "datasets:TwitterElection",
    "ticker": "datasets:Ticker",
    "cashtags": "datasets:Cashtags",
    "words": "datasets:Words",
    "wikipedia-pageviews": "datasets:WikipediaPageviews",
    "pageviews-by-language": "datasets:PageviewsByLanguage",
    "clickstream": "datasets:Clickstream",
    "livejournal": "datasets:LiveJournal",
    "slashdot": "datasets:Slashdot0811",
    "slashdot-0902": "datasets:Slashdot0902",
    "nasdaq": "datasets:Nasdaq",
    "step": "drift:Step",
    "swap": "drift:Swap",
    "rotating-head": "drift:RotatingHead",
    "burst": "drift:Burst",
    "moving-hot-key": "drift:MovingHotKey",
    "fluctuation": "fluctuation:Fluctuation",
    "sessions": "ordered:Sessions",
    "runs": "ordered:Runs",
    "sorted": "ordered:Sorted",
    "backlog": "ordered:Backlog",
    "text": "ordered:Text",
    "colliding": "adverse:Colliding",
    "pareto-weights": "adverse:ParetoWeights",
    "diurnal": "adverse:Diurnal",
    "nexmark-bids": "benchmarks:NexmarkBids",
    "ycsb-latest": "benchmarks:YcsbLatest",
    "tpcc-items": "benchmarks:TpccItems",
}
"""Module and class by name; imported when they are first asked for."""

_SKEW = re.compile(r"country-skew-(0|[1-9][0-9]?|100)")
_HALF_SKEW = "country-half-skew"
_HALF_SKEW_PER_CENT = 80
PATTERN = f"^({_SKEW.pattern}|{_HALF_SKEW}|{'|'.join(_MODELS)})$"
"""All names as a regular expression."""


def names() -> tuple[str, ...]:
    """The names of all workloads; country-skew-R is there for any whole R from 0 to 100, and here by tens."""
    return (*(f"country-skew-{skew}" for skew in range(0, 101, 10)), _HALF_SKEW, *_MODELS)


def describe(name: str) -> tuple[Description, ...]:
    """The settings of a workload: names, defaults, meanings, units and ranges; none where the name says it all."""
    return () if _country_skews(name) else _class(name).describe()


def workload(name: str, events: int, seed: int = 0, settings: Mapping[str, object] | None = None) -> Workload:
    """A generated workload by its name; settings that are not given have their defaults.

    `country-skew-R`: R per cent of the events are Turkey, the others uniform over all 204 names (Turkey among
    them). `country-half-skew`: the first half like R = 80, the second like R = 0. The others: see their models.
    Raises WorkloadError (a ValueError) with one line for an unknown name or setting, or a value out of range.
    """
    if isinstance(events, bool) or not isinstance(events, int) or events < 0:
        raise WorkloadError(f"workload {name!r}: events must be an integer that is not negative, not {events!r}")
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise WorkloadError(f"workload {name!r}: seed must be an integer that is not negative, not {seed!r}")
    try:
        return Generated(name, events, seed, _model(name, settings or {}))
    except WorkloadError:
        raise
    except ValueError as error:
        raise WorkloadError(f"workload {name!r}: {error}") from error


def _model(name: str, settings: Mapping[str, object]) -> Model:
    if skews := _country_skews(name):
        from keygrouping.workload.countries import CountrySkew

        Settings.of(settings)
        return CountrySkew(skews)
    return _class(name).of(settings)


def _country_skews(name: str) -> tuple[int, ...]:
    """Per cent of the hot country in each equal part of the stream; empty for other workloads."""
    if name == _HALF_SKEW:
        return (_HALF_SKEW_PER_CENT, 0)
    matched = _SKEW.fullmatch(name)
    return (int(matched[1]),) if matched else ()


def _class(name: str) -> type[Model]:
    if name not in _MODELS:
        choices = ", ".join(["country-skew-R (R from 0 to 100)", _HALF_SKEW, *_MODELS])
        raise WorkloadError(f"unknown workload {name!r}; choose from {choices}")
    module, _, class_name = _MODELS[name].partition(":")
    found: type[Model] = getattr(importlib.import_module(f"keygrouping.workload.{module}"), class_name)
    return found
