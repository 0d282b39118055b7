"""Aggregates declared as data, checked all at once."""

import re
from collections.abc import Mapping, Sequence

from keygrouping.aggregate.base import Aggregate, Input, Role
from keygrouping.aggregate.registry import AggregateError, names, operation
from keygrouping.settings import SettingsError

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,62}")
"""What all of an aggregate's name is."""

_VALUES_IN_ONE_PLACE = "needs all values of a key in one place, so it can't be merged from partials"
_ORDER = "depends on the order of events, which a split over workers does not keep"
_QUANTILES = f'{_VALUES_IN_ONE_PLACE}; use histogram, which has its quantiles ("quantiles": [0.5]) within sure bounds'
_REFUSED = {
    "median": _QUANTILES,
    "percentile": _QUANTILES,
    "quantile": _QUANTILES,
    "mode": f"{_VALUES_IN_ONE_PLACE}; use top-k",
    "collect": f"{_VALUES_IN_ONE_PLACE}; use count, distinct or top-k",
    "first": f"{_ORDER}; use min",
    "last": f"{_ORDER}; use max",
    "count_distinct": "can't be merged in bounded memory; use distinct (approximate, 1.6 %)",
    "avg": "is called mean here; use mean",
    "average": "is called mean here; use mean",
    "topk": "is called top-k here; use top-k",
    "top_k": "is called top-k here; use top-k",
    "naive_bayes": "is called naive-bayes here; use naive-bayes",
    "stddev": "does not merge by itself; use variance and take its square root",
}


def parse_aggregates(specs: Sequence[Mapping[str, object]]) -> tuple[Aggregate, ...]:
    """Aggregates from declarations such as {"name": "turnover", "op": "sum", "field": "price"}.

    `field` is a field of the event's JSON value or a JSON pointer into it ("/order/price"); only count can do
    without. Some operations read further fields (`weight` of vwap, `features` of naive-bayes) or have settings of
    their own (such as `k` of top-k). Raises AggregateError with all faults of all declarations.
    """
    if isinstance(specs, str | bytes | Mapping) or not isinstance(specs, Sequence):
        raise AggregateError("aggregates: must be a list of objects with name, op and field")
    faults: list[str] = []
    aggregates: list[Aggregate] = []
    seen: set[str] = set()
    for position, spec in enumerate(specs):
        found: list[str] = []
        aggregate = _parse(spec, seen, found)
        faults += [f"aggregates[{position}]: {fault}" for fault in found]
        if aggregate is not None:
            aggregates.append(aggregate)
    if faults:
        raise AggregateError("\n".join(faults))
    return tuple(aggregates)


def _parse(spec: Mapping[str, object], seen: set[str], faults: list[str]) -> Aggregate | None:
    """The aggregate of a declaration; adds what is wrong with it to `faults`."""
    if not isinstance(spec, Mapping):
        faults.append("must be an object with name, op and field")
        return None
    faults += _name_faults(spec.get("name"), seen)
    kind = _kind(spec.get("op"), faults)
    if kind is None:
        _inputs(spec, Role("field", None, required=False), faults)
        return None
    own = [description.name for description in kind.settings.describe()]
    known = ["name", "op", *(role.name for role in kind.roles), *own]
    unknown = sorted(str(key) for key in spec if key not in known)
    faults += [f"unknown property {key!r}; {kind.op} has {', '.join(known)}" for key in unknown]
    inputs = [given for role in kind.roles for given in _inputs(spec, role, faults)]
    try:
        settings = type(kind.settings).of({key: spec[key] for key in own if key in spec})
    except SettingsError as error:
        faults.append(str(error))
        return None
    return kind(str(spec.get("name")), tuple(inputs), settings)


def _name_faults(name: object, seen: set[str]) -> list[str]:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        return [f"name must be letters, digits and _ (not first a digit), at most 63, not {name!r}"]
    if name.lower() in seen:
        return [f"name {name!r} is used twice (upper and lower case are the same)"]
    seen.add(name.lower())
    return []


def _kind(op: object, faults: list[str]) -> type[Aggregate] | None:
    if isinstance(op, str) and op in _REFUSED and op not in names():
        faults.append(f"op {op!r} {_REFUSED[op]}")
        return None
    try:
        return operation(op)  # type: ignore[arg-type]  # It is looked up, whatever it is.
    except AggregateError as error:
        faults.append(str(error))
        return None


def _inputs(spec: Mapping[str, object], role: Role, faults: list[str]) -> list[Input]:
    """The fields that a declaration names for a role."""
    value = spec.get(role.name)
    if value is None:
        if role.required:
            faults.append(f"op {spec['op']!r} needs a {role.name}")
        return []
    fields = value if role.many else [value]
    if not isinstance(fields, list | tuple) or not all(isinstance(f, str) and f not in ("", "/") for f in fields):
        wanted = "a list of field names or JSON pointers" if role.many else "a field name or a JSON pointer"
        faults.append(f"{role.name} must be {wanted}, not {value!r}")
        return []
    if len(set(fields)) < len(fields):
        faults.append(f"{role.name} names a field twice: {', '.join(fields)}")
    return [Input(field, role.kind) for field in fields]
