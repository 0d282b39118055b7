"""A job names classes of aggregates by where they are; what is wrong with their code is told before anything starts."""

import importlib
import pickle
import sys
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import compress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from keygrouping.accumulator import Accumulator
from keygrouping.aggregate import (
    Aggregate,
    AggregateError,
    NumberField,
    TextField,
    is_foreign,
    parse_aggregates,
    trial,
)
from keygrouping.aggregate.trial import microseconds_of_check
from keygrouping.job import JobError, JobSpec, Rejection, extract_columns

MODULE = """
import math
from keygrouping.aggregate import Aggregate, Max, NumberField

class GeometricMean(Aggregate):
    shape = {"n": "integer", "logs": "number"}
    field: NumberField

    def initial(self):
        return {"n": 0, "logs": 0.0}

    def add_many(self, state, values):
        logs = [math.log(value) for value in values if value is not None]
        return self.merge(state, {"n": len(logs), "logs": math.fsum(logs)})

    def merge(self, left, right):
        return {"n": left["n"] + right["n"], "logs": left["logs"] + right["logs"]}

    def finish(self, state):
        return math.exp(state["logs"] / state["n"]) if state["n"] else None

class Named(Max):
    op = "named"

class Inner(GeometricMean):
    pass

class Last(GeometricMean):
    def merge(self, left, right):
        return right if right["n"] else left

class Typo(GeometricMean):
    def add_many(self, state, values):
        return stat

class NoStart(GeometricMean):
    def initial(self):
        raise LookupError("nothing there")

class Unfinished(Aggregate):
    field: NumberField

    def initial(self):
        return 0

class OnlySmall(GeometricMean):
    def add_many(self, state, values):
        known = [value for value in values if value is not None]
        if any(not 0 < value < 1e-6 for value in known):
            raise ValueError("too large")
        return super().add_many(state, known)

class WithSamples(OnlySmall):
    def samples(self):
        return [1e-7, None, 2e-7]

class Checked(GeometricMean):
    def check(self, value):
        if value is not None and value <= 0:
            raise ValueError("not positive")

class TakesAll(GeometricMean):
    def check(self, value):
        pass

class TakesNothing(GeometricMean):
    def check(self, value):
        raise ValueError("never")

class Drawing(Checked):
    def samples(self):
        yield from (1, 2, None)
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Modules of a user in a folder of the path."""
    (tmp_path / "users_aggregates.py").write_text(MODULE)
    (tmp_path / "users_broken_module.py").write_text("import math\nmath.tau / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in ("users_aggregates", "users_broken_module"):
        sys.modules.pop(name, None)
    importlib.invalidate_caches()


def declared(name: str, **more: object) -> dict[str, Any]:
    return {"name": name.lower(), "op": f"users_aggregates:{name}", "field": "x", **more}


def job(*names: str) -> JobSpec:
    return JobSpec.from_json({"aggregates": [declared(name) for name in names]})


def faults(*specs: dict[str, Any]) -> list[str]:
    with pytest.raises(AggregateError) as caught:
        parse_aggregates(specs)
    return str(caught.value).splitlines()


def test_a_class_is_an_operation_by_its_place() -> None:
    mean, named, inner = job("GeometricMean", "Named", "Inner").aggregates
    assert mean.finish(mean.add_many(mean.initial(), [2, None, 8])) == pytest.approx(4)
    assert [each.op for each in (mean, named, inner)] == [
        *("users_aggregates:GeometricMean", "named", "users_aggregates:Inner")
    ]
    assert all(map(is_foreign, (mean, named, inner)))
    assert pickle.loads(pickle.dumps(mean)) == mean


def test_without_an_oracle_of_its_own_it_is_held_to_what_one_state_gives() -> None:
    (mean,) = job("GeometricMean").aggregates
    answer = mean.expected([2, None, 8, 0.5])
    assert answer.accept(2.0) and answer.accept(2.0 + 1e-12)
    assert not answer.accept(2.001) and not answer.accept(None)


def test_a_state_that_is_not_of_the_declared_shape_is_refused() -> None:
    (mean,) = job("GeometricMean").aggregates
    assert mean.decode({"n": 1, "logs": 0.5}) == {"n": 1, "logs": 0.5}
    for data in (None, {"n": 1}, {"n": "1", "logs": 0.5}, {"n": 1, "logs": "NaN"}, {"n": 1, "logs": 10**400}):
        with pytest.raises(ValueError, match="not a state"):
            mean.decode(data)


def test_all_that_is_wrong_is_listed_and_says_what_to_do() -> None:
    found = faults(
        declared("Nowhere"),
        {"name": "a", "op": "no_such_module:Peak", "field": "x"},
        {"name": "b", "op": "users_broken_module:Peak", "field": "x"},
        declared("Unfinished"),
        {"name": "c", "op": "users_aggregates:MODULE", "field": "x"},
        {"name": "d", "op": "users_aggregates:math", "field": "x"},
        {"name": "e", "op": "GeometricMean", "field": "x"},
        {"name": "f", "op": "users_aggregates:GeometricMean", "bins": 3},
        {"name": "g", "op": "sum"},
    )
    importable = (
        "every process of the job (router, worker, aggregator, observer, Spark) imports it: install it in their"
    )
    assert [line.partition(importable)[1] for line in found[:3]] == [importable] * 3
    assert "No module named 'no_such_module'" in found[1]
    assert "can't be loaded: ZeroDivisionError: float division by zero" in found[2]
    assert found[3].endswith("with all its methods: it has no add_many, finish, merge")
    assert found[5].endswith("'users_aggregates:math' must be a subclass of Aggregate with all its methods")
    assert found[6].endswith("naive-bayes, or name a class by module:Class")
    assert found[7:] == [
        "aggregates[7]: op 'users_aggregates:GeometricMean' needs a field",
        "aggregates[7]: unknown property 'bins'; users_aggregates:GeometricMean has name, op, field",
        "aggregates[8]: op 'sum' needs a field",
    ]


def test_an_unlawful_class_is_a_fault_with_the_law_and_an_example() -> None:
    found = faults(declared("Last"), {"name": "g", "op": "sum"})
    assert found[-1] == "aggregates[1]: op 'sum' needs a field"
    told = "aggregates[0]: users_aggregates:Last breaks a law: commutativity: merge("
    assert any(line.startswith(told) and "but expected() says" in line for line in found)
    with pytest.raises(JobError, match="breaks a law"):
        job("GeometricMean", "Last")


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Typo", " can use none of its samples: None raises NameError: name 'stat' is not defined; give it some"),
        ("NoStart", ": samples() or initial() raises LookupError: nothing there"),
        ("OnlySmall", " can use none of its samples: 0 raises ValueError: too large; give it some that it can, by"),
        ("TakesAll", ": check() takes 0, of which add() raises ValueError: "),
        ("TakesNothing", ": check() raises ValueError: never of "),
    ],
)
def test_a_class_that_can_not_be_tried_is_a_fault(name: str, told: str) -> None:
    (line,) = faults(declared(name))
    assert line.startswith(f"aggregates[0]: users_aggregates:{name}{told}")


@pytest.mark.filterwarnings("ignore:Field name")
def test_no_setting_may_take_the_place_of_the_check() -> None:
    class Strict(Pair):
        check: bool = True  # type: ignore[assignment]

    (fault,) = trial.faults_of_code(Strict(name="s", field="x", by="y"))
    assert fault.endswith(": check is a method of aggregates, so give the setting another name")


def test_it_may_have_samples_of_its_own() -> None:
    assert job("WithSamples").aggregates[0].samples() == [1e-7, None, 2e-7]


def test_an_endless_loop_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Event()
    monkeypatch.setattr(trial, "_LONGEST", 0.05)
    monkeypatch.setattr(trial, "_tried", lambda _: [str(ended.wait())])
    (line,) = faults(declared("GeometricMean"))
    ended.set()
    assert line.endswith("has not ended within 0 s on a few samples: has it an endless loop?")


class Pair(Aggregate):
    """What is drawn for several inputs and texts."""

    field: NumberField
    by: TextField

    def initial(self) -> Any:
        return 0

    def add_many(self, state: Any, values: Any) -> Any:
        return state + len(list(values))

    def merge(self, left: Any, right: Any) -> Any:
        return left + right

    def finish(self, state: Any) -> Any:
        return state


def test_samples_are_of_the_kinds_that_are_declared() -> None:
    values = Pair(name="p", field="x", by="y").samples()
    assert {type(number) for number, _ in values} == {int, float, type(None)}
    assert {type(text) for _, text in values} == {str, type(None)}
    assert Pair(name="p", field="x", by="y").op == f"{__name__}:Pair"


def test_an_event_at_which_it_raises_an_error_is_refused_and_the_others_are_not() -> None:
    spec = job("GeometricMean", "Named")
    found = [spec.extract(b"k", b'{"x": %s}' % x, (), 1000, 2000) for x in (b"2", b"-1", b"null", b'"7"', b"8")]
    assert [isinstance(each, Rejection) for each in found] == [False, True, False, False, False]
    assert found[1] == Rejection(
        "aggregate-failed",
        "aggregate 'geometricmean' (users_aggregates:GeometricMean) raises ValueError: "
        + ("expected a positive input" if sys.version_info >= (3, 14) else "math domain error"),
    )


def test_a_check_of_its_own_is_asked_and_no_event_is_added_for_that(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = job("Checked")
    added: list[object] = []
    monkeypatch.setattr(type(spec.aggregates[0]), "add", lambda *given: added.append(given))
    found = [spec.extract(b"k", b'{"x": %s}' % x, (), 1000, 2000) for x in (b"2", b"-1", b"null")]
    assert [isinstance(each, Rejection) for each in found] == [False, True, False]
    detail = "aggregate 'checked' (users_aggregates:Checked) raises ValueError: not positive"
    assert found[1] == Rejection("aggregate-failed", detail)
    assert added == []


def test_what_a_check_takes_is_measured() -> None:
    quick, slow = job("Checked").aggregates[0], job("GeometricMean").aggregates[0]
    assert microseconds_of_check(job("Drawing").aggregates[0]) > 0
    type(slow).add = lambda *_: sum(range(200_000))  # type: ignore[method-assign]
    assert 0 < microseconds_of_check(quick) < 200 < microseconds_of_check(slow)


@dataclass
class Batch:
    """Columns of events."""

    timestamps: Any
    keys: Sequence[bytes]
    values: Sequence[bytes]
    headers: Sequence[Any]
    undecoded_names: bool = False

    def __len__(self) -> int:
        return len(self.values)

    def where(self, chosen: Any) -> "Batch":
        keys, values, headers = (list(compress(column, chosen)) for column in (self.keys, self.values, self.headers))
        return Batch(self.timestamps[chosen], keys, values, headers)


@dataclass
class OffsetBatch(Batch):
    """The same with their offsets."""

    offsets: Any = None

    def where(self, chosen: Any) -> "OffsetBatch":
        return OffsetBatch(**vars(super().where(chosen)), offsets=self.offsets[chosen])


def test_columns_are_refused_alike() -> None:
    rows = [b'{"x": 2}', b'{"x": -1}', b'{"x": 8}']
    events = Batch(np.array([1000] * 3), [b"k"] * 3, rows, [()] * 3)
    found = extract_columns(job("GeometricMean"), events, 2000)
    assert [(row, why.reason) for row, why in found.rejected] == [(1, "aggregate-failed")]
    assert (found.events.values, list(found.fields or ())) == ([rows[0], rows[2]], [(2,), (8,)])


def test_a_batch_of_which_all_is_refused_adds_nothing() -> None:
    accumulator = Accumulator(job("GeometricMean"), 0, "t" * 22)
    columns: dict[str, Any] = {"timestamps": np.array([1000] * 2), "keys": [b"k"] * 2, "headers": [()] * 2}
    bad = OffsetBatch(**columns, values=[b'{"x": -1}', b'{"x": 0}'], offsets=np.arange(2))
    assert [(row, why.reason) for row, why in accumulator.add(bad)] == [
        (0, "aggregate-failed"),
        (1, "aggregate-failed"),
    ]
    assert len(accumulator) == 0
    good = OffsetBatch(**columns, values=[b'{"x": 1}', b'{"x": -1}'], offsets=np.arange(2, 4))
    assert [row for row, _ in accumulator.add(good)] == [1]
    ((key, partial),) = accumulator.partials(0)
    assert (key, partial.events, partial.first) == (b"k", 1, 2)
