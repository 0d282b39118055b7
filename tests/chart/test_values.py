"""values.yaml, its schema and the README say the same as the programs. Needs no helm."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import chart_files
import jsonschema_rs
import pytest
import yaml
from chart_files import CHART, SETTINGS, look_up, over_defaults, snake
from keygrouping.job import JobSpec
from keygrouping_app import App, environment
from keygrouping_service.kafka.topics import TopicsSettings
from pydantic_core import PydanticUndefined

VALUES = chart_files.load_values()
# What a program's class has and no value of the chart's `settings` offers, as the chart itself sets it or must not.
CONNECTIONS = {"bootstrap_servers", "security_protocol", "sasl_mechanism", "sasl_token_provider", "sasl_username"}
SECRETS = {"sasl_password", "sasl_password_file", "ssl_cafile", "ssl_certfile", "ssl_keyfile"}
HTTP = {"http_host", "http_port", "http_hosts"}
STORE = {f"store_{name}" for name in ("url", "password", "password_file", "sentinel_password_file", "cafile")}
STORE |= {"store_certfile", "store_keyfile"}
OF_THE_CHART = {
    "settings": CONNECTIONS | SECRETS | HTTP,
    # A producer that ends is no Deployment; a percentage is part of the workload's name.
    "producer.settings": {"exit_when_done", "skew", "api_token_file", "api_reads"},
    "router.settings": STORE
    | {
        "job",
        "instance_id",
        "stages",
        "api_token_file",
        "workers",
        "auto_workers",
        "worker_pods",
        "grouping",
        "grouping_settings",
        "replica",
    },
    "worker.settings": {"job", "instance_id", "ordinal", "stages"},
    "aggregator.settings": {"job", "instance_id", "stages"},
    "observer.settings": {"job", "instance_id", "stages", "router_url", "router_token_file", "api_token_file"},
    "spark.settings": {"job", "checkpoint", "jars", "master", "stages", "router_url", "router_token_file"},
    "load.events.settings": set(),
    "load.http.settings": {"router_url", "producer_url", "token_file", "producer_token_file"},
}


def test_what_is_made_of_the_values_is_up_to_date() -> None:
    for path, text in chart_files.documents().items():
        assert path.read_text() == text, f"{path.name} is out of date: run `make chart`"


# Workers refuse them where routers read the input, so the chart sets none by itself.
OF_THE_INPUT = {f"worker.settings.{name}" for name in ("start", "until", "idleTimeout")}


@pytest.mark.parametrize("path", SETTINGS)
def test_settings_have_the_defaults_of_the_programs(path: str) -> None:
    for name, value in look_up(VALUES, path).items():
        if f"{path}.{name}" in OF_THE_INPUT:
            assert value is None
            continue
        default = SETTINGS[path].model_fields[snake(name)].get_default(call_default_factory=True, validated_data={})
        assert value == default, f"{path}.{name}"


@pytest.mark.parametrize("path", SETTINGS)
def test_every_setting_of_a_program_is_offered(path: str) -> None:
    offered = {snake(name) for name in look_up(VALUES, path)}
    common = set(SETTINGS["settings"].model_fields) if path != "settings" else set()
    missing = set(SETTINGS[path].model_fields) - offered - common - OF_THE_CHART[path]
    # Those that all stages have may be left out where they don't matter.
    stage = {"compression", "batch_bytes", "fetch_bytes", "session_timeout", "transaction_timeout"}
    assert missing <= (stage if path == "observer.settings" else set()), f"{path}: not in values.yaml"


def test_other_values_have_the_defaults_of_the_programs() -> None:
    fields = TopicsSettings.model_fields
    assert VALUES["topics"]["partitions"] == fields["partitions"].default
    assert VALUES["topics"]["createEvents"] == fields["create_events"].default
    assert VALUES["topics"]["lettersBytes"] == fields["letters_bytes"].default
    assert VALUES["worker"]["maxReplicas"] == fields["max_workers"].default
    router = SETTINGS["router.settings"].model_fields
    assert VALUES["router"]["grouping"] == {"name": router["grouping"].default, "settings": {}}
    assert fields["replication"].default is None is VALUES["topics"]["replication"]
    assert router["workers"].default is not PydanticUndefined


def test_every_setting_of_an_app_is_offered_and_unset() -> None:
    of_the_chart = {f"{environment.OWN}{name}" for name in ("PORT", "STOP_SECONDS", "INSTANCE_ID")}
    settings = VALUES["app"]["settings"]
    offered = {f"{environment.OWN}{snake(name).upper()}" for name in settings}
    assert offered == {name for name in environment.NAMES if name.startswith(environment.OWN)} - of_the_chart
    assert not any(settings.values()), "what the code says counts"


def test_the_usual_app_has_time_to_stop() -> None:
    app = App("billing")
    app.on("orders")(print)
    environment.apply(app, {f"{environment.OWN}STOP_SECONDS": str(VALUES["app"]["terminationGracePeriodSeconds"])})


def test_the_job_is_the_programs_default() -> None:
    given = {name: value for name, value in VALUES["job"].items() if value is not None}
    assert JobSpec.from_json(given) == JobSpec.from_json({"aggregates": given["aggregates"]})
    assert set(VALUES["job"]) == {
        *("key", "weight", "time", "format", "window", "window_offset", "lateness", "max_future", "confirmations"),
        "aggregates",
    }


# the schema


@pytest.fixture(scope="module")
def validator() -> jsonschema_rs.Draft7Validator:
    return jsonschema_rs.Draft7Validator(chart_files.schema())


def test_the_defaults_fit(validator: jsonschema_rs.Draft7Validator) -> None:
    validator.validate(VALUES)


def value_files() -> list[Any]:
    files = [
        *CHART.glob("ci/*.yaml"),
        *CHART.glob("examples/*/values.yaml"),
        *chart_files.MANIFESTS.rglob("values.yaml"),
    ]
    return [pytest.param(path, id=str(path.relative_to(chart_files.ROOT))) for path in sorted(files)]


@pytest.mark.parametrize("path", value_files())
def test_all_our_values_fit(validator: jsonschema_rs.Draft7Validator, path: Any) -> None:
    validator.validate(over_defaults(yaml.safe_load(path.read_text())))


DOCUMENTED = {entry.path for entry in chart_files.entries((CHART / "values.yaml").read_text())}


def maps(values: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """All maps of the values whose names are fixed."""
    yield path
    for name, value in values.items():
        if isinstance(value, dict) and ".".join((*path, name)) not in DOCUMENTED:
            yield from maps(value, (*path, name))


@pytest.mark.parametrize("path", list(maps(VALUES)), ids=".".join)
def test_a_misspelt_name_is_refused_everywhere(validator: jsonschema_rs.Draft7Validator, path: tuple[str, ...]) -> None:
    wrong = copy.deepcopy(VALUES)
    place = wrong
    for name in path:
        place = place[name]
    place["misspelt"] = {}
    assert any("misspelt" in error.message for error in validator.iter_errors(wrong))


def test_a_parent_chart_may_pass_its_globals(validator: jsonschema_rs.Draft7Validator) -> None:
    validator.validate(over_defaults({"global": {"anything": 1}}))


OTHERS = {"router": {"image": {"repository": "registry.example.com/own-router"}}}


@pytest.mark.parametrize("runner", ["native", "spark"])
def test_images_of_their_own_may_know_further_operations(validator: jsonschema_rs.Draft7Validator, runner: str) -> None:
    spread = {"runner": runner, "job": {"aggregates": [{"name": "r", "op": "spread", "field": "x", "k": 3}]}}
    assert ["job", "aggregates", 0, "op"] in [
        list(e.instance_path) for e in validator.iter_errors(over_defaults(spread))
    ]
    validator.validate(over_defaults({**spread, **OTHERS}))
    nameless = {"runner": runner, "job": {"aggregates": [{"op": "spread"}]}, **OTHERS}
    misspelt = {"runner": runner, "job": {"aggregates": [{"name": "r", "op": "sum", "feild": "x"}]}, **OTHERS}
    assert not validator.is_valid(over_defaults(nameless))
    assert not validator.is_valid(over_defaults(misspelt))


# how values.yaml is read


def test_comments_become_entries() -> None:
    text = "# ignored\na:\n  # @schema {minimum: 1}\n  # -- How many\n  b: 2\n  # -- A map\n  c: {d: 1}\n"
    found = chart_files.entries(text)
    assert [(e.path, e.default, e.description, e.schema) for e in found] == [
        ("a.b", 2, "How many", {"minimum": 1}),
        ("a.c", {"d": 1}, "A map", {}),
    ]


def test_a_patch_says_what_is_different() -> None:
    before = {"a": 1, "b": {"c/d": [1, {"x": 1}], "e": [1]}, "gone": 0}
    after = {"a": 1, "b": {"c/d": [1, {"x": 2}], "e": [1, 2]}, "new": 0}
    assert list(chart_files.difference(before, after)) == [
        {"op": "replace", "path": "/b/c~1d/1/x", "value": 2},
        {"op": "replace", "path": "/b/e", "value": [1, 2]},
        {"op": "remove", "path": "/gone"},
        {"op": "add", "path": "/new", "value": 0},
    ]
