"""Aggregates declared as data, checked all at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from keygrouping.aggregate.base import Aggregate, roles_of
from keygrouping.aggregate.registry import OPS, AggregateError, is_foreign, names, operation
from keygrouping.aggregate.trial import faults_of_code
from keygrouping.declaration import faults_of

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

_OP = {
    "description": "what is computed: an operation by its name, or a class of yours as module:Class",
    "type": "string",
    "examples": list(OPS),
}


def parse_aggregates(specs: Sequence[Mapping[str, object]]) -> tuple[Aggregate, ...]:
    """Aggregates from declarations such as {"name": "turnover", "op": "sum", "field": "price"}.

    `field` is a field of the event's JSON value or a JSON pointer into it ("/order/price"); only count can do
    without. Some operations read further fields (`weight` of vwap, `features` of naive-bayes) or have settings of
    their own (such as `k` of top-k). An operation that is not the library's must keep the laws, see
    `keygrouping.aggregate.laws`. Raises AggregateError with all faults of all declarations.
    """
    if isinstance(specs, str | bytes | Mapping) or not isinstance(specs, Sequence):
        raise AggregateError('aggregates: must be a list such as [{"name": "events", "op": "count"}]')
    lines: list[str] = []
    aggregates: list[Aggregate] = []
    seen: set[str] = set()
    for position, spec in enumerate(specs):
        found = _parse(spec, seen)
        if isinstance(found, Aggregate):
            aggregates.append(found)
        else:
            lines += [f"aggregates[{position}]: {fault}" for fault in found]
    if lines:
        raise AggregateError("\n".join(lines))
    return tuple(aggregates)


def schema() -> dict[str, Any]:
    """JSON schema of a declaration: what each of the library's own operations takes, and nothing that it doesn't."""
    kinds = [
        {"if": {"properties": {"op": {"const": op}}, "required": ["op"]}, "then": _shape(kind)}
        for op, kind in OPS.items()
    ]
    common = {"name": OPS["count"].describe()["properties"]["name"], "op": _OP}
    return {"type": "object", "required": ["name", "op"], "properties": common, "allOf": kinds}


def _shape(kind: type[Aggregate]) -> dict[str, Any]:
    """JSON schema of one operation, whose name and op are described elsewhere."""
    shape = kind.describe()
    told = {"description": shape["description"].partition("\n\n")[0].replace("\n", " "), "type": "object"}
    properties = {**shape["properties"], "name": True, "op": True}
    return {**told, "properties": properties, "required": shape["required"], "additionalProperties": False}


def _parse(spec: object, seen: set[str]) -> Aggregate | list[str]:
    """The aggregate of a declaration, or what is wrong with it; `seen` are the names of those before it."""
    if not isinstance(spec, Mapping):
        return ["must be an object with name, op and field"]
    name = spec.get("name")
    twice = [f"name {name!r} is used twice (upper and lower case are the same)"] if _same(name) in seen else []
    seen.add(_same(name))
    given = {"name": None} | {str(member): value for member, value in spec.items() if member != "op"}
    try:
        kind = _operation(spec.get("op"))
    except AggregateError as error:
        common = {member: given[member] for member in ("name", "field") if member in given}
        return [*twice, *_checked(OPS["count"], common)[1], str(error)]
    aggregate, faults = _checked(kind, given)
    if aggregate is not None and is_foreign(aggregate):
        faults = faults_of_code(aggregate)
        aggregate = None if faults else aggregate
    return aggregate if aggregate is not None and not twice else [*twice, *faults]


def _same(name: object) -> str:
    return name.lower() if isinstance(name, str) else ""


def _operation(op: object) -> type[Aggregate]:
    if isinstance(op, str) and op in _REFUSED and op not in names():
        raise AggregateError(f"op {op!r} {_REFUSED[op]}")
    return operation(op)


def _checked(kind: type[Aggregate], given: Mapping[str, object]) -> tuple[Aggregate | None, list[str]]:
    """The aggregate, or what is wrong with its declaration. A field that is null is none."""
    known = {name: value for name, value in given.items() if value is not None or name not in roles_of(kind)}
    try:
        return kind.model_validate(known), []
    except ValidationError as error:
        return None, [_line(kind, name, text) for name, text in faults_of(kind, known, error)]


def _line(kind: type[Aggregate], name: str, text: str) -> str:
    if text:
        return f"{name} {text}".strip()
    if name in kind.model_fields:
        return f"op {kind.op!r} needs a {name}"
    known = ["name", "op", *(member for member in kind.model_fields if member != "name")]
    return f"unknown property {name!r}; {kind.op} has {', '.join(known)}"
