"""Every metric that is named anywhere - code, tests, docs, dashboards, rules - is in the registry."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from keygrouping_app.metrics import PREFIX as OF_APPS
from keygrouping_service.observability.metrics import DEFINITIONS, PROCESS, register_installed

from .app_metrics import NAMES as NAMES_OF_APPS

ROOT = Path(__file__).parents[1]
TEXTS = ("*.md", "docs/**/*.md", "helm/**/*", "k8s/**/*", "{libs,services}/*/{src,tests}/**/*.py", "spark-jobs/**/*.py")
OTHERS = ("tests/*.py", "benchmarks/*.py")
SUFFIXES = ("", "_bucket", "_sum", "_count")
NAME = re.compile(r"(?<![\w./-])(?:keygrouping|process|python)_[a-z0-9_]+(?![\w(/]|\.[a-z])")
"""A word that is no part of a path, no module with something in it, no call."""

register_installed()
REGISTERED = {
    definition.name + suffix
    for definition in (*DEFINITIONS, *PROCESS)
    for suffix in (SUFFIXES if definition.kind == "histogram" else SUFFIXES[:1])
} | NAMES_OF_APPS
PACKAGES = {path.name for path in ROOT.glob("*/*/src/keygrouping_*")} | {"keygrouping_spark"}


def files(pattern: str) -> Iterator[Path]:
    if "{" in pattern:
        first, _, rest = pattern.partition("{")
        choices, _, rest = rest.partition("}")
        for choice in choices.split(","):
            yield from files(first + choice + rest)
    else:
        yield from (
            path
            for path in ROOT.glob(pattern)
            if path.is_file() and not {"node_modules", "__pycache__"} & {*path.parts}
        )


def names_in(text: str) -> set[str]:
    """The metrics that a text names."""
    return {name for name in NAME.findall(text) if name.startswith("keygrouping_") or name in REGISTERED} - {
        *PACKAGES,
        OF_APPS,
    }


def test_names_are_found_in_queries_code_and_prose() -> None:
    assert names_in('sum(rate(keygrouping_commits_total{group="x"}[5m])) by (group)') == {"keygrouping_commits_total"}
    assert names_in("`keygrouping_mispelt_total`, process_open_fds, process_all") == {
        "keygrouping_mispelt_total",
        "process_open_fds",
    }
    assert names_in("from keygrouping_service.http import x; libs/keygrouping_router; -m keygrouping_local") == set()


@pytest.mark.parametrize("pattern", [*TEXTS, *OTHERS])
def test_every_metric_that_is_named_is_registered(pattern: str) -> None:
    paths = [path for path in files(pattern) if path != Path(__file__) and path.name != "test_metrics.py"]
    named = {path.relative_to(ROOT): names_in(path.read_text(errors="replace")) - REGISTERED for path in paths}
    assert {str(path): names for path, names in named.items() if names} == {}


def test_metrics_are_made_nowhere_but_in_the_registry() -> None:
    imports = re.compile(
        r"^from prometheus_client import .*\b(Counter|Gauge|Histogram|Summary|Info|Enum)\b", re.MULTILINE
    )
    calls = re.compile(r"[^.\w](Counter|Gauge|Histogram|Summary|Info|Enum)\(")
    makers = {
        path.relative_to(ROOT).as_posix()
        for pattern in ("{libs,services}/*/src/**/*.py", "spark-jobs/src/**/*.py")
        for path in files(pattern)
        if imports.search(text := path.read_text()) and calls.search(text)
    }
    assert makers == {"libs/service/src/keygrouping_service/observability/metrics.py"}


def test_every_metric_is_used() -> None:
    sources = {
        path: path.read_text()
        for pattern in ("{libs,services}/*/src/**/*.py", "spark-jobs/src/**/*.py")
        for path in files(pattern)
    }
    for path, text in sources.items():
        if path.name.endswith("metrics.py"):
            package = "".join(other for at, other in sources.items() if at != path and path.parents[1] in at.parents)
            used = package + text.partition("\ndef ")[2]
            for name in re.findall(r"^([A-Z_]+) = _\w+\.(?:counter|gauge|histogram)\(", text, re.MULTILINE):
                assert re.search(rf"\b{name}\b", used), f"{path}: {name}"


def test_metrics_are_registered_by_the_services_that_have_them() -> None:
    """And by them alone: the library that all share names no service."""
    shared = "libs/service/src/keygrouping_service/observability/metrics.py"
    found = {
        service
        for path in files("{libs,services}/*/src/**/*.py")
        for service in re.findall(r'Registration\("(\w+)"\)', path.read_text())
        if path.parents[2].name == service or (service == "inspect" and path.name == "inspect_metrics.py")
    }
    assert found | {"spark"} == {d.service for d in DEFINITIONS if d.service}
    assert 'Registration("' not in (ROOT / shared).read_text()
