"""Aggregates of other packages are found by their entry points."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from keygrouping.aggregate import AggregateError, Max, names, operation, parse_aggregates, registry
from keygrouping.job import JobError, JobSpec

Install = Callable[[str], None]

MODULE = """
from keygrouping.aggregate import Aggregate, Max

class Peak(Max):
    op = "peak"

class Unlawful(Max):
    op = "unlawful"

    def merge(self, left, right):
        return right

class Half(Aggregate):
    op = "half"
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Installs a package with these entry points, as pip does."""

    def made(points: str) -> None:
        (tmp_path / "plugged_in_aggregates.py").write_text(MODULE)
        info = tmp_path / "plugged_in_aggregates-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plugged-in-aggregates\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[{registry.PLUGINS}]\n{points}\n")
        monkeypatch.syspath_prepend(tmp_path)
        registry._plugins.cache_clear()

    yield made
    monkeypatch.undo()
    registry._plugins.cache_clear()


def test_a_job_uses_it_by_its_name(install: Install) -> None:
    install("peak = plugged_in_aggregates:Peak")
    assert names()[-1] == "peak"
    (peak,) = JobSpec.from_json('{"aggregates": [{"name": "p", "op": "peak", "field": "x"}]}').aggregates
    assert peak.finish(peak.add_many(peak.initial(), [3, None, 7])) == 7
    with pytest.raises(JobError, match="op 'peak' needs a field"):
        JobSpec.from_json('{"aggregates": [{"name": "p", "op": "peak"}]}')


def test_it_is_held_to_the_laws_before_a_job_begins(install: Install) -> None:
    install("unlawful = plugged_in_aggregates:Unlawful")
    with pytest.raises(JobError, match=r"aggregates\[0\]: unlawful breaks a law: identity: initial\(\) merged from"):
        JobSpec.from_json('{"aggregates": [{"name": "u", "op": "unlawful", "field": "x"}]}')


def test_a_name_that_is_taken_stays_what_it_is(install: Install) -> None:
    install("max = plugged_in_aggregates:Peak")
    assert len(set(names())) == len(names())
    assert operation("max") is Max


def test_a_name_that_is_refused_otherwise_may_be_theirs(install: Install) -> None:
    install("median = plugged_in_aggregates:Peak")
    with pytest.raises(AggregateError, match=r"op 'median': plugged_in_aggregates:Peak must say so itself"):
        parse_aggregates([{"name": "m", "op": "median", "field": "x"}])


@pytest.mark.parametrize(
    ("value", "fault"),
    [
        ("plugged_in_aggregates:Other", "can't be loaded"),
        ("nowhere:Peak", "can't be loaded: No module named 'nowhere'"),
        ("plugged_in_aggregates:MODULE", "can't be loaded"),
        ("plugged_in_aggregates:__name__", "must be a subclass of Aggregate with all its methods"),
        ("plugged_in_aggregates:Half", "must be a subclass of Aggregate with all its methods"),
        ("plugged_in_aggregates:Max", "must say so itself, by op = 'half'"),
    ],
)
def test_what_can_not_be_used_is_told_in_a_line(install: Install, value: str, fault: str) -> None:
    install(f"half = {value}")
    with pytest.raises(AggregateError, match=rf"^aggregates\[0\]: op 'half': {value} {fault}") as error:
        parse_aggregates([{"name": "a", "op": "half", "field": "x"}])
    assert "\n" not in str(error.value)
    assert operation("count").op == "count"


def test_an_unknown_operation_lists_it_as_well(install: Install) -> None:
    install("peak = plugged_in_aggregates:Peak")
    with pytest.raises(AggregateError, match=r"unknown op 'nope'; choose from count, .*naive-bayes, peak"):
        parse_aggregates([{"name": "a", "op": "nope", "field": "x"}])
