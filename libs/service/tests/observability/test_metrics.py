"""Laws of the registry: Prometheus's conventions, bounded labels, and a page that says what is scraped."""

import asyncio
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from keygrouping.job import REASONS
from keygrouping_service.observability import metrics
from keygrouping_service.observability.loop_lag import measure_loop_lag
from keygrouping_service.observability.metrics import (
    DEFINITIONS,
    LABELS,
    PROCESS,
    READER_REASONS,
    Definition,
    register_installed,
)
from keygrouping_service.observability.metrics_page import render
from keygrouping_service.records import bisection, record
from prometheus_client import REGISTRY
from prometheus_client.parser import text_string_to_metric_families

LEARNT = {
    "group": "by the stage, as it begins",
    "worker": "by the router, with W",
    "topic": "by who purges it",
    "query": "by Spark's driver",
    "field": "by the router, with the job",
}
"""Labels of counters whose values a process learns, and where it shows them."""

register_installed()
PAGE = Path(__file__).parents[4] / "docs" / "metrics.md"

BASE_UNITS = {"seconds", "bytes"}
NOT_BASE_UNITS = {"ms", "milliseconds", "minutes", "hours", "kb", "mb", "kilobytes", "megabytes", "percent"}
RESERVED_LABELS = {"le", "quantile", "job", "instance", "key"}


def faults(definition: Definition) -> list[str]:
    """What in a definition is against https://prometheus.io/docs/practices/naming/, or against our own rules."""
    name, words = definition.name, definition.name.split("_")
    checks = {
        "a name is of small letters, digits and single underscores": re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name),
        "the prefix is keygrouping_": words[0] == "keygrouping",
        "counters, and only they, end in _total": (words[-1] == "total") == (definition.kind == "counter"),
        "no suffix that Prometheus adds": words[-1] not in ("bucket", "sum", "count", "created"),
        "what always is 1, and only that, ends in _info": (words[-1] == "info") == (definition.unit == "info"),
        "the kind is not in the name": not {"counter", "gauge", "histogram", "summary"} & set(words),
        "units are base units": not NOT_BASE_UNITS & set(words),
        "the base unit is the last word": definition.unit not in BASE_UNITS
        or [word for word in words if word != "total"][-1] == definition.unit,
        "a base unit in the name is the unit": words[-1] not in BASE_UNITS or words[-1] == definition.unit,
        "labels are in LABELS": set(definition.labels) <= LABELS.keys(),
        "labels are not reserved": not RESERVED_LABELS & set(definition.labels),
        "the meaning is a sentence": re.fullmatch(r"[A-Zλ01].*\.", definition.meaning),
        "the meaning fits in a table": "|" not in definition.meaning and "\n" not in definition.meaning,
    }
    return [rule for rule, kept in checks.items() if not kept]


def shown_by(program: str) -> str:
    """What a process shows that has run this."""
    ending = "\nfrom keygrouping_service.observability import metrics; print(metrics.exposition().decode())"
    command = [sys.executable, "-c", program + ending]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_every_metric_is_named_by_the_conventions() -> None:
    assert {definition.name: found for definition in DEFINITIONS if (found := faults(definition))} == {}
    names = [definition.name for definition in (*DEFINITIONS, *PROCESS)]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("broken", "rule"),
    [
        (Definition("keygrouping_sent", "counter", "events", "Sent."), "counters, and only they, end in _total"),
        (Definition("keygrouping_sent_total", "gauge", "events", "Sent."), "counters, and only they, end in _total"),
        (Definition("sent_total", "counter", "events", "Sent."), "the prefix is keygrouping_"),
        (Definition("keygrouping_wait_ms", "gauge", "ms", "Wait."), "units are base units"),
        (Definition("keygrouping_wait", "gauge", "seconds", "Wait."), "the base unit is the last word"),
        (Definition("keygrouping_wait_bytes", "gauge", "records", "Wait."), "a base unit in the name is the unit"),
        (Definition("keygrouping_loads", "gauge", "events", "Loads.", ("key",)), "labels are not reserved"),
        (Definition("keygrouping_loads", "gauge", "events", "Loads.", ("tenant",)), "labels are in LABELS"),
        (Definition("keygrouping_Loads", "gauge", "events", "Loads."), "a name is of small letters, digits and single"),
        (Definition("keygrouping_load_sum", "gauge", "events", "Loads."), "no suffix that Prometheus adds"),
    ],
)
def test_a_name_against_the_conventions_is_found(broken: Definition, rule: str) -> None:
    assert any(found.startswith(rule) for found in faults(broken))


def test_all_labels_that_are_explained_are_used() -> None:
    assert {label for definition in DEFINITIONS for label in definition.labels} == LABELS.keys()


def test_the_page_is_current() -> None:
    assert PAGE.read_text() == render(), "run `make docs`"


def test_the_page_names_every_metric() -> None:
    page = render()
    assert all(f"| `{definition.name}` | {definition.kind} |" in page for definition in (*DEFINITIONS, *PROCESS))


def test_what_is_scraped_is_what_is_defined() -> None:
    """Kind, labels and meaning too; and nothing comes from elsewhere."""
    scraped = {family.name: family for family in text_string_to_metric_families(metrics.exposition().decode())}
    defined = {definition.name.removesuffix("_total"): definition for definition in DEFINITIONS}
    for name, definition in defined.items():
        assert (scraped[name].type, scraped[name].documentation) == (definition.kind, definition.meaning)
    others = {name for name in scraped if name not in defined}
    assert others <= {definition.name.removesuffix("_total") for definition in PROCESS}


def test_counters_begin_at_0_for_all_values_of_their_labels() -> None:
    """Prometheus can't see the first increase of a series that begins with it."""
    text = shown_by("from keygrouping_service.observability import metrics; metrics.register_installed()")
    counters = [definition for definition in DEFINITIONS if definition.kind == "counter"]
    shown = {
        name: re.findall(rf"^{name}{{\w+=\"([^\"]*)\"}} 0.0$", text, re.MULTILINE)
        for name in (d.name for d in counters)
    }
    for definition in counters:
        assert len(definition.labels) <= 1 or definition.labels[0] in LEARNT
        assert not definition.labels or definition.labels[0] in LEARNT or shown[definition.name], definition.name
    assert set(shown["keygrouping_router_dead_letters_total"]) == {*REASONS, *READER_REASONS}
    assert len(shown["keygrouping_router_store_bad_values_total"]) > 5


def test_the_reasons_of_readers_are_known() -> None:
    found = {record.TOO_LARGE, record.UNDECODABLE, bisection.REFUSED, bisection.UNPROCESSABLE}
    assert found == set(READER_REASONS)


def test_a_group_begins_at_0() -> None:
    metrics.show_group("k-begins")
    of_groups = {d.name for d in DEFINITIONS if d.kind == "counter" and d.labels == ("group",)}
    for name in of_groups:
        assert REGISTRY.get_sample_value(name, {"group": "k-begins"}) == 0, name


@pytest.mark.parametrize(
    ("service", "module"),
    [
        ("router", "keygrouping_router.cli"),
        ("worker", "keygrouping_worker.cli"),
        ("aggregator", "keygrouping_aggregator.cli"),
        ("producer", "keygrouping_producer.cli"),
        ("observer", "keygrouping_observer.cli"),
        ("spark", "keygrouping_spark.cli"),
        ("inspect", "keygrouping_service.inspect_exporter"),
    ],
)
def test_a_process_shows_the_metrics_of_its_service_and_those_of_all(service: str, module: str) -> None:
    shown = set(re.findall(r"^# TYPE (keygrouping_\w+)", shown_by(f"import {module}"), re.MULTILINE))
    expected = {definition.name for definition in DEFINITIONS if definition.service in (None, service)}
    assert shown == expected


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_promtool_finds_nothing() -> None:
    own = metrics.exposition().decode()
    checked = subprocess.run(["promtool", "check", "metrics"], input=own, capture_output=True, text=True, check=False)
    complaints = [line for line in checked.stdout.splitlines() + checked.stderr.splitlines() if "keygrouping_" in line]
    assert complaints == []


async def test_a_loop_that_is_held_up_is_measured() -> None:
    def above(bound: str) -> float:
        values = {"le": bound}, {"le": "+Inf"}
        name = "keygrouping_event_loop_lag_seconds_bucket"
        below, total = (REGISTRY.get_sample_value(name, labels) or 0 for labels in values)
        return total - below

    before = above("0.1")
    measuring = asyncio.create_task(measure_loop_lag(0.01))
    await asyncio.sleep(0.005)
    time.sleep(0.2)  # noqa: ASYNC251 (holding the loop up is the point)
    await asyncio.sleep(0.02)
    measuring.cancel()
    assert above("0.1") > before
