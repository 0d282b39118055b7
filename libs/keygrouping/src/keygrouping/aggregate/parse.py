"""Aggregates declared as data, checked all at once."""

import re
from collections.abc import Mapping, Sequence

from keygrouping.aggregate.base import Aggregate
from keygrouping.aggregate.distinct import Distinct
from keygrouping.aggregate.numeric import Count, Max, Mean, Min, Sum, Variance

OPS: dict[str, type[Aggregate]] = {
    aggregate.op: aggregate for aggregate in (Count, Sum, Min, Max, Mean, Variance, Distinct)
}
"""Every aggregate by the name of its operation."""

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
_PROPERTIES = frozenset({"name", "op", "field"})
_VALUES_IN_ONE_PLACE = "needs all values of a key in one place, so it can't be merged from partials"
_ORDER = "depends on the order of events, which a split over workers does not keep"
_REFUSED = {
    "median": f"{_VALUES_IN_ONE_PLACE}; use mean and variance, or min and max",
    "percentile": f"{_VALUES_IN_ONE_PLACE}; use mean and variance, or min and max",
    "quantile": f"{_VALUES_IN_ONE_PLACE}; use mean and variance, or min and max",
    "mode": f"{_VALUES_IN_ONE_PLACE}; make the field part of the key and use count",
    "collect": f"{_VALUES_IN_ONE_PLACE}; use count or distinct",
    "first": f"{_ORDER}; use min",
    "last": f"{_ORDER}; use max",
    "count_distinct": "exact distinct counts can't be merged in bounded memory; use distinct (approximate, 1.6 %)",
    "avg": "is called mean here; use mean",
    "average": "is called mean here; use mean",
    "stddev": "does not merge by itself; use variance and take its square root",
}


class AggregateError(ValueError):
    """Aggregates that can't be used; the message lists every fault, one per line."""


def parse_aggregates(specs: Sequence[Mapping[str, object]]) -> tuple[Aggregate, ...]:
    """Aggregates from declarations such as {"name": "turnover", "op": "sum", "field": "price"}.

    `field` is a field of the event's JSON value or a JSON pointer into it ("/order/price"); only count can do
    without. Raises AggregateError with all faults of all declarations.
    """
    if isinstance(specs, str | bytes | Mapping) or not isinstance(specs, Sequence):
        raise AggregateError("aggregates: must be a list of objects with name, op and field")
    faults: list[str] = []
    aggregates: list[Aggregate] = []
    seen: set[str] = set()
    for position, spec in enumerate(specs):
        where = f"aggregates[{position}]"
        found = _faults(spec, seen)
        faults += [f"{where}: {fault}" for fault in found]
        if not found:
            aggregates.append(OPS[str(spec["op"])](str(spec["name"]), _field(spec)))
    if faults:
        raise AggregateError("\n".join(faults))
    return tuple(aggregates)


def _field(spec: Mapping[str, object]) -> str | None:
    return None if spec.get("field") is None else str(spec["field"])


def _faults(spec: Mapping[str, object], seen: set[str]) -> list[str]:
    if not isinstance(spec, Mapping):
        return ["must be an object with name, op and field"]
    unknown = sorted(str(key) for key in spec.keys() - _PROPERTIES)
    faults = [f"unknown property {key!r}; known are name, op and field" for key in unknown]
    return [*faults, *_name_faults(spec.get("name"), seen), *_op_faults(spec)]


def _name_faults(name: object, seen: set[str]) -> list[str]:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        return [f"name must be letters, digits and _ (not first a digit), at most 63, not {name!r}"]
    if name.lower() in seen:
        return [f"name {name!r} is used twice (upper and lower case are the same)"]
    seen.add(name.lower())
    return []


def _op_faults(spec: Mapping[str, object]) -> list[str]:
    op, field = spec.get("op"), spec.get("field")
    faults = []
    if isinstance(op, str) and op in _REFUSED:
        faults.append(f"op {op!r} {_REFUSED[op]}")
    elif not isinstance(op, str) or op not in OPS:
        faults.append(f"unknown op {op!r}; choose from {', '.join(OPS)}")
    elif field is None and OPS[op].needs_field:
        faults.append(f"op {op!r} needs a field")
    if field is not None and (not isinstance(field, str) or field in ("", "/")):
        faults.append(f"field must be a field name or a JSON pointer, not {field!r}")
    return faults
